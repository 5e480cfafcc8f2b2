package main

import (
	"bytes"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/keep-run/keep/internal/twin"
	"github.com/keep-run/keep/testkit/connectortest"
)

// A told service says when it did something.
type told struct {
	twin.Service
	did chan string
}

// Authorized asks the service, if it has its own way.
func (s told) Authorized(r *http.Request, body []byte, secret string) bool {
	if a, ok := s.Service.(twin.Authorizer); ok {
		return a.Authorized(r, body, secret)
	}
	return r.Header.Get("Authorization") == "Bearer "+secret
}

// Change tells what is done.
func (s told) Change(r *http.Request, body []byte) (string, func() twin.Reply) {
	name, do := s.Service.Change(r, body)
	return name, func() twin.Reply {
		reply := do()
		if name != "" {
			s.did <- name
		}
		return reply
	}
}

const paidScript = `export default Keep.workflow({
  name: "answers",
  topics: { asked: {} },
  consumers: {
    answer: Keep.consumer({
      subscribe: ["asked"],
      async prepare(ctx, event) {
        if (!event) return { reservations: [], data: {} };
        const ask = (text) => ({ model: "m", max_tokens: 100, messages: [{ role: "user", content: text }] });
        const one = await ctx.claude.messages(ask("one"));
        const again = await ctx.claude.messages(ask("one"));
        if (one.id !== again.id) throw new Error("bought twice: " + one.id + " " + again.id);
        const two = await ctx.gpt.chat(ask("two"));
        return { reservations: [{ topic: "asked", ids: [event.messageId] }], data: { text: one.id + " " + two.choices[0].message.content } };
      },
      async mutate(ctx, prepared) { await ctx.team.postMessage({ channel: "C1", text: prepared.data.text }); },
    }),
  },
});
`

// The real command is killed while a read that costs is out, after it was recorded, and while
// the change is out. What was recorded is not bought again; an answer that nobody has is.
// Laws: once, settled-stays.
func TestPaidReads(t *testing.T) {
	t.Parallel()
	const text = "msg_1 answer %d to: two"
	for name, c := range map[string]struct {
		stalls string // the effect whose answer does not come before the kill; empty: nobody is killed
		bought map[string]int
		posted string
	}{
		"nothing goes wrong":                  {"", map[string]int{"one": 1, "two": 1}, fmt.Sprintf(text, 2)},
		"killed between purchase and record":  {"one", map[string]int{"one": 2, "two": 1}, "msg_2 answer 3 to: two"},
		"killed after the first was recorded": {"two", map[string]int{"one": 1, "two": 2}, fmt.Sprintf(text, 3)},
		"killed after both, in the change":    {fmt.Sprintf(text, 2), map[string]int{"one": 1, "two": 1}, fmt.Sprintf(text, 2)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			did := make(chan string, 100)
			services := []*twin.Twin{}
			for _, s := range []twin.Service{new(twin.LLM), new(twin.Slack)} {
				service, err := twin.Start(told{s, did})
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(service.Close)
				services = append(services, service)
			}
			llm, slack := services[0], services[1]
			stall := connectortest.Fault{Answer: connectortest.Stalled}
			switch c.stalls {
			case "":
			case "one":
				llm.Script(stall)
			case "two":
				llm.Script(connectortest.Fault{}, stall)
			default:
				slack.Script(stall)
			}
			dir := t.TempDir()
			toml := fmt.Sprintf("[policy]\nretry = { first = \"10ms\", max = \"20ms\", attempts = 5 }\n"+
				"[connections.claude]\nconnector = \"llm\"\nbase_url = \"http://%[1]s\"\nsecret = \"${secret:k}\"\nonly = [\"messages\"]\n"+
				"[connections.gpt]\nconnector = \"llm\"\nbase_url = \"http://%[1]s/v1\"\nsecret = \"${secret:k}\"\nonly = [\"chat\"]\n"+
				"[connections.team]\nconnector = \"slack\"\nbase_url = \"http://%[2]s/api\"\nsecret = \"${secret:k}\"\n", llm.Addr(), slack.Addr())
			for file, content := range map[string]string{"keep.toml": toml, "answers.js": paidScript} {
				if err := os.WriteFile(filepath.Join(dir, file), []byte(content), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			command := func(args ...string) *exec.Cmd {
				cmd := exec.CommandContext(t.Context(), buildKeep(t), args...)
				cmd.Dir = dir
				cmd.Env = append(os.Environ(), "XDG_CACHE_HOME="+cacheHome(t), "KEEP_SECRET_K="+llm.Secret)
				return cmd
			}
			for _, args := range [][]string{{"deploy", "answers.js"}, {"publish", "answers", "asked", "--id", "a", `{}`}} {
				if out, err := command(args...).CombinedOutput(); err != nil {
					t.Fatalf("%v: %v\n%s", args, err, out)
				}
			}
			if c.stalls != "" {
				cmd := command("run", ".")
				var out bytes.Buffer
				cmd.Stdout, cmd.Stderr = &out, &out
				if err := cmd.Start(); err != nil {
					t.Fatal(err)
				}
				for at := ""; at != c.stalls; {
					select {
					case at = <-did:
					case <-t.Context().Done():
						t.Fatal("it never came there")
					}
				}
				if err := cmd.Process.Kill(); err != nil {
					t.Fatal(err)
				}
				cmd.Wait() // it was killed
			}
			if out, err := command("run", ".").CombinedOutput(); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			for what, want := range c.bought {
				if n := llm.Effects(what); n != want {
					t.Errorf("%q was bought %d times, want %d", what, n, want)
				}
			}
			if n := slack.Effects(c.posted); n != 1 {
				t.Errorf("%q was posted %d times", c.posted, n)
			}
			if out, err := command("doctor").CombinedOutput(); err != nil {
				t.Errorf("doctor: %v\n%s", err, out)
			}
		})
	}
}

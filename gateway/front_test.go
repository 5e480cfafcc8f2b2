//go:build unix

package gateway_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/keep-run/keep/engine"
	"github.com/keep-run/keep/gateway"
)

// A childLink is a link to a gateway that is a process of its own.
type childLink struct {
	io.Reader
	io.WriteCloser
	wait func()
	kill func() error
}

func (c childLink) CloseWrite() error { return c.WriteCloser.Close() }

// Close ends the process and waits for it.
func (c childLink) Close() error {
	_ = c.WriteCloser.Close()
	c.wait()
	return nil
}

// startLink starts a gateway to which a front speaks.
func startLink(s setup) (link childLink, err error) {
	s.Link = true
	text, err := json.Marshal(s)
	if err != nil {
		return link, err
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "GATEWAY_TEST_ROLE=gateway", "GATEWAY_TEST_SETUP="+string(text))
	in, err := cmd.StdinPipe()
	if err != nil {
		return link, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return link, err
	}
	if err := cmd.Start(); err != nil {
		return link, err
	}
	return childLink{out, in, sync.OnceFunc(func() { _ = cmd.Wait() }), cmd.Process.Kill}, nil
}

// The gateway of a front is killed at every point of a call, and the next one takes its place: the agent, which knows
// nothing of it, gets one answer, and an honest one. Laws: once, nothing-lost.
func TestFrontTakeOver(t *testing.T) {
	for _, p := range []engine.Point{engine.BeforeCall, engine.Recorded, engine.Answered, engine.AfterCommit, "in the answer"} {
		for _, isPaired := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s,paired=%t", p, isPaired), func(t *testing.T) {
				t.Parallel()
				s := setup{Dir: t.TempDir(), Agent: "ann"}
				if isPaired {
					s.Rules = paired()
				}
				dying := s
				if dying.KillAt = p; p == "in the answer" {
					dying.CutAt = 60
				}
				c, links := frontOf(t, dying, s)
				r, ok := c.create("x")
				for ok && (r.state() == "needs_reconcile" || r.state() == "failed") {
					r, ok = c.create("x")
				}
				known := "applied"
				if !isPaired && (p == engine.Recorded || p == engine.Answered) {
					known = "indeterminate"
				}
				if want := 1; !ok || r.state() != known || effects(t, s.Dir, "x") > want || known == "applied" && effects(t, s.Dir, "x") != want {
					t.Errorf("%d effects, %s", effects(t, s.Dir, "x"), r.raw)
				}
				if known == "indeterminate" && !strings.Contains(r.text(), "do not repeat it") {
					t.Errorf("%s", r.text())
				}
				// The session continues as it was: its version, and what was delivered in it.
				if r, ok := c.ask(3, "tools/list", `{}`); !ok || !strings.Contains(r.raw, "notes__create") {
					t.Errorf("%s", r.raw)
				}
				for i, want := range []int{1, 1, 2} {
					if r, _ := c.create("y"); effects(t, s.Dir, "y") != want || r.state() != "applied" {
						t.Errorf("%d: %d effects, %s", i, effects(t, s.Dir, "y"), r.raw)
					}
					if i == 1 {
						c.ask(4, "ping", `{}`)
					}
				}
				c.stop()
				if n := *links; n != 2 {
					t.Errorf("%d gateways, want 2", n)
				}
				if q := check(t, s.Dir); len(q) != 0 && known == "applied" || known != "applied" && len(q) != 1 {
					t.Errorf("%d questions", len(q))
				}
			})
		}
	}
}

// The gateway of a front is killed with a call out, and the next one would not send it: what is known of the call is the answer
// all the same, to the agent that made it and to no other. Laws: doubt-is-not-failure, explained.
func TestFrontTakeOverByOneThatRefuses(t *testing.T) {
	for name, want := range map[string]struct {
		change func(*setup)
		fresh  string // what is said of a call that was never made
	}{
		"no server":     {func(s *setup) { s.Echoes = 1 }, "Unknown tool: notes__create"},
		"a dead server": {func(s *setup) { s.URL = "http://127.0.0.1:1/mcp" }, "nothing was sent"},
		"no permission": {func(s *setup) { s.Grants = map[string][]string{"ann": {}, "bob": {}} }, "Nothing was sent"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dying := setup{Dir: t.TempDir(), Agent: "ann", KillAt: engine.Recorded}
			next := setup{Dir: dying.Dir, Agent: "ann"}
			want.change(&next)
			front, _ := frontOf(t, dying, next)
			r, ok := front.create("x")
			ref, _ := r.Result.Meta["keep/ref"].(string)
			if !ok || r.state() != "indeterminate" || ref == "" || !strings.Contains(r.text(), "do not repeat it; ask keep_outcome with "+ref) {
				t.Errorf("%s", r.raw)
			}
			refused := func(c *client, title string) {
				t.Helper()
				if r, _ := c.create(title); r.Error == nil && !r.Result.IsError || !strings.Contains(r.raw, want.fresh) || strings.Contains(r.raw, "mut_") {
					t.Errorf("%s", r.raw)
				}
			}
			refused(front, "y")
			front.stop()
			next.Agent = "bob"
			other := start(t, next)
			refused(other, "x")
			other.stop()
			if n := len(check(t, next.Dir)); n != 1 {
				t.Errorf("%d questions, want 1", n)
			}
		})
	}
}

// frontOf starts a front in this process, with these gateways one after another, and agrees with it on a version.
func frontOf(t *testing.T, gateways ...setup) (c *client, links *int) {
	t.Helper()
	links = new(int)
	return frontTo(t, func(context.Context) (gateway.Link, error) {
		s := gateways[min(*links, len(gateways)-1)]
		*links++
		return startLink(s)
	}), links
}

// frontTo starts a front in this process, and agrees with its gateway on a version.
func frontTo(t *testing.T, connect func(context.Context) (gateway.Link, error)) *client {
	t.Helper()
	fromAgent, in := io.Pipe()
	out, toAgent := io.Pipe()
	done := make(chan error, 1)
	go func() {
		done <- gateway.Front{Connect: connect, Logger: slog.New(slog.DiscardHandler)}.Serve(t.Context(), fromAgent, toAgent)
		_ = toAgent.Close()
	}()
	c := newClient(t, in, out, func() {
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	c.hello()
	return c
}

// TestFrontRefused has an agent send what is worked on in no part: each request of it is answered, and none is left for the
// next gateway.
func TestFrontRefused(t *testing.T) {
	t.Parallel()
	s, links := setup{Dir: t.TempDir(), Agent: "ann"}, make(chan childLink, 2)
	c := frontTo(t, func(context.Context) (gateway.Link, error) {
		link, err := startLink(s)
		links <- link
		return link, err
	})
	line := func() string {
		text, err := c.out.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	request := `{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"notes__create","arguments":{"title":"%s"}}}`
	for _, bad := range []struct{ frame, ids, code string }{
		{fmt.Sprintf(request, 5, "caf\xe9"), "5", "-32700"},
		{`{"jsonrpc":"2.0","id":"caf` + "\xe9" + `","method":"ping"}`, "null", "-32700"},
		{"[" + fmt.Sprintf(request, 6, "caf\xe9") + "," + fmt.Sprintf(request, 7, "x") + "]", "6 7", "-32700"},
		{"[" + fmt.Sprintf(request, 8, "x") + `,{"jsonrpc":5,"id":9,"method":"ping"}]`, "8 9", "-32600"}, // the version has none
		{"[" + strings.Repeat(fmt.Sprintf(request, 10, "x")+",", 64) + fmt.Sprintf(request, 10, "x") + "]", "null", "-32600"},
	} {
		c.send(bad.frame)
		text := line()
		var got []reply
		if bad.frame[0] != '[' || bad.ids == "null" {
			text = "[" + text + "]"
		}
		if err := json.Unmarshal([]byte(text), &got); err != nil {
			t.Fatalf("%v: %s", err, text)
		}
		var ids []string
		for _, r := range got {
			ids = append(ids, string(r.ID))
		}
		if strings.Join(ids, " ") != bad.ids || !strings.Contains(text, bad.code) {
			t.Errorf("%.60q is answered %s, want %s to %s", bad.frame, text, bad.code, bad.ids)
		}
	}
	_ = (<-links).kill()
	c.send(`{"jsonrpc":"2.0","id":20,"method":"ping"}`)
	if got := line(); !strings.HasPrefix(got, `{"jsonrpc":"2.0","id":20,`) {
		t.Errorf("the next gateway answers %s", got)
	}
	if n := effects(t, s.Dir, "x"); n != 0 {
		t.Errorf("%d effects", n)
	}
}

// TestFrontLosses kills the gateways of a front at random points of its calls, and their server fails, too. The agent
// makes a call again only if it is told that nothing was sent, or that the lookup is not over. Laws: as in TestLosses.
func TestFrontLosses(t *testing.T) {
	for _, isPaired := range []bool{true, false} {
		t.Run(fmt.Sprintf("paired=%t", isPaired), func(t *testing.T) {
			t.Parallel()
			s := setup{Dir: t.TempDir(), Agent: "ann"}
			if isPaired {
				s.Rules = paired()
			}
			r := rand.New(rand.NewPCG(*seed, 2))
			links := make(chan childLink, 1) // the one that is used
			killed, unknown := 0, 0
			c := frontTo(t, func(context.Context) (gateway.Link, error) {
				link, err := startLink(s)
				select {
				case <-links:
				default:
				}
				links <- link
				return link, err
			})
			for i := range *losses {
				title := fmt.Sprintf("n%d", i)
				fail(t, s.Dir, serverFaults[r.IntN(len(serverFaults))])
				var breaks sync.WaitGroup
				if after := time.Duration(r.IntN(9000)) * time.Microsecond; r.IntN(3) > 0 {
					killed++
					breaks.Go(func() {
						<-time.After(after)
						link := <-links // the next one comes when the front notes it
						_ = link.kill()
					})
				}
				a, ok := c.create(title)
				for ok && (a.state() == "needs_reconcile" || a.state() == "failed") { // the test ends with its time
					a, ok = c.create(title)
				}
				breaks.Wait()
				switch n := effects(t, s.Dir, title); {
				case !ok, a.state() != "applied" && (isPaired || a.state() != "indeterminate"), n > 1, a.state() == "applied" && n != 1:
					t.Fatalf("seed %d, call %d: %d effects, %s", *seed, i, n, a.raw)
				case a.state() == "indeterminate":
					unknown++
				}
			}
			c.stop()
			if q := check(t, s.Dir); len(q) != unknown {
				t.Errorf("%d questions about %d unknown outcomes", len(q), unknown)
			}
			t.Logf("%d calls, %d gateways killed, %d unknown", *losses, killed, unknown)
		})
	}
}

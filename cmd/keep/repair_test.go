//go:build unix

package main

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/keep-run/keep/internal/llmtest"
)

const repairConfig = `[connections.svc]
connector = "http"
base_url  = "SERVICE"
[connections.svc.tools.pay]
effect   = "mutate"
path     = "/pay"
identity = ["ref"]
idempotency_header = "Idempotency-Key"
[llm.scripted]
api      = "API"
base_url = "BASE"
key      = "${secret:llm}"
timeout  = "20s"
[policy.retry]
first    = "1ms"
max      = "1ms"
attempts = 1
[repair]
provider = "scripted"
model    = "m-1"
activate = "ACTIVATE"
`

const repairScript = `export default Keep.workflow({
  name: "bills",
  topics: { mail: {} },
  consumers: {
    pay: Keep.consumer({
      subscribe: ["mail"],
      async prepare(ctx, trigger) {
        if (!trigger) return { reservations: [], data: {} };
        const bill = trigger.payload;
        const amount = Number(bill.total.value);
        return { reservations: [{ topic: "mail", ids: [trigger.messageId] }], data: { ref: bill.ref, to: bill.iban, amount } };
      },
      async mutate(ctx, prepared) {
        const { ref, to, amount } = prepared.data;
        if (amount > 500) return;
        await ctx.svc.pay({ ref, to, amount, currency: "EUR" });
      },
    }),
  },
});
`

var (
	mended   = strings.Replace(repairScript, "bill.total.value", "bill.total?.value ?? bill.amount", 1)
	harmful  = strings.Replace(mended, "if (amount > 500) return;", "", 1)
	goodBill = `{"ref": "REF%", "iban": "DE010000000%", "text": "Please pay.", "total": {"value": "TOTAL"}}`
	oddBill  = `{"ref": "REF9", "iban": "DE0100000009", "text": "Please pay.", "amount": 90}`
)

// A repairSite is a project whose script fails at an odd bill, with a service and a model.
type repairSite struct {
	t     *testing.T
	dir   string
	llm   *llmtest.Server
	mu    sync.Mutex
	calls map[string]int // of the service, by body
}

// newRepairSite makes a project with three bills that its script understands.
func newRepairSite(t *testing.T, chat bool, activate string, answer func(llmtest.Request) llmtest.Reply) *repairSite {
	t.Helper()
	return newRepairSiteOn(t, "", chat, activate, answer)
}

// newRepairSiteOn is newRepairSite with a head of keep.toml.
func newRepairSiteOn(t *testing.T, head string, chat bool, activate string, answer func(llmtest.Request) llmtest.Reply) *repairSite {
	t.Helper()
	s := &repairSite{t: t, dir: shortDir(t), calls: map[string]int{}, llm: llmtest.Start(t, answer)}
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		s.mu.Lock()
		s.calls[string(body)]++
		s.mu.Unlock()
		w.Header().Set("Content-Type", "application/json")
		io.WriteString(w, `{}`)
	}))
	t.Cleanup(service.Close)
	api := map[bool]string{false: "anthropic", true: "openai"}[chat]
	s.write("keep.toml", strings.NewReplacer("SERVICE", service.URL, "API", api, "BASE", s.llm.Base(chat), "ACTIVATE", activate).Replace(head+repairConfig))
	s.write("bills.js", repairScript)
	s.keep(0, "deploy", ".")
	for n, total := range map[string]string{"1": "10", "2": "20", "3": "900"} { // the last one is too much
		s.keep(0, "publish", "bills", "mail", "--id", "m"+n, strings.NewReplacer("%", n, "TOTAL", total).Replace(goodBill))
	}
	return s
}

func (s *repairSite) write(name, text string) {
	s.t.Helper()
	if err := os.WriteFile(filepath.Join(s.dir, name), []byte(text), 0o600); err != nil {
		s.t.Fatal(err)
	}
}

// setting changes a line of keep.toml.
func (s *repairSite) setting(old, with string) {
	s.t.Helper()
	text, err := os.ReadFile(filepath.Join(s.dir, "keep.toml"))
	if err != nil || !strings.Contains(string(text), old) {
		s.t.Fatalf("keep.toml has no %s: %v", old, err)
	}
	s.write("keep.toml", strings.Replace(string(text), old, with, 1))
}

// command returns a command in the project.
func (s *repairSite) command(args ...string) *exec.Cmd {
	cmd := exec.CommandContext(s.t.Context(), buildKeep(s.t), args...)
	cmd.Dir = s.dir
	cmd.Env = append(os.Environ(), "XDG_CACHE_HOME="+cacheHome(s.t), "KEEP_SECRET_LLM="+llmtest.Key)
	return cmd
}

// keep runs a command that must end with a status, and returns its stdout.
func (s *repairSite) keep(status int, args ...string) string {
	s.t.Helper()
	cmd := s.command(args...)
	var talk strings.Builder
	cmd.Stderr = &talk
	hung := time.AfterFunc(time.Minute, func() { _ = cmd.Process.Signal(syscall.SIGQUIT) }) // and says where it was
	defer hung.Stop()
	out, err := cmd.Output()
	got := 0
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		got = exit.ExitCode()
	} else if err != nil {
		s.t.Fatal(err)
	}
	if got != status {
		s.t.Fatalf("keep %q ended with %d, want %d\n%s%s", args, got, status, out, talk.String())
	}
	return string(out)
}

// object runs a command with --json and reads what it prints.
func (s *repairSite) object(into any, args ...string) {
	s.t.Helper()
	if err := json.Unmarshal([]byte(s.keep(0, append(args, "--json")...)), into); err != nil {
		s.t.Fatal(err)
	}
}

// version returns the current version.
func (s *repairSite) version() string {
	s.t.Helper()
	var w struct{ Version string }
	s.object(&w, "workflows", "show", "bills")
	return w.Version
}

// A repairQuestion is a question of keep inbox.
type repairQuestion struct{ ID, Kind, Question, Why string }

// questions returns the open questions.
func (s *repairSite) questions() (list []repairQuestion) {
	s.t.Helper()
	s.object(&list, "inbox")
	return list
}

// paid checks that the service got each call of the bills once.
func (s *repairSite) paid(refs ...string) {
	s.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, ref := range refs {
		n := 0
		for body, times := range s.calls {
			if strings.Contains(body, `"`+ref+`"`) {
				n += times
			}
		}
		if n != 1 {
			s.t.Errorf("the service got %s %d times, want once: %v", ref, n, s.calls)
		}
	}
	if len(s.calls) != len(refs) {
		s.t.Errorf("the service got %v, want %q", s.calls, refs)
	}
}

func proposing(source string) llmtest.Reply {
	return llmtest.Reply{Calls: []llmtest.Call{{Name: "propose", Arguments: map[string]string{"source": source, "note": "amount is another field"}}}}
}

// TestRepairRun mends a script that failed, in keep run, with models of both protocols: the run continues with version 1.1,
// the service got each call once, and the file with the mistake does not bring it back.
func TestRepairRun(t *testing.T) {
	t.Parallel()
	for _, chat := range []bool{false, true} {
		s := newRepairSite(t, chat, "safe", func(llmtest.Request) llmtest.Reply { return proposing(mended) })
		s.keep(0, "run", ".")
		s.keep(0, "publish", "bills", "mail", "--id", "m9", oddBill)
		s.keep(0, "run", ".")
		s.paid("REF1", "REF2", "REF9")
		if v, n := s.version(), len(s.llm.Requests()); v != "1.1" || n != 1 {
			t.Errorf("version %s after %d requests, want 1.1 after one", v, n)
		}
		s.keep(0, "run", ".")
		if v := s.version(); v != "1.1" {
			t.Errorf("version %s after another keep run, want 1.1", v)
		}
		s.keep(0, "deploy", ".")
		if v := s.version(); v != "2.0" {
			t.Errorf("version %s after keep deploy, want 2.0", v)
		}
	}
}

// TestRepairAsks asks a person once about a repair that is not safe, or that is to be agreed to, and does what the
// person decides.
func TestRepairAsks(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ activate, source, verdict string }{{"ask", mended, "safe"}, {"safe", harmful, "impactful"}} {
		s := newRepairSite(t, false, tt.activate, func(llmtest.Request) llmtest.Reply { return proposing(tt.source) })
		s.keep(0, "run", ".")
		s.keep(0, "publish", "bills", "mail", "--id", "m9", oddBill)
		for range 2 {
			s.keep(4, "run", ".")
			s.paid("REF1", "REF2")
			if qs := s.questions(); len(qs) != 1 || qs[0].Kind != "proposal" || !strings.Contains(qs[0].Why, "verdict: "+tt.verdict) {
				t.Fatalf("the questions are %+v, want one about a proposal that is %s", qs, tt.verdict)
			}
		}
		if v, n := s.version(), len(s.llm.Requests()); v != "1.0" || n != 1 {
			t.Errorf("version %s after %d requests, want 1.0 after one", v, n)
		}
		var list []struct{ ID, State, Verdict, Version string }
		s.object(&list, "repairs")
		if len(list) != 1 || list[0].State != "waiting" || list[0].Verdict != tt.verdict || list[0].Version != "1.1" {
			t.Fatalf("the repairs are %+v", list)
		}
		shown := s.keep(0, "repairs", "show", list[0].ID)
		if !strings.Contains(shown, "+ ") || !strings.Contains(shown, "bill.total?.value") || !strings.Contains(shown, "runs that are recorded: ") {
			t.Errorf("repairs show prints %s", shown)
		}
		s.shownRepair(list[0].ID)
		s.tells(list[0].ID, "Repair of pay in bills 1.0: script-error at bills.js:10:31, attempt 1 of 3.", "Waits for a person to accept or reject it", "It wrote version 1.1.", "esc_grant_bills_1_1")
		s.tells("bills@1.1", "Version 1.1 of bills, proposed by a repair ", "in the place of 1.0.", "Waits for a person to accept or reject it")
		if tt.activate == "ask" {
			s.keep(0, "proposals", "accept", list[0].ID)
			s.keep(1, "repairs", "reject", list[0].ID) // it is decided
			s.keep(1, "proposals", "accept", "bills@1.1")
			s.keep(0, "run", ".")
			s.paid("REF1", "REF2", "REF9")
			if v := s.version(); v != "1.1" {
				t.Errorf("version %s after it was accepted, want 1.1", v)
			}
			s.tells(list[0].ID, "It became current ", "answered the question esc_grant_bills_1_1 ", ": approve.")
			s.tells("bills@1.1", "Version 1.1 of bills, deployed ", "It is in force.")
			continue
		}
		s.keep(0, "repairs", "reject", list[0].ID, "--note", "no")
		s.keep(4, "run", ".")
		if qs := s.questions(); len(qs) != 1 || qs[0].Kind != "logic" || !strings.Contains(qs[0].Why, "rejected version 1.1: no") || !strings.Contains(qs[0].Why, "attempt 1: impactful") {
			t.Errorf("the questions are %+v, want one of the run with what was tried", qs)
		}
		if v := s.version(); v != "1.0" {
			t.Errorf("version %s after it was rejected, want 1.0", v)
		}
		s.tells(list[0].ID, "answered the question esc_grant_bills_1_1 ", ": reject (no).", "It ended: ")
		s.tells("bills@1.1", "proposed by a repair", "answered the question esc_grant_bills_1_1 ", ": reject (no).")
	}
}

// tells looks whether keep why of an id says these.
func (s *repairSite) tells(id string, want ...string) {
	s.t.Helper()
	said := s.keep(0, "why", id)
	for _, part := range want {
		if !strings.Contains(said, part) {
			s.t.Errorf("keep why %s does not say %q:\n%s", id, part, said)
		}
	}
}

// TestRepairServe has a keep serve whose model is as bad as one can be: its budget is spent, one question says what was tried,
// and nothing is sent. Meanwhile the run says what it waits for.
func TestRepairServe(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		chat     bool
		reply    llmtest.Reply
		requests int // each one that fails is tried again once
		why      string
	}{
		"garbage":            {false, llmtest.Reply{Fault: llmtest.Garbage}, 6, "attempt 3: the model did not answer"},
		"never":              {true, llmtest.Reply{Fault: llmtest.Silent}, 6, "attempt 3: the model did not answer"},
		"a gigabyte":         {true, llmtest.Reply{Fault: llmtest.Endless}, 1, "tokens are used up"},
		"a thousand at once": {false, thousandProposals(), 6, "attempt 3: the model did not answer"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			asked, seen := make(chan struct{}), make(chan struct{})
			s := newRepairSite(t, tt.chat, "safe", func(q llmtest.Request) llmtest.Reply {
				if q.N == 1 {
					close(asked)
					<-seen
				}
				return tt.reply
			})
			look := sync.OnceValue(func() string {
				defer close(seen)
				out, err := s.command("runs", "--json", "--open").Output()
				return string(out) + errorText(err)
			})
			defer look() // or the model would never answer
			if tt.reply.Fault == llmtest.Silent {
				s.setting(`timeout  = "20s"`, `timeout  = "100ms"`)
			}
			s.keep(0, "run", ".")
			s.serve()
			s.keep(0, "publish", "bills", "mail", "--id", "m9", oddBill)
			<-asked
			// Who gives up by itself may be at another attempt by now.
			if got := look(); !strings.Contains(got, "for a repair, attempt 1 of 3, after: ") && tt.reply.Fault != llmtest.Silent {
				t.Errorf("while it is repaired, the run says: %s", got)
			}
			var qs []repairQuestion
			for len(qs) == 0 { // the test ends with its time
				qs = s.questions()
			}
			if len(qs) != 1 || qs[0].Kind != "logic" || !strings.Contains(qs[0].Why, tt.why) {
				t.Errorf("the questions are %+v, want one that says %q", qs, tt.why)
			}
			for _, ref := range []string{"m10", "m11"} { // fail alike
				s.keep(0, "publish", "bills", "mail", "--id", ref, oddBill)
			}
			if n := len(s.llm.Requests()); n != tt.requests {
				t.Errorf("the model was asked %d times, want %d", n, tt.requests)
			}
			if qs := s.questions(); len(qs) != 1 {
				t.Errorf("the questions are %+v, want one", qs)
			}
			s.paid("REF1", "REF2")
		})
	}
}

func thousandProposals() (r llmtest.Reply) {
	for range 1000 {
		r.Calls = append(r.Calls, llmtest.Call{Name: "propose", Arguments: map[string]string{"source": harmful}})
	}
	return r
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// serve runs keep serve until the test ends, from when it serves.
func (s *repairSite) serve() *exec.Cmd {
	s.t.Helper()
	cmd, _ := s.daemon("Serving 1 workflow", "serve", "--listen", "off")
	return cmd
}

// daemon runs a command until the test ends, from when it says something.
func (s *repairSite) daemon(says string, args ...string) (*exec.Cmd, *listener) {
	s.t.Helper()
	said := newListener()
	cmd := s.command(args...)
	cmd.Stderr = said
	if err := cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() {
		_ = cmd.Process.Kill() // it may have ended
		_ = cmd.Wait()
	})
	said.wait(s.t, says)
	return cmd, said
}

// TestRepairShares has several runs of one workflow fail alike: they share one repair and one question, and the next
// one is asked about when that is decided.
func TestRepairShares(t *testing.T) {
	t.Parallel()
	s := newRepairSite(t, false, "safe", func(llmtest.Request) llmtest.Reply { return llmtest.Reply{Text: "no"} })
	s.write("bills.js", strings.Replace(repairScript, `subscribe: ["mail"],`, `subscribe: ["mail"], order: "none",`, 1))
	s.keep(0, "deploy", ".")
	s.keep(0, "run", ".")
	for _, n := range []string{"7", "8", "9"} {
		s.keep(0, "publish", "bills", "mail", "--id", "m"+n, strings.ReplaceAll(oddBill, "9", n))
	}
	for left := 3; left > 0; left-- {
		s.keep(4, "run", ".")
		qs := s.questions()
		if len(qs) != 1 || qs[0].Kind != "logic" || !strings.Contains(qs[0].Why, "attempt 3: the model answered without a proposal") {
			t.Fatalf("with %d runs that failed alike, the questions are %+v, want one", left, qs)
		}
		s.keep(0, "inbox", "do", qs[0].ID, "skip")
	}
	s.keep(0, "run", ".")
	if n := len(s.llm.Requests()); n != 3 {
		t.Errorf("the model was asked %d times, want 3", n)
	}
	s.paid("REF1", "REF2")
}

// shownRepair looks at the JSON of a repair that waits: in the list without what is long, and the
// same under both nouns and both ids.
func (s *repairSite) shownRepair(id string) {
	s.t.Helper()
	var listed []map[string]any
	if s.object(&listed, "proposals", "--workflow", "bills", "--status", "waiting"); len(listed) != 1 || listed[0]["origin"] != "repair" || listed[0]["source"] != nil || listed[0]["replay"] == nil {
		s.t.Errorf("proposals lists %v", listed)
	}
	want := s.keep(0, "proposals", "show", id, "--json")
	for _, args := range [][]string{{"repairs", "show", id}, {"proposals", "show", "bills@1.1"}} {
		if got := s.keep(0, append(args, "--json")...); got != want {
			s.t.Errorf("keep %q prints %s, want %s", args, got, want)
		}
	}
	var one struct {
		Base    string `json:"base_version"`
		Attempt int
		Source  string
		Diff    []string
		Replay  struct {
			Runs, Same, Changed, Missing, Added, Failed, Inconclusive int
			Table                                                     []any
		}
		Blast struct{ Runs, Inputs, Mutations []any }
	}
	if err := json.Unmarshal([]byte(want), &one); err != nil {
		s.t.Fatal(err)
	}
	r := one.Replay
	if one.Base != "1.0" || one.Attempt != 1 || one.Source == "" || len(one.Diff) == 0 || r.Runs == 0 || len(r.Table) != r.Runs ||
		r.Same+r.Changed+r.Missing+r.Added+r.Failed+r.Inconclusive != r.Runs || len(one.Blast.Runs) != r.Runs-r.Same {
		s.t.Errorf("it is %s", want)
	}
	if list := s.keep(0, "proposals", "--json", "--origin", "write"); strings.TrimSpace(list) != "[]" {
		s.t.Errorf("origin write: %s", list)
	}
	s.keep(2, "proposals", "--origin", "x")
	s.keep(2, "proposals", "--status", "x")
	s.keep(3, "proposals", "show", "none")
}

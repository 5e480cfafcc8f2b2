//go:build unix

package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/keep-run/keep/internal/llmtest"
	"github.com/keep-run/keep/internal/pgtest"
)

// A shownAttempt is one of keep repairs.
type shownAttempt struct {
	Why    string
	Tokens int
}

// A listedRepair is one of keep repairs.
type listedRepair struct {
	ID, State, Why string
	Version        *string
	Attempts       []shownAttempt
}

// repairs returns what keep repairs lists.
func (s *repairSite) repairs() (list []listedRepair) {
	s.t.Helper()
	s.object(&list, "repairs")
	return list
}

// until waits until a fact holds; the test ends with its time.
func (s *repairSite) until(fact func() bool) {
	s.t.Helper()
	for !fact() {
		if s.t.Context().Err() != nil {
			s.t.Fatal("it never held")
		}
	}
}

// goes runs a command beside the test, as a person does while something else happens.
func (s *repairSite) goes(args ...string) {
	if out, err := s.command(args...).CombinedOutput(); err != nil {
		s.t.Errorf("keep %q: %v\n%s", args, err, out)
	}
}

// TestRepairAndDeploy has a person deploy while a script is being repaired. If a model is asked, it is not asked again,
// and nothing of its answer becomes current; a question about a version that waits is over, and cannot be answered. The run
// continues with what was deployed, or is asked about if only the version before can execute it.
func TestRepairAndDeploy(t *testing.T) {
	t.Parallel()
	other := strings.NewReplacer("    pay: Keep", "    settle: Keep").Replace(mended)
	for name, tt := range map[string]struct {
		activate, deploy, why string
		while                 bool // the model is asked
		asked                 bool // about the run, in the end
	}{
		"while it is asked":    {"safe", mended, "version 2.0 was deployed meanwhile", true, false},
		"while a person is":    {"ask", mended, "another version came before a person decided about 1.1", false, false},
		"without the handler":  {"safe", other, "version 2.0 was deployed meanwhile", true, true},
		"and without, waiting": {"ask", other, "another version came before a person decided about 1.1", false, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			asked, deployed := make(chan struct{}), make(chan struct{})
			answer := sync.OnceFunc(func() { close(deployed) })
			defer answer() // or the model would never answer
			s := newRepairSite(t, false, tt.activate, func(q llmtest.Request) llmtest.Reply {
				if tt.while && q.N == 1 {
					close(asked)
					<-deployed
				}
				return proposing(mended)
			})
			deploy := func() {
				s.write("bills.js", tt.deploy)
				s.goes("deploy", ".")
			}
			s.keep(0, "run", ".")
			s.serve()
			s.keep(0, "publish", "bills", "mail", "--id", "m9", oddBill)
			if tt.while {
				<-asked
				deploy()
				answer()
			}
			s.until(func() bool { list := s.repairs(); return len(list) == 1 && list[0].State != "judging" })
			if !tt.while {
				qs := s.questions()
				if len(qs) != 1 || qs[0].Kind != "proposal" {
					t.Fatalf("the questions are %+v, want one about a proposal", qs)
				}
				deploy()
				s.until(func() bool { return s.repairs()[0].State == "superseded" })
				s.keep(1, "repairs", "accept", s.repairs()[0].ID)
				s.keep(1, "inbox", "do", qs[0].ID, "approve")
			}
			if list := s.repairs(); list[0].State != "superseded" || list[0].Why != tt.why {
				t.Errorf("the repairs are %+v, want one that says %q", list, tt.why)
			}
			if tt.asked {
				s.until(func() bool { return len(s.questions()) > 0 })
				if qs := s.questions(); len(qs) != 1 || qs[0].Kind != "logic" {
					t.Errorf("the questions are %+v, want one about the run", qs)
				}
				s.paid("REF1", "REF2")
			} else {
				s.until(func() bool { s.mu.Lock(); defer s.mu.Unlock(); return len(s.calls) == 3 })
				s.paid("REF1", "REF2", "REF9")
				if qs := s.questions(); len(qs) != 0 {
					t.Errorf("the questions are %+v, want none", qs)
				}
			}
			if v, n := s.version(), len(s.llm.Requests()); v != "2.0" || n != 1 {
				t.Errorf("version %s after %d requests, want 2.0 after one", v, n)
			}
		})
	}
}

// TestRepairAfterRefusal repairs a version after which another one was proposed and refused: that one never ran, and the
// repair is 1.1. What is deployed later has a number of its own.
func TestRepairAfterRefusal(t *testing.T) {
	t.Parallel()
	s := newRepairSite(t, false, "safe", func(llmtest.Request) llmtest.Reply { return proposing(mended) })
	s.keep(0, "run", ".")
	if err := os.Mkdir(filepath.Join(s.dir, ".secrets"), 0o700); err != nil {
		t.Fatal(err)
	}
	s.write(".secrets/llm", llmtest.Key)
	if text, refused := agentOn(t, s.dir).say("propose", map[string]any{"source": strings.Replace(repairScript, "amount > 500", "amount > 400", 1)}); refused {
		t.Fatal(text)
	}
	qs := s.questions()
	if len(qs) != 1 || qs[0].Kind != "proposal" || !strings.HasSuffix(qs[0].ID, "_2_0") {
		t.Fatalf("the questions are %+v, want one about version 2.0", qs)
	}
	s.keep(0, "inbox", "do", qs[0].ID, "reject")
	s.keep(0, "publish", "bills", "mail", "--id", "m9", oddBill)
	s.keep(0, "run", ".")
	s.paid("REF1", "REF2", "REF9")
	var list []struct{ Version, State string }
	s.object(&list, "workflows", "versions", "bills")
	if text, err := json.Marshal(list); err != nil || string(text) != `[{"Version":"2.0","State":"rejected"},{"Version":"1.1","State":"current"},{"Version":"1.0","State":"replaced"}]` {
		t.Errorf("the versions are %s, %v; want 1.1 as the repair of 1.0, and 2.0 rejected", text, err)
	}
	s.keep(0, "deploy", ".")
	if v := s.version(); v != "3.0" {
		t.Errorf("version %s after keep deploy, want 3.0", v)
	}
}

// TestRepairOfTwoHosts has two hosts on one database that both may repair: there is one repair and one question. If
// the host that repairs is killed the other one continues, and the attempt is used up once.
func TestRepairOfTwoHosts(t *testing.T) {
	t.Parallel()
	for _, killed := range []bool{false, true} {
		url := pgtest.URL(t)
		var first atomic.Pointer[exec.Cmd]
		s := newRepairSiteOn(t, "db = \""+url+"\"\n[policy.lease]\nttl = \"2s\"\n", false, map[bool]string{false: "ask", true: "safe"}[killed], func(q llmtest.Request) llmtest.Reply {
			if killed && q.N == 1 {
				if err := first.Load().Process.Signal(syscall.SIGKILL); err != nil {
					t.Error(err)
				}
			}
			return proposing(mended)
		})
		s.keep(0, "run", ".")
		first.Store(s.serve()) // which has the lease of the only workflow
		second := s.serve()
		s.keep(0, "publish", "bills", "mail", "--id", "m9", oddBill)
		if killed {
			s.until(func() bool { s.mu.Lock(); defer s.mu.Unlock(); return len(s.calls) == 3 })
			s.paid("REF1", "REF2", "REF9")
			list := s.repairs()
			if len(list) != 1 || list[0].State != "active" || len(list[0].Attempts) != 2 || !strings.Contains(list[0].Attempts[0].Why, "the host ended") || list[0].Attempts[0].Tokens != 0 || list[0].Attempts[1].Tokens == 0 {
				t.Errorf("the repairs are %+v, want one whose first attempt ended with its host", list)
			}
			if v, n, qs := s.version(), len(s.llm.Requests()), s.questions(); v != "1.1" || n != 2 || len(qs) != 0 {
				t.Errorf("version %s after %d requests, questions %+v; want 1.1 after two, and none", v, n, qs)
			}
			continue
		}
		one := func() {
			t.Helper()
			qs, list := s.questions(), s.repairs()
			if len(qs) != 1 || qs[0].Kind != "proposal" || len(list) != 1 || len(list[0].Attempts) != 1 || len(s.llm.Requests()) != 1 {
				t.Errorf("the questions are %+v, the repairs %+v, after %d requests; want one of each", qs, list, len(s.llm.Requests()))
			}
		}
		s.until(func() bool { return len(s.questions()) > 0 })
		one()
		for _, host := range []*exec.Cmd{first.Load(), second} { // the one that has the lease, and then the other
			if err := host.Process.Signal(syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			_ = host.Wait() // it was killed
			s.serve()
			one()
		}
		s.keep(0, "repairs", "accept", s.repairs()[0].ID)
		s.until(func() bool { s.mu.Lock(); defer s.mu.Unlock(); return len(s.calls) == 3 })
		s.paid("REF1", "REF2", "REF9")
		if v := s.version(); v != "1.1" {
			t.Errorf("version %s after it was accepted, want 1.1", v)
		}
	}
}

// TestRepairReload switches repairs on, to another way, and off, while keep serve runs.
func TestRepairReload(t *testing.T) {
	t.Parallel()
	s := newRepairSite(t, false, "safe", func(llmtest.Request) llmtest.Reply { return proposing(mended) })
	config, err := os.ReadFile(filepath.Join(s.dir, "keep.toml"))
	if err != nil {
		t.Fatal(err)
	}
	with := string(config)
	without, _, _ := strings.Cut(with, "[repair]")
	s.write("keep.toml", without)
	s.keep(0, "run", ".")
	_, said := s.daemon("Serving 1 workflow", "serve", "--listen", "off")
	take := func(text string) {
		t.Helper()
		s.write("keep.toml.new", text)
		if err := os.Rename(filepath.Join(s.dir, "keep.toml.new"), filepath.Join(s.dir, "keep.toml")); err != nil {
			t.Fatal(err)
		}
		said.wait(t, "configuration taken")
	}
	fails := func(id, payload, kind string, requests int) string {
		t.Helper()
		s.keep(0, "publish", "bills", "mail", "--id", id, payload)
		s.until(func() bool { return len(s.questions()) > 0 })
		qs := s.questions()
		if len(qs) != 1 || qs[0].Kind != kind || len(s.llm.Requests()) != requests {
			t.Fatalf("the questions are %+v after %d requests, want one of kind %s after %d", qs, len(s.llm.Requests()), kind, requests)
		}
		return qs[0].ID
	}
	ask := strings.Replace(with, `activate = "safe"`, `activate = "ask"`, 1)
	question := fails("m7", strings.ReplaceAll(oddBill, "9", "7"), "logic", 0)
	take(ask)
	s.keep(0, "inbox", "do", question, "skip")
	s.keep(0, "inbox", "do", fails("m8", strings.ReplaceAll(oddBill, "9", "8"), "proposal", 1), "approve")
	s.until(func() bool { s.mu.Lock(); defer s.mu.Unlock(); return len(s.calls) == 3 })
	s.paid("REF1", "REF2", "REF8")
	take(without)
	const worse = `{"ref": "REF7", "iban": "x", "total": {"value": {"toString": 1}}}` // fails with version 1.1, too
	s.keep(0, "inbox", "do", fails("m9", worse, "logic", 1), "skip")
	take(with)
	s.keep(0, "publish", "bills", "mail", "--id", "m10", worse)
	s.until(func() bool { return len(s.questions()) > 0 })
	if qs := s.questions(); len(qs) != 1 || qs[0].Kind != "logic" || !strings.Contains(qs[0].Why, "attempt 3: refused") || len(s.llm.Requests()) != 4 {
		t.Errorf("the questions are %+v after %d requests, want one with three attempts", qs, len(s.llm.Requests()))
	}
	if v := s.version(); v != "1.1" {
		t.Errorf("version %s, want 1.1", v)
	}
}

// TestRepairDev repairs a script under keep dev: the version continues when another file is saved, and when keep.toml
// changes, and with it the host. It ends when somebody edits the file, also to a text that it had before.
func TestRepairDev(t *testing.T) {
	t.Parallel()
	s := newRepairSite(t, false, "safe", func(llmtest.Request) llmtest.Reply { return proposing(mended) })
	other := strings.NewReplacer(`"bills"`, `"other"`).Replace(repairScript)
	s.write("other.js", other)
	_, said := s.daemon("running other (", "dev", ".", "--listen", "127.0.0.1:0")
	remains := func() {
		t.Helper()
		if v, n := s.version(), len(s.llm.Requests()); v != "1.1" || n != 1 {
			t.Errorf("version %s after %d requests, want 1.1 after one", v, n)
		}
	}
	saveOther := func(amount, version string) { // which is looked at after bills.js
		t.Helper()
		s.write("other.js", strings.Replace(other, "amount > 500", "amount > "+amount, 1))
		said.wait(t, "deployed other "+version+" (other.js)")
		remains()
	}
	s.keep(0, "publish", "bills", "mail", "--id", "m9", oddBill)
	s.until(func() bool { s.mu.Lock(); defer s.mu.Unlock(); return len(s.calls) == 3 })
	s.paid("REF1", "REF2", "REF9")
	saveOther("400", "2.0")
	s.setting(`max      = "1ms"`, `max      = "2ms"`)
	said.wait(t, "a file has the text of a version that was repaired")
	remains()
	said.wait(t, "running other (")
	saveOther("300", "3.0")
	s.write("bills.js", strings.Replace(mended, "currency:", "note: 1, currency:", 1))
	said.wait(t, "deployed bills 2.0 (bills.js)")
	s.keep(0, "publish", "bills", "mail", "--id", "m10", strings.ReplaceAll(oddBill, "9", "7"))
	s.until(func() bool { s.mu.Lock(); defer s.mu.Unlock(); return len(s.calls) == 4 })
	s.paid("REF1", "REF2", "REF9", "REF7")
	s.write("bills.js", repairScript)
	said.wait(t, "deployed bills 3.0 (bills.js)")
}

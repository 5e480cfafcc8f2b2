//go:build unix

package gateway_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector"
	"github.com/keep-run/keep/connector/mcp"
	"github.com/keep-run/keep/engine"
	"github.com/keep-run/keep/gateway"
)

// A server is renamed, once and again, while the answer of a call of it is with nobody, or while nobody knows what became of it: the
// call is the same one under the new name. Law: once.
func TestRenamedServer(t *testing.T) {
	for name, killAt := range map[string]engine.Point{"not delivered": engine.AfterCommit, "in doubt": engine.Answered} {
		for _, was := range []connector.Names{{"notes"}, {"notes", "older"}, {"older", "notes"}} {
			t.Run(name+"/"+strings.Join(was, " "), func(t *testing.T) {
				t.Parallel()
				s := setup{Dir: t.TempDir(), Agent: "a", Rules: paired()}
				dying := s
				dying.KillAt = killAt
				if r, ok := start(t, dying).create("x"); ok {
					t.Fatalf("it was to die: %s", r.raw)
				}
				s.Rules = map[keep.ToolName]gateway.Rule{"pad.create": paired()["notes.create"]}
				d := open(t, s, func(c *gateway.Config) {
					c.Servers[0].Name, c.Was = "pad", map[string]connector.Names{"pad": was}
				})
				call := func() reply {
					t.Helper()
					return must(d.ask(7, "tools/call", strings.Replace(createParams("x"), "notes__", "pad__", 1)))
				}
				r := call()
				for r.state() == "needs_reconcile" {
					r = call()
				}
				d.want("under the new name", r, "applied", 1)
				d.want("again", call(), "applied", 1)
				d.ping()
				d.want("after it was delivered", call(), "applied", 2)
				d.want("again", call(), "applied", 2)
			})
		}
	}
}

// The identity of a tool changes while nobody knows what became of a call of it: an equal call is the same one, and one with an intent
// of its own is another. Law: bound-to-its-world.
func TestIdentityChangesInDoubt(t *testing.T) {
	for action, n := range map[keep.Action]int{keep.Happened: 1, keep.DidNotHappen: 2} {
		t.Run(string(action), func(t *testing.T) {
			t.Parallel()
			s := setup{Dir: t.TempDir(), Agent: "a", Rules: paired()}
			dying := s
			dying.KillAt = engine.Answered
			if r, ok := start(t, dying).create("x"); ok {
				t.Fatalf("it was to die: %s", r.raw)
			}
			rule := paired()["notes.create"]
			rule.Identity = []string{"title"}
			s.Rules = map[keep.ToolName]gateway.Rule{"notes.create": rule}
			d := open(t, s, nil)
			r := d.make("x")
			for r.state() == "needs_reconcile" {
				r = d.make("x")
			}
			d.want("the same call", r, "indeterminate", 1)
			d.want("again", d.make("x"), "indeterminate", 1)
			d.decide(keep.AskUnknownOutcome, action)
			if action == keep.DidNotHappen { // it is not sent as it was
				d.want("a person is asked", d.make("x"), "failed", 1, "waits for a person")
				d.decide(keep.AskApproval, keep.Approve)
			}
			d.want("a person knows", d.make("x"), "applied", n)
			d.want("again", d.make("x"), "applied", n)
			d.want("one that is meant", must(d.ask(8, "tools/call", intended("x"))), "applied", n+1)
			d.ping()
			d.want("after it was delivered", d.make("x"), "applied", n+2)
		})
	}
}

// intended returns the params of createParams with an intent.
func intended(title string) string {
	return strings.TrimSuffix(createParams(title), "}") + `,"_meta":{"keep/intent":"two"}}`
}

// A server of another name that does not say was, and an equal call of one that is gone of which nobody knows what became: it may be the
// same server, so nothing is sent until somebody says. Law: bound-to-its-world.
func TestRenamedServerSaysNothing(t *testing.T) {
	t.Parallel()
	s := setup{Dir: t.TempDir(), Agent: "a"}
	dying := s
	dying.KillAt = engine.Answered
	if r, ok := start(t, dying).create("x"); ok {
		t.Fatalf("it was to die: %s", r.raw)
	}
	d := open(t, s, func(c *gateway.Config) { c.Servers[0].Name = "pad" })
	pad := func(params string) reply {
		t.Helper()
		return must(d.ask(7, "tools/call", strings.Replace(params, "notes__", "pad__", 1)))
	}
	if why := d.question(keep.AskUnknownOutcome).Why; !strings.Contains(why, "the gateway that recorded the call ended") {
		t.Errorf("the question says that %s", why)
	}
	d.want("an equal call", pad(createParams("x")), "", 1, "notes.create", `was = \"notes\"`, "Nothing was sent")
	d.want("another one", pad(createParams("y")), "applied", 1)
	d.want("one that is meant", pad(intended("x")), "applied", 2)
	d.decide(keep.AskUnknownOutcome, keep.Happened)
	d.want("once a person said what became of the first", pad(createParams("x")), "applied", 3)
}

// A step is one call of a tool at a gateway of a configuration of its own, which ends after it.
type step struct {
	server   string // its name
	was      connector.Names
	identity []string
	answer   string // of the server, if it is called: 429, lost, or empty for a result
	calls    int    // how many there are then
	state    string // as the agent is told
	ping     bool   // the agent shows that it read the answer
	person   keep.Action
}

// steps makes the same call at each step.
func steps(t *testing.T, all ...step) {
	t.Helper()
	t.Parallel()
	var answer atomic.Value // of one step at a time
	url, calls := serveHostile(t, func(w http.ResponseWriter, method string, _ json.RawMessage) bool {
		switch {
		case method != "tools/call" || answer.Load() == "":
			return false
		case answer.Load() == "429":
			w.WriteHeader(http.StatusTooManyRequests)
			return true
		}
		panic(http.ErrAbortHandler)
	})
	s := setup{Dir: t.TempDir(), Agent: "a", URL: url}
	for i, one := range all {
		answer.Store(one.answer)
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			s.Rules = map[keep.ToolName]gateway.Rule{keep.ToolName(one.server + ".create"): {Pairing: mcp.Pairing{Tool: "create", Identity: one.identity}}}
			d := open(t, s, func(c *gateway.Config) {
				c.Servers[0].Name, c.Was = one.server, map[string]connector.Names{one.server: one.was}
			})
			if one.person != "" {
				d.decide(keep.AskUnknownOutcome, one.person)
			}
			r := must(d.ask(7, "tools/call", strings.Replace(createParams("x"), "notes__", one.server+"__", 1)))
			if r.state() != one.state || calls.Load() != int64(one.calls) {
				t.Errorf("%d calls, want %d, and state %s, want %s: %s", calls.Load(), one.calls, r.state(), one.state, r.raw)
			}
			if one.ping {
				d.ping()
			}
		})
	}
}

// A call that is known not to have happened is made again under the new name of its server. Law: nothing-lost.
func TestRenamedServerAfterItFailed(t *testing.T) {
	was := connector.Names{"notes"}
	t.Run("refused", func(t *testing.T) {
		steps(t, step{server: "notes", answer: "429", calls: 1, state: "failed"},
			step{server: "pad", was: was, calls: 2, state: "applied"}, step{server: "pad", was: was, calls: 2, state: "applied"})
	})
	t.Run("as a person says", func(t *testing.T) {
		steps(t, step{server: "notes", answer: "lost", calls: 1, state: "indeterminate"},
			step{server: "pad", was: was, person: keep.DidNotHappen, calls: 2, state: "applied"}, step{server: "pad", was: was, calls: 2, state: "applied"})
	})
	t.Run("in doubt again, with another identity", func(t *testing.T) {
		steps(t, step{server: "notes", answer: "429", calls: 1, state: "failed"}, step{server: "pad", was: was, answer: "lost", calls: 2, state: "indeterminate"},
			step{server: "pad", was: was, identity: []string{"title"}, calls: 2, state: "indeterminate"})
	})
}

// A call that has failed under the name and the identity of today is not made again beside an equal one that is in doubt under others.
// Law: once.
func TestFailedCallBesideADoubt(t *testing.T) {
	t.Run("identity", func(t *testing.T) {
		steps(t, step{server: "notes", answer: "429", calls: 1, state: "failed"}, step{server: "notes", identity: []string{"title"}, answer: "lost", calls: 2, state: "indeterminate"},
			step{server: "notes", calls: 2, state: "indeterminate"}, step{server: "notes", calls: 2, state: "indeterminate"})
	})
	t.Run("name", func(t *testing.T) {
		steps(t, step{server: "notes", answer: "429", calls: 1, state: "failed"}, step{server: "pad", answer: "lost", calls: 2, state: "indeterminate"},
			step{server: "notes", calls: 2}, step{server: "pad", calls: 2, state: "indeterminate"})
	})
}

// A call in doubt that is known by a former name of its server, as the one before it, is the same call after a change of the identity.
// Law: once.
func TestIdentityChangesInDoubtAfterARename(t *testing.T) {
	was := connector.Names{"notes"}
	steps(t, step{server: "notes", calls: 1, state: "applied", ping: true}, step{server: "pad", was: was, answer: "lost", calls: 2, state: "indeterminate"},
		step{server: "pad", was: was, identity: []string{"title"}, calls: 2, state: "indeterminate"}, step{server: "pad", was: was, calls: 2, state: "indeterminate"})
}

// A call whose answer is with nobody, and which a gateway with an older keep.toml does not know: the one that begins there does not
// happen, and where both names are known it is the first that counts. Law: once.
func TestOlderConfigBeginsAnother(t *testing.T) {
	for _, was := range []connector.Names{{"notes", "memo"}, {"memo", "notes"}} {
		t.Run(strings.Join(was, " "), func(t *testing.T) {
			steps(t, step{server: "memo", calls: 1, state: "applied"}, step{server: "notes", answer: "429", calls: 2, state: "failed"},
				step{server: "pad", was: was, calls: 2, state: "applied", ping: true},
				step{server: "pad", was: was, calls: 3, state: "applied", ping: true}, // the one that failed, of another meaning now
				step{server: "pad", was: was, calls: 4, state: "applied"}, step{server: "pad", was: was, calls: 4, state: "applied"})
		})
	}
}

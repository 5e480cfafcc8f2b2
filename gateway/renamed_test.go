//go:build unix

package gateway_test

import (
	"strings"
	"testing"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector"
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

//go:build unix

package gateway_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector/mcp"
	"github.com/keep-run/keep/engine"
	"github.com/keep-run/keep/gateway"
)

const listChanged = `{"name":"list","description":"lists what is unread","inputSchema":{"type":"object"}}`

// keyed is a rule for a server that honours a key.
func keyed() map[keep.ToolName]gateway.Rule {
	return map[keep.ToolName]gateway.Rule{"notes.create": {Pairing: mcp.Pairing{
		Tool: "create", TokenParam: "key", Deduplicates: true, Timeout: 30 * time.Second,
	}}}
}

// asks waits until there is one open question, of that kind, while the call is made again and again. Nothing is sent meanwhile.
func (d *desk) asks(kind keep.EscalationKind) {
	d.t.Helper()
	for deadline := time.Now().Add(20 * time.Second); ; {
		if r := d.make("x"); r.state() == "applied" {
			d.t.Fatalf("%s", r.raw)
		}
		ctx, cancel := testContext()
		list, _, err := d.db.Escalations(ctx, keep.EscalationFilter{Open: true}, keep.Page{})
		cancel()
		if err == nil && len(list) == 1 && list[0].Kind == kind {
			return
		}
		if time.Now().After(deadline) {
			d.t.Fatalf("%v: %d questions, want one of kind %s: %+v", err, len(list), kind, list)
		}
	}
}

// known makes the call again until its outcome is known.
func (d *desk) known() reply {
	d.t.Helper()
	for deadline := time.Now().Add(20 * time.Second); ; {
		if r := d.make("x"); r.state() != "needs_reconcile" || time.Now().After(deadline) {
			return r
		}
	}
}

// A server comes back with another tool after it lost an answer, with its gateway or alone: what became of the call is not asked by a
// tool that nobody agreed to, neither by the call again nor by a lookup, until a person did. Laws: once, doubt-is-not-failure.
func TestDoubtWaitsForItsTool(t *testing.T) {
	for _, c := range []struct {
		name  string
		rules map[keep.ToolName]gateway.Rule
		lists []string // of the server that comes back
		after int      // effects once it was accepted: the server of the tests honours no key
	}{
		{"sent again", keyed(), []string{createChanged, listAsWas}, 2},
		{"looked for", paired(), []string{createAsWas, listChanged}, 1},
	} {
		for _, how := range []string{"the server", "both", "rejected"} {
			t.Run(c.name+"/"+how, func(t *testing.T) {
				t.Parallel()
				s := setup{Dir: t.TempDir(), Agent: "a", Rules: c.rules}
				change := func() {
					lists(t, s.Dir, c.lists...)
					if err := os.WriteFile(filepath.Join(s.Dir, "blind"), nil, 0o600); err != nil {
						t.Fatal(err)
					}
				}
				if how == "both" {
					dying := s
					dying.KillAt = engine.Answered
					g := start(t, dying)
					g.names()
					if r, ok := g.create("x"); ok {
						t.Fatalf("it was to die: %s", r.raw)
					}
					change()
				}
				d := open(t, s, nil)
				if how != "both" {
					d.names()
					change()
					fail(t, s.Dir, "die-after")
				}
				d.asks(keep.AskToolChanged)
				for range 3 { // a lookup that is not made uses up nothing, and shows nothing
					d.want("while its tool is stopped", d.make("x"), "needs_reconcile", 1)
				}
				if how == "rejected" {
					d.decide(keep.AskToolChanged, keep.Reject)
					d.asks(keep.AskPermission)
					d.want("after the tool was rejected", d.make("x"), "indeterminate", 1)
					return
				}
				if err := os.Remove(filepath.Join(s.Dir, "blind")); err != nil {
					t.Fatal(err)
				}
				d.decide(keep.AskToolChanged, keep.Approve)
				d.want("after the tool was accepted", d.known(), "applied", c.after)
			})
		}
	}
}

// A person accepts a tool whose server takes the key in another param now: the call is not made again without it, and they are asked.
func TestDoubtWhoseToolLostItsKey(t *testing.T) {
	t.Parallel()
	s := setup{Dir: t.TempDir(), Agent: "a", Rules: keyed()}
	lists(t, s.Dir, `{"name":"create","inputSchema":{"type":"object","properties":{"title":{},"body":{},"key":{}}}}`)
	d := open(t, s, nil)
	d.names()
	lists(t, s.Dir, `{"name":"create","inputSchema":{"type":"object","properties":{"title":{},"body":{},"idempotency_key":{}}}}`)
	fail(t, s.Dir, "die-after")
	d.asks(keep.AskToolChanged)
	d.decide(keep.AskToolChanged, keep.Approve)
	d.asks(keep.AskPermission)
	d.want("after the tool was accepted", d.make("x"), "indeterminate", 1)
}

// A server becomes another program without a word, while its connection stays: what it shows of a call in doubt is not believed.
func TestDoubtWhoseToolChangesWithoutAWord(t *testing.T) {
	t.Parallel()
	s := setup{Dir: t.TempDir(), Agent: "a", Rules: paired()}
	d := open(t, s, nil)
	fail(t, s.Dir, "error-after")
	d.names()
	if err := os.WriteFile(filepath.Join(s.Dir, "blind"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	lists(t, s.Dir, createAsWas, listChanged)
	d.asks(keep.AskToolChanged)
	d.want("while its tool is stopped", d.make("x"), "needs_reconcile", 1)
}

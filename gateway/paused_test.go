//go:build unix

package gateway_test

import (
	"context"
	"testing"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector/mcp"
	"github.com/keep-run/keep/engine"
	"github.com/keep-run/keep/gateway"
	"github.com/keep-run/keep/operator"
)

// A person pauses the calls of agents, as keep db restored and a failover do: none is sent until he resumes them, what is known is
// answered, and what he agreed to holds. Law: once.
func TestPaused(t *testing.T) {
	approved := map[keep.ToolName]gateway.Rule{"notes.create": {Pairing: mcp.Pairing{Tool: "create", Approve: "params.title == 'x'"}}}
	pause := func(t *testing.T, op *operator.Operator) {
		if err := op.Pause(context.WithoutCancel(t.Context()), keep.DirectWorkflow, keep.Decision{By: "ann", Note: "after a restore"}); err != nil {
			t.Error(err)
		}
	}
	resume := func(d *desk) {
		if err := d.op.Resume(d.t.Context(), keep.DirectWorkflow, keep.Decision{By: "ann"}); err != nil {
			d.t.Error(err)
		}
	}
	const told = "a person paused the calls of agents"
	t.Run("before a call", func(t *testing.T) {
		t.Parallel()
		d := open(t, setup{Dir: t.TempDir(), Agent: "a"}, nil)
		y := must(d.ask(8, "tools/call", createParams("y")))
		pause(t, d.op)
		if again := must(d.ask(9, "tools/call", createParams("y"))); y.state() != "applied" || again.Result.Meta["keep/ref"] != y.Result.Meta["keep/ref"] {
			t.Errorf("what is known: %s", again.raw)
		}
		d.want("paused", d.make("x"), "failed", 0, told, "Nothing was sent", `"isError":true`)
		resume(d)
		d.want("resumed", d.make("x"), "applied", 1)
	})
	t.Run("just before it is recorded", func(t *testing.T) {
		t.Parallel()
		var d *desk
		before := func() {}
		d = open(t, setup{Dir: t.TempDir(), Agent: "a"}, func(cfg *gateway.Config) {
			cfg.Trace = func(_ keep.WorkflowName, p engine.Point) {
				if p == engine.BeforeCall {
					before()
				}
			}
		})
		before = func() { pause(t, d.op) }
		d.want("paused", d.make("x"), "failed", 0, told, "Nothing was sent")
		before = func() {}
		resume(d)
		d.want("resumed", d.make("x"), "applied", 1)
	})
	t.Run("while it is recorded", func(t *testing.T) {
		t.Parallel()
		d, store := openFaulty(t, setup{Dir: t.TempDir(), Agent: "a"}, false)
		if y := must(d.ask(8, "tools/call", createParams("y"))); y.state() != "applied" { // so that the next commit is that of a record
			t.Fatal(y.raw)
		}
		meanwhile := func() { pause(t, d.op) }
		store.holds.Store(&meanwhile)
		d.want("paused", d.make("x"), "failed", 0, told, "Nothing was sent")
		resume(d)
		d.want("resumed", d.make("x"), "applied", 1)
	})
	t.Run("after it was approved", func(t *testing.T) {
		t.Parallel()
		d := open(t, setup{Dir: t.TempDir(), Agent: "a", Rules: approved}, nil)
		d.want("first", d.make("x"), "waiting", 0)
		d.decide(keep.AskApproval, keep.Approve)
		pause(t, d.op)
		d.want("paused", d.make("x"), "failed", 0, told)
		resume(d)
		d.want("resumed", d.make("x"), "applied", 1)
	})
}

// A call that a person approved, and that is then refused for another reason, such as that calls of its tool were stopped meanwhile, is no
// call that a person rejected: it is made when it may be. Laws: nothing-lost, explained.
func TestApprovedAndRefused(t *testing.T) {
	t.Parallel()
	rules := map[keep.ToolName]gateway.Rule{"notes.create": {Pairing: mcp.Pairing{Tool: "create", Approve: "params.title == 'x'"}}}
	d := open(t, setup{Dir: t.TempDir(), Agent: "a", Rules: rules}, func(cfg *gateway.Config) {
		cfg.Policy = testPolicy()
		cfg.Policy.Breaker = keep.Breaker{Failures: 1, Within: time.Hour}
	})
	decide := func(kind keep.EscalationKind, action keep.Action) {
		t.Helper()
		list, _, err := d.db.Escalations(t.Context(), keep.EscalationFilter{Open: true}, keep.Page{})
		for _, q := range list {
			if q.Kind == kind {
				if err := d.op.Decide(t.Context(), q.ID, keep.Decision{Action: action, By: "ann", At: time.Now()}); err != nil {
					t.Fatal(err)
				}
				return
			}
		}
		t.Fatalf("no question of kind %s among %+v, %v", kind, list, err)
	}
	d.want("first", d.make("x"), "waiting", 0)
	fail(t, d.dir, "die-before")
	if r := must(d.ask(8, "tools/call", createParams("y"))); r.state() != "indeterminate" {
		t.Fatal(r.raw)
	}
	decide(keep.AskApproval, keep.Approve)
	for range 2 {
		d.want("while its tool is stopped", d.make("x"), "failed", 0, "Nothing was sent", "stopped")
	}
	decide(keep.AskBreaker, keep.Retry)
	d.want("when it is not any more", d.make("x"), "applied", 1)
}

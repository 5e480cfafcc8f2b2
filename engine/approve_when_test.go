package engine_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector"
	"github.com/keep-run/keep/engine"
)

// A condition says before which calls a person is asked, whether the tool has it or its connection, and
// the strictest one counts. What it cannot decide asks.
func TestApprovalByCondition(t *testing.T) {
	long := make([]any, 50_000)
	for i := range long {
		long[i] = "x"
	}
	for _, c := range []struct {
		name, tool, conn string
		amount           any // nil: there is none
		why              string
	}{
		{"not met", "params.amount > 500", "", 500, ""},
		{"met", "params.amount > 500", "", 501, `its connection asks for a person's approval if "params.amount > 500"`},
		{"missing", "params.amount > 500", "", nil, "whether that holds is not known: there is no param amount"},
		{"of another type", "params.amount > 500", "", "much", "whether that holds is not known: a param has another type"},
		{"too costly", "params.amount.all(a, a == 'x')", "", long, "whether that holds is not known: it costs too much"},
		{"always", "always", "", 1, "its connection asks for a person's approval before each call"},
		{"of the connection", "", "params.amount > 500", 501, `its connection asks for a person's approval if "params.amount > 500"`},
		{"of the connection, not met", "", "params.amount > 500", 1, ""},
		{"always, of the connection", "", "always", nil, "before each call"},
		{"the strictest is that of the tool", "params.amount > 5", "params.amount > 500", 50, `if "params.amount > 5"`},
		{"the strictest is that of the connection", "params.amount > 500", "params.amount > 5", 50, `if "params.amount > 5"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				w.service.approve = c.tool
				w.connect = func() []connector.Connection {
					conn := w.service.connection()
					if c.conn != "" {
						conn.Approve = map[string]string{"create": c.conn}
					}
					return []connector.Connection{conn}
				}
				amounts := map[string]any{}
				if c.amount != nil {
					amounts["a"] = c.amount
				}
				w.pays(amounts)
				w.deploy()
				w.publish("in", "a")
				w.run()
				if c.why == "" {
					if w.service.total() != 1 || len(w.questions()) != 0 {
						t.Fatalf("%d effects, questions %v; want one, and none", w.service.total(), w.questions())
					}
					return
				}
				qs := w.questions()
				if w.service.calls != 0 || w.records() != 0 || len(qs) != 1 || qs[0].Kind != keep.AskApproval || !strings.Contains(qs[0].Why, c.why) {
					t.Fatalf("%d calls, %d records, questions %+v; want none, and one that says %s", w.service.calls, w.records(), qs, c.why)
				}
				if err := w.decide(keep.Approve); err != nil {
					t.Fatal(err)
				}
				w.run()
				if w.service.total() != 1 {
					t.Errorf("%d effects after the approval", w.service.total())
				}
			})
		})
	}
}

// A condition that cannot be used is refused before anything runs.
func TestApprovalThatCannotBeUsed(t *testing.T) {
	for text, want := range map[string]string{
		"params.amount >": "approve",
		"amount > 5":      "undeclared reference",
		"params.amount":   "must be true or false",
		"'a' + params.a":  "must be true or false",
		"params.a.all(a, params.a.all(b, params.a.all(c, a == b)))": "costs too much",
	} {
		conn := newService().connection()
		conn.Approve = map[string]string{"create": text}
		if _, err := engine.NewTools([]connector.Connection{conn}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
}

// An approval that ends while its call waits, or its tool gets ready, is not used: a person is asked again.
func TestApprovalEndsBeforeTheCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.policy.Approval.Expires = 30 * time.Second
		w.service.approve = "always"
		w.deploy()
		w.publish("in", "a")
		if err := w.runFor(time.Second); err != nil && w.service.calls != 0 {
			t.Fatal(err)
		}
		if err := w.decide(keep.Approve); err != nil {
			t.Fatal(err)
		}
		slow := true
		w.service.onStart = func() error {
			if slow {
				time.Sleep(time.Minute)
			}
			slow = false
			return nil
		}
		_ = w.runFor(70 * time.Second) // it waits for a person then
		qs := w.questions()
		if w.service.calls != 0 || w.records() != 0 || len(qs) != 1 || !strings.Contains(qs[0].Why, "ended") {
			t.Fatalf("%d calls, %d records, questions %+v; want none, and one that says that the approval ended", w.service.calls, w.records(), qs)
		}
		if err := w.decide(keep.Approve); err != nil {
			t.Fatal(err)
		}
		_ = w.runFor(time.Second)
		if w.service.total() != 1 {
			t.Errorf("%d effects after another approval", w.service.total())
		}
	})
}

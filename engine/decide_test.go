package engine_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector"
	"github.com/keep-run/keep/operator"
)

// An ending is what a decision leads to, once what was broken is fixed.
type ending struct {
	event   keep.EventStatus // of the event a
	effects int
	calls   int
	out     string // what next was told; empty: nothing was published
}

// A dilemma is a way to come to a question, and where each action leads. Every
// action that is not listed is refused.
type dilemma struct {
	name string
	kind keep.EscalationKind
	set  func(w *world, fixed *bool)
	ends map[keep.Action]ending
}

// refuse makes the service say no until it is fixed.
func refuse(class keep.Class) func(w *world, fixed *bool) {
	return func(w *world, fixed *bool) {
		w.policy.Retry.Attempts = 0
		w.service.onCall = func(int) (bool, error) {
			if *fixed {
				return true, nil
			}
			return false, keep.Failf(class, "no", "the service says no")
		}
	}
}

// breaks makes a phase throw until it is fixed.
func breaks(phase string) func(w *world, fixed *bool) {
	return func(w *world, fixed *bool) {
		good := w.script["consumers.act."+phase]
		w.script["consumers.act."+phase] = func(c *call) any {
			if !*fixed {
				panic(thrown("broken"))
			}
			return good(c)
		}
	}
}

func loseAnswers(level keep.Level) func(w *world, fixed *bool) {
	return func(w *world, fixed *bool) {
		w.service.level = level
		w.service.onCall = func(n int) (bool, error) {
			if n == 1 {
				return true, errReset
			}
			return true, nil
		}
		w.service.onAsk = func(int) (connector.Verdict, error) {
			if *fixed {
				return connector.Happened, nil
			}
			return "", errReset
		}
	}
}

var dilemmas = []dilemma{
	{"DoubtWithoutAWayToAsk", keep.AskUnknownOutcome, loseAnswers(keep.LevelNone), map[keep.Action]ending{
		keep.DidNotHappen: {keep.EventConsumed, 2, 2, "applied"}, // the person is wrong here: that is theirs
		keep.Happened:     {keep.EventConsumed, 1, 1, "applied"},
		keep.Skip:         {keep.EventSkipped, 1, 1, "skipped"},
	}},
	{"LookupsSpent", keep.AskUnknownOutcome, loseAnswers(keep.LevelWitness), map[keep.Action]ending{
		keep.CheckAgain:   {keep.EventConsumed, 1, 1, "applied"},
		keep.DidNotHappen: {keep.EventConsumed, 1, 1, "applied"}, // the service shows it by then
		keep.Happened:     {keep.EventConsumed, 1, 1, "applied"},
		keep.Skip:         {keep.EventSkipped, 1, 1, "skipped"},
	}},
	{"Permission", keep.AskPermission, refuse(keep.ClassPermission), map[keep.Action]ending{
		keep.Retry: {keep.EventConsumed, 1, 2, "applied"}, keep.Skip: {keep.EventSkipped, 0, 1, ""},
	}},
	{"Precondition", keep.AskPrecondition, refuse(keep.ClassPrecondition), map[keep.Action]ending{
		keep.Retry: {keep.EventConsumed, 1, 2, "applied"}, keep.Skip: {keep.EventSkipped, 0, 1, ""},
	}},
	{"RetriesSpent", keep.AskRetries, refuse(keep.ClassTransient), map[keep.Action]ending{
		keep.Retry: {keep.EventConsumed, 1, 2, "applied"}, keep.Skip: {keep.EventSkipped, 0, 1, ""},
	}},
	{"Refused", keep.AskLogic, refuse(keep.ClassLogic), map[keep.Action]ending{
		keep.Retry: {keep.EventConsumed, 1, 2, "applied"}, keep.Skip: {keep.EventSkipped, 0, 1, ""},
	}},
	{"PrepareThrows", keep.AskLogic, breaks("prepare"), map[keep.Action]ending{
		keep.Retry: {keep.EventConsumed, 1, 1, "applied"}, keep.Skip: {keep.EventSkipped, 0, 0, ""},
	}},
	{"MutateThrows", keep.AskLogic, breaks("mutate"), map[keep.Action]ending{
		keep.Retry: {keep.EventConsumed, 1, 1, "applied"}, keep.Skip: {keep.EventSkipped, 0, 0, ""},
	}},
	{"NextThrows", keep.AskLogic, breaks("next"), map[keep.Action]ending{ // only the way forward is left
		keep.Retry: {keep.EventConsumed, 1, 1, "applied"},
	}},
	{"ConnectorPanics", keep.AskInternal, func(w *world, fixed *bool) {
		w.service.onTarget = func() {
			if !*fixed {
				panic("broken")
			}
		}
	}, map[keep.Action]ending{
		keep.Retry: {keep.EventConsumed, 1, 1, "applied"}, keep.Skip: {keep.EventSkipped, 0, 0, ""},
	}},
	{"Approval", keep.AskApproval, func(w *world, _ *bool) { w.service.approve = "always" }, map[keep.Action]ending{
		keep.Approve: {keep.EventConsumed, 1, 1, "applied"}, keep.Reject: {keep.EventSkipped, 0, 0, ""},
		keep.TreatAsDone: {keep.EventConsumed, 0, 0, "applied"},
	}},
}

// Every action in every situation: one that the question does
// not offer is refused and changes nothing; one that it offers does what it says,
// once, and is recorded with who decided, from where and why.
func TestDecisions(t *testing.T) {
	for _, d := range dilemmas {
		for _, a := range keep.Actions() {
			t.Run(d.name+"/"+string(a), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { d.decide(t, a) })
			})
		}
	}
}

func (d dilemma) decide(t *testing.T, a keep.Action) {
	w, fixed := newWorld(t), false
	d.set(w, &fixed)
	w.deploy()
	w.publish("in", "a")
	w.run()
	qs := w.questions()
	if len(qs) != 1 || qs[0].Kind != d.kind {
		t.Fatalf("questions %+v, want one of kind %s", qs, d.kind)
	}
	q, before := qs[0], w.lastRun()
	end, offered := d.ends[a]
	err := w.engine().Decide(t.Context(), q.ID, keep.Decision{Action: a, By: "ann", From: "cli", Note: "looked at it", Result: json.RawMessage(`{"id":7}`)})
	if !offered {
		d.checkRefused(t, w, err, q, before)
		return
	}
	if err != nil {
		t.Fatalf("Decide: %v", err)
	}
	w.checkRecorded(t, q, a)
	fixed = true
	w.run()
	w.run()
	ev, out := w.event("in", "a"), w.event("out", "out:a")
	want := ""
	if end.out != "" {
		want = fmt.Sprintf(`{"status":%q}`, end.out)
	}
	if ev.Status != end.event || w.service.total() != end.effects || w.service.calls != end.calls || string(out.Payload) != want {
		t.Errorf("event %s, %d effects by %d calls, next was told %s; want %s, %d by %d, %s",
			ev.Status, w.service.total(), w.service.calls, out.Payload, end.event, end.effects, end.calls, want)
	}
	if r := w.lastRun(); !r.Closed || len(w.questions()) != 0 {
		t.Errorf("run is %s, closed %t, with %d questions; want it over", r.Status, r.Closed, len(w.questions()))
	}
}

func (d dilemma) checkRefused(t *testing.T, w *world, err error, q keep.Escalation, before keep.Run) {
	t.Helper()
	if _, ok := errors.AsType[*operator.ActionError](err); !ok {
		t.Errorf("Decide: %v, want an *ActionError", err)
	}
	calls := w.service.calls
	w.run()
	if r := w.lastRun(); r.ID != before.ID || r.Rev != before.Rev || w.service.calls != calls || len(w.questions()) != 1 {
		t.Errorf("after the refusal: run %s rev %d, %d more calls, %d questions; want nothing changed", r.ID, r.Rev, w.service.calls-calls, len(w.questions()))
	}
}

// checkRecorded looks at the record of a decision, and that it is the only one.
func (w *world) checkRecorded(t *testing.T, q keep.Escalation, a keep.Action) {
	t.Helper()
	got, err := w.store.Escalation(t.Context(), q.ID)
	if err != nil {
		t.Fatal(err)
	}
	d := got.Decision
	if got.ClosedAt.IsZero() || d == nil || d.Action != a || d.By != "ann" || d.From != "cli" || d.Note != "looked at it" || d.At.IsZero() {
		t.Errorf("the decision is recorded as %+v", d)
	}
	for _, again := range keep.Actions() {
		err := w.engine().Decide(t.Context(), q.ID, keep.Decision{Action: again, By: "bob", From: "web"})
		if !errors.Is(err, keep.ErrDecided) {
			t.Errorf("second decision %s: %v, want ErrDecided", again, err)
		}
	}
	if q.Kind == keep.AskUnknownOutcome {
		moves, err := w.store.History(t.Context(), q.Mutation)
		if last := moves[len(moves)-1]; err != nil || last.By != "ann" || last.Detail != "looked at it" {
			t.Errorf("the last move is by %q: %q, %v; want ann and her note", last.By, last.Detail, err)
		}
	}
}

// Of many people who decide at once, one does.
func TestDecisionsAtOnce(t *testing.T) {
	for _, actions := range [][]keep.Action{{keep.DidNotHappen, keep.Skip}, {keep.DidNotHappen}, {keep.CheckAgain, keep.Skip}} {
		synctest.Test(t, func(t *testing.T) {
			w, fixed := newWorld(t), false
			loseAnswers(keep.LevelWitness)(w, &fixed)
			w.deploy()
			w.publish("in", "a")
			w.run()
			q := w.questions()[0]
			var done atomic.Int32
			var wg sync.WaitGroup
			for i := range 8 {
				e := w.engine()
				wg.Go(func() {
					err := e.Decide(t.Context(), q.ID, keep.Decision{Action: actions[i%len(actions)], By: fmt.Sprint("person ", i), From: "test"})
					switch {
					case err == nil:
						done.Add(1)
					case !errors.Is(err, keep.ErrDecided):
						t.Errorf("%v: who came later heard: %v", actions, err)
					}
				})
			}
			wg.Wait()
			if n := done.Load(); n != 1 {
				t.Errorf("%v: %d decisions were taken, want 1", actions, n)
			}
			fixed = true
			w.run()
			if n := w.service.total(); n > 2 || !slices.Contains(actions, keep.DidNotHappen) && n != 1 {
				t.Errorf("%v: %d effects", actions, n)
			}
		})
	}
}

// Whoever answers while somebody else does hears that he was second, whatever it was
// that the first one changed under him.
func TestSecondDecider(t *testing.T) {
	for _, d := range dilemmas {
		for a := range d.ends {
			t.Run(d.name+"/"+string(a), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					w, fixed := newWorld(t), false
					d.set(w, &fixed)
					w.deploy()
					w.publish("in", "a")
					w.run()
					q, first, second := w.questions()[0], w.engine(), w.engine()
					overtaken := false
					w.onCommit = func(_ keep.Commit, do func() error) error {
						if !overtaken {
							overtaken = true
							if err := first.Decide(t.Context(), q.ID, keep.Decision{Action: a, By: "ann", From: "test", Result: json.RawMessage(`{"id":7}`)}); err != nil {
								t.Errorf("the first: %v", err)
							}
						}
						return do()
					}
					err := second.Decide(t.Context(), q.ID, keep.Decision{Action: a, By: "bob", From: "test", Result: json.RawMessage(`{"id":7}`)})
					if !overtaken || !errors.Is(err, keep.ErrDecided) {
						t.Errorf("the second heard: %v, want %v", err, keep.ErrDecided)
					}
					w.onCommit = nil
				})
			})
		}
	}
}

package engine

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/engine/lease"
	"github.com/keep-run/keep/law/ledger"
	"github.com/keep-run/keep/store/memory"
)

// That the tool of a doubt is missing for a while does not hide that its credentials are of another user: who says that the
// call did not happen is told that it may happen twice.
func TestMissingToolOfAnotherUser(t *testing.T) {
	ts := &Tools{}
	ts.now.Store(&toolSet{})
	m := keep.Mutation{Tool: "svc.create", Level: keep.LevelClaim, CanReconcile: true, State: keep.NeedsReconcile,
		Error: keep.Failf(keep.ClassUnknown, keep.CodeAnotherUser, "its account is of another user")}
	_, none := ts.asker(m)
	m.Error = none.Failure
	x := &execution{a: &actor{}, e: &Engine{tools: ts}, mut: m, direct: true}
	if got := x.didNotHappenEffect(t.Context()); !strings.Contains(got, "it happens twice") {
		t.Errorf("the effect of the answer is %q", got)
	}
}

// Reads that are abandoned to the connector of one connection keep none of another from beginning.
func TestAbandonedReadsOfAnother(t *testing.T) {
	e := &Engine{abandoned: map[string]int{"deaf": maxAbandoned}}
	if f := e.mayBegin(&tool{name: "deaf.list"}, ""); f == nil || f.Code != "read-failed" {
		t.Errorf("a read beside %d of its connection: %v", maxAbandoned, f)
	}
	if f := e.mayBegin(&tool{name: "healthy.list"}, ""); f != nil {
		t.Errorf("a read of another connection: %v", f)
	}
}

// A call in doubt that one process is sending again is not sent again by another one as well, because its tool is there again, or agreed to: the request
// of one of them may arrive when the other one has recorded what became of the call, and undo what was set since. Law: once.
func TestSentAgainByAnother(t *testing.T) {
	ts := &Tools{}
	ts.now.Store(&toolSet{byName: map[keep.ToolName]*tool{"svc.set": {name: "svc.set"}}})
	now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	c := &Caller{e: &Engine{tools: ts, clock: lease.NewClock(func() time.Time { return now })}, Ready: func(keep.Mutation) bool { return true }}
	for _, code := range []string{keep.CodeToolMissing, keep.CodeToolChanged} {
		f := keep.Failf(keep.ClassPermission, code, "there was no tool that could be asked")
		m := keep.Mutation{Tool: "svc.set", Level: keep.LevelKey, State: keep.NeedsReconcile, Error: f, CallDeadline: now.Add(-time.Minute), NextReconcileAt: now.Add(time.Minute)}
		if !c.isDue(m, now) {
			t.Errorf("%s: it waits although there is a tool", code)
		}
		if c.isDue(ledger.SendAgain(m, now.Add(time.Second), now), now) {
			t.Errorf("%s: it is sent again by two", code)
		}
	}
}

// Of a call far below all else, nobody knows of which attempt it is: what is looked at has an end.
func TestAttemptFarBelow(t *testing.T) {
	seen := make(map[keep.RunID]bool)
	for i := range maxAbove {
		seen[keep.RunID(strconv.Itoa(i))] = true
	}
	if n, err := new(Engine).attemptOfRun(t.Context(), "w", "run_above", seen); n < 2 || err != nil {
		t.Errorf("attempt %d, %v; want that it may be a later one", n, err)
	}
}

// The run that published an event was swept, which it may be while nothing reads the topic: nobody knows of which attempt it was.
func TestAttemptBelowASweptRun(t *testing.T) {
	at := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	for by, want := range map[keep.Publisher]int{"": 1, "run_gone": 2} {
		s := memory.New()
		r := keep.Run{ID: "run_a", Chain: "run_a", Workflow: "w", Version: keep.Version{Major: 1}, Handler: "h", Kind: keep.Consumer, Phase: keep.Prepared,
			Status: keep.StatusActive, Lane: keep.WorkflowLane, CreatedAt: at, UpdatedAt: at, Reservations: []keep.Reservation{{Topic: "in", IDs: []keep.MessageID{"a"}}}}
		err := s.Commit(t.Context(), keep.Commit{Workflow: "w", At: at, Changes: []keep.Change{
			keep.Deploy{Deployment: keep.Deployment{Workflow: "w", Version: keep.Version{Major: 1}, Code: []byte("x"), CreatedAt: at}},
			keep.Publish{Event: keep.Event{Workflow: "w", Topic: "in", MessageID: "a", Status: keep.EventPending, CreatedBy: by, CreatedAt: at, UpdatedAt: at}},
			keep.PutRun{Run: r},
		}})
		if err != nil {
			t.Fatal(err)
		}
		if n, err := (&Engine{store: s}).attemptOfRun(t.Context(), "w", r.ID, make(map[keep.RunID]bool)); n != want || err != nil {
			t.Errorf("published by %q: attempt %d, %v; want %d", by, n, err, want)
		}
	}
}

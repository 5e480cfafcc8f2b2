package operator_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/operator"
	"github.com/keep-run/keep/store/memory"
)

// waits commits a run of a consumer that reserved an event and waits, with its call.
func waits(t *testing.T, s operator.Store, change func(*keep.Run, *keep.Mutation)) {
	t.Helper()
	later := time.Now().Add(time.Hour).UTC().Truncate(time.Millisecond)
	r := keep.Reservation{Topic: "t", IDs: []keep.MessageID{"m"}}
	run := keep.Run{ID: "run_m", Chain: "run_m", Workflow: "w", Handler: "c", Kind: keep.Consumer, Phase: keep.Prepared, Status: keep.StatusTransient,
		Error: keep.Failf(keep.ClassTransient, "x", "x"), RetryAt: later, Reservations: []keep.Reservation{r}, CreatedAt: noon, UpdatedAt: noon}
	m := keep.Mutation{Workflow: "w", Run: run.ID, Tool: "x.y", Target: "to", Level: keep.LevelKey, Token: "token", Pin: []byte(`{}`), PinHash: "00",
		Attempts: 1, CallDeadline: noon, CreatedAt: noon, UpdatedAt: noon}
	change(&run, &m)
	changes := []keep.Change{keep.Publish{Event: keep.Event{Workflow: "w", Topic: "t", MessageID: "m"}}, keep.Reserve{Chain: run.Chain, Reservation: r}}
	if m.Key != "" {
		run.Mutation = m.Key
		changes = append(changes, keep.PutMutation{Mutation: m})
	}
	commit(t, s, append(changes, keep.PutRun{Run: run})...)
}

// A run is cancelled only if no call of it can have happened. What that causes is shown first,
// changes nothing then, and is in the log of the run after.
func TestCancelRun(t *testing.T) {
	for name, tt := range map[string]struct {
		change  func(*keep.Run, *keep.Mutation)
		refused string
	}{
		"before its call": {func(*keep.Run, *keep.Mutation) {}, ""},
		"its call was refused": {func(r *keep.Run, m *keep.Mutation) {
			m.Key, m.State, m.ResolvedBy, r.Phase = "mut_1", keep.Failed, "call", keep.Mutating
		}, ""},
		"in flight": {func(r *keep.Run, m *keep.Mutation) {
			m.Key, m.State, r.Phase, r.Status = "mut_1", keep.InFlight, keep.Mutating, keep.StatusCrashed
		}, "may have been sent"},
		"in doubt": {func(r *keep.Run, m *keep.Mutation) {
			m.Key, m.State, m.Doubted, r.Phase, r.Status = "mut_1", keep.NeedsReconcile, true, keep.Mutating, keep.StatusReconciliation
		}, "may have been sent"},
		"failed after a doubt": {func(r *keep.Run, m *keep.Mutation) {
			m.Key, m.State, m.Doubted, m.ResolvedBy, r.Phase = "mut_1", keep.Failed, true, "lookup", keep.Mutating
		}, "may have been sent"},
		"applied": {func(r *keep.Run, m *keep.Mutation) {
			m.Key, m.State, m.ResolvedBy, r.Phase = "mut_1", keep.Applied, "call", keep.Mutated
		}, "may have been sent"},
		"executed now": {func(r *keep.Run, m *keep.Mutation) {
			r.Status, r.Error, r.RetryAt = keep.StatusActive, nil, time.Time{}
		}, "being executed"},
		"a job": {func(r *keep.Run, m *keep.Mutation) { r.Kind, r.Phase = keep.Job, keep.Running }, "run of a job"},
	} {
		t.Run(name, func(t *testing.T) {
			s := memory.New()
			waits(t, s, tt.change)
			o := newOperator(t, s)
			d := keep.Decision{Action: keep.Cancel, By: "ada", From: "test", Note: "wrong customer"}
			for _, preview := range []bool{true, false} {
				done, err := o.DoRun(t.Context(), "run_m", d, preview)
				_, refused := errors.AsType[*operator.RunError](err)
				run, _ := s.Run(t.Context(), "run_m")
				ev, _ := s.Event(t.Context(), "w", "t", "m")
				lines, _ := s.Logs(t.Context(), "run_m")
				if tt.refused != "" {
					if !refused || !strings.Contains(err.Error(), tt.refused) || run.Closed || ev.Status != keep.EventPending || len(lines) != 0 {
						t.Errorf("preview %t: %v; the run is %s, its event %s, want refused since %q", preview, err, run.Status, ev.Status, tt.refused)
					}
					continue
				}
				if err != nil || len(done.Events) != 1 || !strings.Contains(done.Effect, "skips its events (1)") {
					t.Fatalf("preview %t: %+v, %v", preview, done, err)
				}
				if ended := run.Status == keep.StatusAborted && run.Closed && ev.Status == keep.EventSkipped && len(lines) == 1; ended == preview {
					t.Errorf("preview %t: the run is %s, its event %s, its log %v", preview, run.Status, ev.Status, lines)
				}
				if !preview && !strings.Contains(lines[0].Text, "cancel by ada, from the test: ends the run before its call") {
					t.Errorf("the log has %q", lines[0].Text)
				}
			}
			if tt.refused != "" {
				return
			}
			if _, err := o.DoRun(t.Context(), "run_m", d, false); err == nil || !strings.Contains(err.Error(), "it is over: aborted") {
				t.Errorf("cancelled twice: %v", err)
			}
			if res, err := o.UnskipEvents(t.Context(), "w", "t", []keep.MessageID{"m"}, keep.Decision{}); err != nil || res.Unskipped != 1 {
				t.Errorf("unskip: %+v, %v", res, err)
			}
		})
	}
}

// Who reads a run that another host then executes, or whose call it then sends, cancels
// nothing.
func TestCancelWhileItMoves(t *testing.T) {
	s := memory.New()
	waits(t, s, func(*keep.Run, *keep.Mutation) {})
	moved := false
	o := newOperator(t, onEvents{s, func() {
		if moved {
			return
		}
		moved = true
		run, err := s.Run(t.Context(), "run_m")
		if err != nil {
			t.Fatal(err)
		}
		run.Status, run.Error, run.RetryAt, run.UpdatedAt = keep.StatusActive, nil, time.Time{}, noon.Add(time.Second)
		commit(t, s, keep.PutRun{Run: run})
	}})
	_, err := o.DoRun(t.Context(), "run_m", keep.Decision{Action: keep.Cancel}, false)
	if err == nil || !strings.Contains(err.Error(), "being executed") {
		t.Errorf("cancelled a run that is executed: %v", err)
	}
	if ev, _ := s.Event(t.Context(), "w", "t", "m"); !moved || ev.Status != keep.EventPending {
		t.Errorf("moved %t, the event is %s", moved, ev.Status)
	}
}

// onEvents lets something happen between the reading of a run and the commit.
type onEvents struct {
	*memory.Store
	race func()
}

func (o onEvents) Commit(ctx context.Context, c keep.Commit) error {
	o.race()
	return o.Store.Commit(ctx, c)
}

// A run that waits for a time continues now, a lookup is made now, and one that waits for a
// person stays as it is.
func TestRetryNow(t *testing.T) {
	doubt := func(r *keep.Run, m *keep.Mutation) {
		m.Key, m.State, m.Doubted, m.CanReconcile, m.NextReconcileAt = "mut_1", keep.NeedsReconcile, true, true, r.RetryAt
		r.Phase, r.Status, r.RetryAt = keep.Mutating, keep.StatusReconciliation, time.Time{}
	}
	for name, tt := range map[string]struct {
		change         func(*keep.Run, *keep.Mutation)
		effect, refuse string
	}{
		"backoff": {func(*keep.Run, *keep.Mutation) {}, "makes the next attempt now", ""},
		"after a refusal": {func(r *keep.Run, m *keep.Mutation) {
			m.Key, m.State, m.ResolvedBy, r.Phase = "mut_1", keep.Failed, "call", keep.Mutating
		}, "may call x.y on to again under the same key", ""},
		"lookup": {func(r *keep.Run, m *keep.Mutation) {
			doubt(r, m)
			m.Level = keep.LevelWitness
		}, "asks now what became of x.y on to; sends nothing", ""},
		"lookup without its tool": {func(r *keep.Run, m *keep.Mutation) {
			doubt(r, m)
			m.Error = keep.Failf(keep.ClassUnknown, keep.CodeToolMissing, "there is no tool x.y")
		}, "asks now what became of x.y on to; sends nothing while there is no tool x.y", ""},
		"lookup under its key": {doubt, "asks now what became of x.y on to; sends the same call with the same key", ""},
		"nobody knows": {func(r *keep.Run, m *keep.Mutation) {
			doubt(r, m)
			m.State, m.NextReconcileAt = keep.Indeterminate, time.Time{}
		}, "", "a person decides that"},
		"approval": {func(r *keep.Run, m *keep.Mutation) { r.Status = keep.StatusApproval }, "", "waits for a person"},
		"a person": {func(r *keep.Run, m *keep.Mutation) { r.Status, r.RetryAt = keep.StatusPerson, time.Time{} }, "", "waits for a person"},
	} {
		t.Run(name, func(t *testing.T) {
			s := memory.New()
			waits(t, s, tt.change)
			before, _ := s.Run(t.Context(), "run_m")
			done, err := newOperator(t, s).DoRun(t.Context(), "run_m", keep.Decision{Action: keep.Retry, By: "ada", From: "test"}, false)
			run, _ := s.Run(t.Context(), "run_m")
			lines, _ := s.Logs(t.Context(), "run_m")
			if tt.refuse != "" {
				if err == nil || !strings.Contains(err.Error(), tt.refuse) || run.RetryAt != before.RetryAt || len(lines) != 0 {
					t.Errorf("%v, want %q", err, tt.refuse)
				}
				return
			}
			if err != nil || !strings.Contains(done.Effect, tt.effect) || len(lines) != 1 {
				t.Fatalf("%+v, %v, log %v", done, err, lines)
			}
			due := run.RetryAt
			if run.Mutation != "" {
				if m, _ := s.Mutation(t.Context(), run.Mutation); m.State == keep.NeedsReconcile {
					due = m.NextReconcileAt
				}
			}
			if due.IsZero() || due.After(time.Now()) {
				t.Errorf("it is due at %s", due)
			}
		})
	}
}

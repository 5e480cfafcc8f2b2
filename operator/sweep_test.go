package operator_test

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/law/policy"
	"github.com/keep-run/keep/operator"
	"github.com/keep-run/keep/store/memory"
)

// An overCounter counts the runs that a sweep may have read.
type overCounter struct {
	*memory.Store
	read int
}

func (s *overCounter) Over(ctx context.Context, w keep.WorkflowName, before time.Time, after string, limit int) ([]keep.OldChain, string, error) {
	old, next, err := s.Store.Over(ctx, w, before, after, limit)
	s.read += len(old)
	if next != "" {
		s.read += limit - len(old)
	}
	return old, next, err
}

// A sweep costs nothing for what a long retention keeps: it ran every hour over every
// run that the shortest retention of the database would have taken.
func TestSweepOfLongRetention(t *testing.T) {
	s := &overCounter{Store: memory.New()}
	made := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for _, name := range []keep.WorkflowName{"long", "short"} {
		commitTo(t, s, name, made, keep.Deploy{Deployment: keep.Deployment{Workflow: name, Version: keep.Version{Major: 1},
			Definition: keep.Definition{Name: name}, CreatedAt: made}})
	}
	for i := range 1200 {
		id := keep.RunID(fmt.Sprintf("run_%04d", i))
		commitTo(t, s, "long", made, keep.PutRun{Run: keep.Run{ID: id, Chain: id, Workflow: "long", Handler: "h", Kind: keep.Consumer,
			Phase: keep.Committed, Status: keep.StatusCommitted, Closed: true, CreatedAt: made, UpdatedAt: made}})
	}
	o, err := operator.New(s, operator.Config{Now: func() time.Time { return made.Add(10 * 24 * time.Hour) }, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	r := policy.Retention{After: 24 * time.Hour, Workflows: map[keep.WorkflowName]time.Duration{"long": 365 * 24 * time.Hour}}
	done, err := o.Sweep(t.Context(), r, false, nil)
	if err != nil || done.Chains != 0 {
		t.Errorf("Sweep = %+v, %v, want nothing", done, err)
	}
	if s.read > 0 {
		t.Errorf("the sweep read %d runs that the retention keeps", s.read)
	}
	delete(r.Workflows, "long")
	if done, err = o.Sweep(t.Context(), r, false, nil); err != nil || done.Chains != 1199 { // the newest of the database stays
		t.Errorf("Sweep = %+v, %v, want 1199 chains", done, err)
	}
}

func commitTo(t *testing.T, s *overCounter, w keep.WorkflowName, at time.Time, changes ...keep.Change) {
	t.Helper()
	if err := s.Commit(t.Context(), keep.Commit{Workflow: w, At: at, Changes: changes}); err != nil {
		t.Fatal(err)
	}
}

package main

import (
	"bytes"
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/cmd/keep/internal/config"
	"github.com/keep-run/keep/cmd/keep/internal/database"
	"github.com/keep-run/keep/law/policy"
	"github.com/keep-run/keep/store/sqlite"
)

// A stopping is a database under which a sweep is stopped after its first step.
type stopping struct {
	database.DB
	stop func()
	fail error // of the second look; nil: none
}

func (s stopping) ForgetTraces(ctx context.Context, before time.Time, limit int) (int, error) {
	n, err := s.DB.ForgetTraces(ctx, before, limit)
	s.stop()
	return n, err
}

func (s stopping) Over(ctx context.Context, of keep.OldRuns, after string, limit int) ([]keep.OldChain, string, error) {
	if s.fail != nil {
		return nil, "", s.fail
	}
	return s.DB.Over(ctx, of, after, limit)
}

// A sweep that is stopped says what is gone, also while it deletes traces, and one that fails before it deletes says nothing of what is old.
func TestSweepIsStopped(t *testing.T) {
	now := time.Date(2026, 5, 4, 3, 2, 1, 0, time.UTC)
	db := sqlite.New(filepath.Join(t.TempDir(), "keep.db"), sqlite.Config{Host: true})
	noError(t, db.Open(t.Context()))
	defer db.Close()
	changes := []keep.Change{keep.Deploy{Deployment: keep.Deployment{Workflow: "w", Version: keep.Version{Major: 1}, Definition: keep.Definition{Name: "w"}, CreatedAt: now}},
		keep.PutRun{Run: keep.Run{ID: "run_1", Chain: "run_1", Workflow: "w", Handler: "poll", Kind: keep.Producer, Phase: keep.Committed, Status: keep.StatusCommitted, Closed: true, CreatedAt: now, UpdatedAt: now}}}
	for range 300 {
		changes = append(changes, keep.AppendTrace{Part: keep.TracePart{Run: "run_1", At: now, Data: []byte("{}")}})
	}
	noError(t, db.Commit(t.Context(), keep.Commit{Workflow: "w", At: now, Changes: changes}))
	r := policy.Retention{After: 24 * time.Hour, Traces: 24 * time.Hour}

	ctx, stop := context.WithCancel(t.Context())
	said := func(ctx context.Context, db database.DB, preview bool) (string, error) {
		var out, talk bytes.Buffer
		a := newApp(&out, &talk)
		a.Clock = func() time.Time { return now.Add(48 * time.Hour) }
		err := a.sweep(ctx, &config.Config{}, db, r, preview)
		return talk.String() + out.String(), err
	}
	broken := errors.New("the disk is gone")
	if text, err := said(t.Context(), stopping{db, func() {}, broken}, true); !errors.Is(err, broken) || text != "" {
		t.Errorf("a preview that failed: %v, and it says %q", err, text)
	}
	if text, err := said(ctx, stopping{db, stop, nil}, false); !errors.Is(err, context.Canceled) || !strings.Contains(text, "200 traces") {
		t.Errorf("a sweep that was stopped: %v, and it says %q; want what is gone", err, text)
	}
	if text, err := said(t.Context(), db, false); err != nil || !strings.Contains(text, "100 traces") {
		t.Errorf("the sweep after it: %v, and it says %q", err, text)
	}
}

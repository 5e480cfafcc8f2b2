package host_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/handler"
	"github.com/keep-run/keep/host"
	"github.com/keep-run/keep/script/sandbox"
	"github.com/keep-run/keep/store/memory"
)

// A refusing store takes no commit while it has an error, and no counters while it has one of the store.
type refusing struct {
	*memory.Store
	err error
}

func (s *refusing) Commit(ctx context.Context, c keep.Commit) error {
	if s.err != nil {
		return s.err
	}
	return s.Store.Commit(ctx, c)
}

func (s *refusing) PutCounters(ctx context.Context, list []keep.Counter, before map[keep.Step]time.Time) error {
	if s.err != nil {
		return s.err
	}
	return s.Store.PutCounters(ctx, list, before)
}

// open returns a host on the store.
func (s *refusing) open(t *testing.T) *host.Host {
	t.Helper()
	rt, err := sandbox.Open(t.Context(), sandbox.Config{CacheDir: cacheDir})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { rt.Close() })
	h, err := host.Open(t.Context(), s, host.Config{Runtime: rt})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { h.Close() })
	return h
}

// refusingHost returns a host with the workflow w.
func refusingHost(t *testing.T) (*host.Host, *refusing) {
	t.Helper()
	db := &refusing{Store: memory.New()}
	h := db.open(t)
	w, err := h.LoadGo(&handler.Workflow{Name: "w", Handlers: []handler.Handler{handler.Producer{Name: "p", Run: func(context.Context, *handler.Ingress) error { return nil }}}})
	if err == nil {
		_, err = h.Deploy(t.Context(), w)
	}
	if err != nil {
		t.Fatal(err)
	}
	return h, db
}

// A host knows that its store takes no commits, from the first that was refused until one is taken.
func TestRefusalIsKnown(t *testing.T) {
	h, db := refusingHost(t)
	do := func() error { return h.Pause(t.Context(), "w", keep.Decision{By: "ann"}) }
	commit := func(want error) {
		t.Helper()
		if err := do(); !errors.Is(err, want) {
			t.Fatalf("the commit was answered with %v, want %v", err, want)
		}
	}
	is := func(want error) {
		t.Helper()
		if got := h.Refusal(); !errors.Is(got.Err, want) || got.Since.IsZero() != (want == nil) {
			t.Errorf("the refusal is %+v, want %v", got, want)
		}
	}
	is(nil)
	full := fmt.Errorf("commit: %w", keep.ErrDiskFull)
	db.err = full
	commit(full)
	is(full)
	since := h.Refusal().Since
	other := errors.New("cannot execute in a read-only transaction")
	db.err = other
	commit(other)
	is(other)
	if got := h.Refusal().Since; !got.Equal(since) {
		t.Errorf("it refuses since %s, want since the first at %s", got, since)
	}
	lawful := []error{memory.New().Commit(t.Context(), keep.Commit{})} // for what is in the commit
	for _, change := range []keep.Change{
		keep.Reserve{Chain: "run_1", Reservation: keep.Reservation{Topic: "t", IDs: []keep.MessageID{"e"}}},
		keep.Finish{Chain: "run_1", Status: keep.EventPending},
		keep.RequestRun{Handler: "none"},
	} {
		lawful = append(lawful, memory.New().Commit(t.Context(), keep.Commit{Workflow: "w", At: time.Now(), Changes: []keep.Change{change}}))
	}
	for _, db.err = range lawful {
		commit(db.err)
		is(other)
	}
	db.err = nil
	commit(nil)
	is(nil)
	do = func() error { return h.Resume(t.Context(), "w", keep.Decision{By: "ann"}) }
	for _, db.err = range lawful {
		commit(db.err)
		is(nil)
	}
}

// While it is not ready, a host gets nothing to do. So it looks by itself whether its store takes commits
// again, also where nothing happened that it counts.
func TestRefusalEndsWhereNothingHappens(t *testing.T) {
	h, db := refusingHost(t)
	db.err = keep.ErrDiskFull
	if err := h.Pause(t.Context(), "w", keep.Decision{By: "ann"}); !errors.Is(err, keep.ErrDiskFull) {
		t.Fatal(err)
	}
	if err := h.Count(t.Context()); !errors.Is(err, keep.ErrDiskFull) || h.Refusal().Err == nil {
		t.Errorf("while the disk is full: Count = %v, and the refusal is %+v", err, h.Refusal())
	}
	db.err = nil
	if err := h.Count(t.Context()); err != nil || h.Refusal().Err != nil {
		t.Errorf("when it is not: Count = %v, and the refusal is %+v", err, h.Refusal())
	}
	// What it wrote does not hide from the next host what comes.
	now := time.Now().UTC()
	r := keep.Run{ID: "run_1", Chain: "run_1", Workflow: "w", Version: keep.Version{Major: 1}, Handler: "p", Kind: keep.Producer, Phase: keep.Committed,
		Status: keep.StatusCommitted, Closed: true, CreatedAt: now, UpdatedAt: now}
	if err := db.Commit(t.Context(), keep.Commit{Workflow: "w", At: now, Changes: []keep.Change{keep.PutRun{Run: r}}}); err != nil {
		t.Fatal(err)
	}
	if err := db.open(t).Count(t.Context()); err != nil {
		t.Fatal(err)
	}
	days, err := db.Counters(t.Context(), keep.Day, "w", now.Add(-24*time.Hour), now.Add(24*time.Hour))
	if err != nil || len(days) != 1 || days[0].Committed != 1 {
		t.Errorf("the next host counted %+v, %v, want one run that committed", days, err)
	}
}

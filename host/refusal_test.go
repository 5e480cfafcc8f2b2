package host_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/handler"
	"github.com/keep-run/keep/host"
	"github.com/keep-run/keep/script/sandbox"
	"github.com/keep-run/keep/store/memory"
)

// A refusing store takes no commit while it has an error, and no counters either.
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

// A host knows that its store takes no commits, from the first that was refused until one is taken.
func TestRefusalIsKnown(t *testing.T) {
	rt, err := sandbox.Open(t.Context(), sandbox.Config{CacheDir: cacheDir})
	if err != nil {
		t.Fatal(err)
	}
	defer rt.Close()
	db := &refusing{Store: memory.New()}
	h, err := host.Open(t.Context(), db, host.Config{Runtime: rt})
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	w, err := h.LoadGo(&handler.Workflow{Name: "w", Handlers: []handler.Handler{handler.Producer{Name: "p", Run: func(context.Context, *handler.Ingress) error { return nil }}}})
	if err == nil {
		_, err = h.Deploy(t.Context(), w)
	}
	if err != nil {
		t.Fatal(err)
	}
	do := func() error { return h.Pause(t.Context(), "w", "") }
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
	db.err = keep.ErrStale // for what is in the commit
	commit(keep.ErrStale)
	is(other)
	db.err = nil
	commit(nil)
	is(nil)
	db.err = keep.ErrStale
	do = func() error { return h.Resume(t.Context(), "w") }
	commit(keep.ErrStale)
	is(nil)
}

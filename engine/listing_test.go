package engine_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/engine"
)

// unlisted is a store that fails to list its workflows, as often as it is told to.
type unlisted struct {
	countingStore
	err   error
	fails *atomic.Int32
}

func (s unlisted) Workflows(ctx context.Context) ([]keep.Workflow, error) {
	if s.fails.Load() > 0 {
		s.fails.Add(-1)
		return nil, s.err
	}
	return s.countingStore.Workflows(ctx)
}

// A running host whose listing of workflows fails lists them again, and works on one that was deployed
// meanwhile. One whose database was replaced ends.
func TestListingFails(t *testing.T) {
	disk := errors.New("disk I/O error (1802)")
	for _, tt := range []struct {
		err  error // of a listing
		n    int32 // listings that fail
		ends bool  // the host
	}{{disk, 1, false}, {disk, 8, false}, {fmt.Errorf("open: %w", keep.ErrReplaced), 1, true}} {
		t.Run(fmt.Sprint(tt.err, tt.n), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				w.deploy()
				tools, err := engine.NewTools(w.connections())
				if err != nil {
					t.Fatal(err)
				}
				store := unlisted{countingStore{w.store, w}, tt.err, new(atomic.Int32)}
				e, err := engine.New(store, w, tools, engine.Config{Policy: &w.policy, Slow: time.Hour})
				if err != nil {
					t.Fatal(err)
				}
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				done := make(chan error, 1)
				go func() { done <- e.Run(ctx) }()
				synctest.Wait()
				store.fails.Store(tt.n)
				w.def.Name = "v"
				w.deploy()
				w.publish("in", "a")
				e.Wake("v")
				if tt.ends {
					if err := <-done; !errors.Is(err, keep.ErrReplaced) {
						t.Errorf("Run ended with %v, want that the database was replaced", err)
					}
					return
				}
				limit, stop := context.WithTimeout(ctx, 24*time.Hour)
				defer stop()
				if err := e.WaitIdle(limit); err != nil || w.service.calls != 1 {
					t.Errorf("%d calls of the new workflow, want 1: %v", w.service.calls, err)
				}
				cancel()
				if err := <-done; err != nil {
					t.Errorf("Run: %v", err)
				}
			})
		})
	}
}

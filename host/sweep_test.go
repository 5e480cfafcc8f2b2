package host_test

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/host"
	"github.com/keep-run/keep/law/policy"
	"github.com/keep-run/keep/script/sandbox"
	"github.com/keep-run/keep/store/memory"
)

// A slow store makes one commit at a time, in a time that the test says, and adds up those of sweeps.
type slow struct {
	*memory.Store
	turn     chan struct{} // has a value while nobody writes
	commit   time.Duration
	sweeping time.Duration
}

func (s *slow) Commit(ctx context.Context, c keep.Commit) error {
	<-s.turn
	defer func() { s.turn <- struct{}{} }()
	time.Sleep(s.commit) // of the bubble
	if _, sweep := c.Changes[0].(keep.Sweep); sweep {
		s.sweeping += s.commit
	}
	return s.Store.Commit(ctx, c)
}

// A sweep goes at full speed where nobody else writes. Beside somebody who writes all the time it takes a
// small part of the store's time, and after an hour it takes what it needs to end.
func TestSweepGivesWay(t *testing.T) {
	rt, err := sandbox.Open(t.Context(), sandbox.Config{CacheDir: cacheDir})
	if err != nil {
		t.Fatal(err)
	}
	defer rt.Close()
	for _, c := range []struct {
		name           string
		commit         time.Duration
		busy           bool
		longest, share time.Duration // the share is one in so many
	}{
		{"beside nobody", 4 * time.Millisecond, false, 405 * time.Millisecond, 1},
		{"beside a writer", 4 * time.Millisecond, true, 100 * 45 * time.Millisecond, 6},
		{"beside a writer, for an hour", 30 * time.Second, true, 3 * time.Hour, 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &slow{Store: oldChains(t, 2001), turn: make(chan struct{}, 1), commit: c.commit}
				s.turn <- struct{}{}
				h, err := host.Open(t.Context(), s, host.Config{Runtime: rt, Logger: slog.New(slog.DiscardHandler), Retention: policy.Retention{After: 24 * time.Hour}})
				if err != nil {
					t.Fatal(err)
				}
				defer h.Close()
				ctx, cancel := context.WithCancel(t.Context())
				ended := make(chan struct{})
				go func() {
					defer close(ended)
					for n := 0; c.busy && ctx.Err() == nil; n++ { // what changes nothing is not written
						if err := h.Pause(t.Context(), "w", keep.Decision{By: "ann", Note: fmt.Sprint("note ", n)}); err != nil {
							t.Error(err)
							return
						}
					}
				}()
				began := time.Now()
				s.sweeping = 0
				h.Sweep(ctx)
				took := time.Since(began)
				cancel()
				<-ended
				if counts, err := s.CountRuns(t.Context(), keep.RunFilter{}); err != nil || counts[keep.StatusCommitted] != 1 {
					t.Errorf("the sweep left %v, %v, want the newest run", counts, err)
				}
				if took > c.longest || s.sweeping*c.share > took {
					t.Errorf("the sweep took %s, and %s of it of the store; want at most %s, and one in %d of it", took, s.sweeping, c.longest, c.share)
				}
			})
		})
	}
}

// oldChains makes a store with runs that ended two days ago.
func oldChains(t *testing.T, n int) *memory.Store {
	t.Helper()
	at := time.Now().Add(-48 * time.Hour)
	changes := []keep.Change{keep.Deploy{Deployment: keep.Deployment{Workflow: "w", Version: keep.Version{Major: 1}, Hash: "h", Entry: "w.js",
		Code: []byte("x"), Definition: keep.Definition{Name: "w"}, CreatedAt: at}}}
	for i := range n {
		id := keep.RunID(fmt.Sprintf("run_%05d", i))
		changes = append(changes, keep.PutRun{Run: keep.Run{ID: id, Chain: id, Workflow: "w", Handler: "h", Kind: keep.Consumer, Phase: keep.Committed,
			Status: keep.StatusCommitted, Closed: true, CreatedAt: at, UpdatedAt: at}})
	}
	s := memory.New()
	if err := s.Commit(t.Context(), keep.Commit{Workflow: "w", At: at, Changes: changes}); err != nil {
		t.Fatal(err)
	}
	return s
}

package host_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/host"
	"github.com/keep-run/keep/script/sandbox"
	"github.com/keep-run/keep/store/memory"
)

// A dying store fails a write of counters: before it is durable, or after that, as a kill does.
type dying struct {
	*memory.Store
	writes, dieAt int
	durable       bool
}

var errDied = errors.New("died")

func (d *dying) PutCounters(ctx context.Context, list []keep.Counter, before map[keep.Step]time.Time) error {
	d.writes++
	if d.writes != d.dieAt {
		return d.Store.PutCounters(ctx, list, before)
	}
	if d.durable {
		if err := d.Store.PutCounters(ctx, list, before); err != nil {
			return err
		}
	}
	return errDied
}

// A host that dies at any write of counters leaves what the next one needs: in the end they are
// those of a host that lived, although runs ended between.
func TestCountAfterAKill(t *testing.T) {
	rt, err := sandbox.Open(t.Context(), sandbox.Config{CacheDir: cacheDir})
	if err != nil {
		t.Fatal(err)
	}
	defer rt.Close()
	mem := memory.New()
	now := time.Now().UTC()
	n := 0
	end := func(ago, took time.Duration, status keep.RunStatus) {
		t.Helper()
		n++
		r := keep.Run{ID: keep.RunID(fmt.Sprintf("run_%d", n)), Workflow: "w", Version: keep.Version{Major: 1}, Handler: "h", Kind: keep.Producer, Phase: keep.Running,
			Status: status, Closed: true, CreatedAt: now.Add(-ago - took), UpdatedAt: now.Add(-ago)}
		if r.Chain = r.ID; status == keep.StatusCommitted {
			r.Phase = keep.Committed
		}
		if err := mem.Commit(t.Context(), keep.Commit{Workflow: "w", At: r.UpdatedAt, Changes: []keep.Change{keep.PutRun{Run: r}}}); err != nil {
			t.Fatal(err)
		}
	}
	if err := mem.Commit(t.Context(), keep.Commit{Workflow: "w", At: now.Add(-40 * 24 * time.Hour), Changes: []keep.Change{keep.Deploy{Deployment: keep.Deployment{
		Workflow: "w", Version: keep.Version{Major: 1}, Hash: "h", Entry: "w.js", Code: []byte("x"), Definition: keep.Definition{Name: "w"}}}}}); err != nil {
		t.Fatal(err)
	}
	for _, ago := range []time.Duration{30, 29, 3, 2, 1} { // days
		end(ago*24*time.Hour, time.Second, keep.StatusCommitted)
	}
	count := func(s host.Store) error {
		h, err := host.Open(t.Context(), s, host.Config{Runtime: rt, Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		defer h.Close()
		return h.Count(t.Context())
	}
	writes := 1
	for at := 1; at <= writes; at++ {
		for _, durable := range []bool{false, true} {
			end(time.Duration(10*at)*time.Second, time.Millisecond, keep.StatusCrashed)
			d := &dying{Store: mem, dieAt: at, durable: durable}
			if err := count(d); err != nil && !errors.Is(err, errDied) {
				t.Fatal(err)
			}
			writes = max(writes, min(d.writes+1, 8))
		}
	}
	if err := count(mem); err != nil {
		t.Fatal(err)
	}
	days, err := mem.Counters(t.Context(), keep.Day, "w", now.Add(-100*24*time.Hour), now.Add(48*time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	var sum [2]int
	for _, c := range days {
		sum[0], sum[1] = sum[0]+c.Committed, sum[1]+c.Failed
	}
	if diff := cmp.Diff([2]int{5, n - 5}, sum); diff != "" {
		t.Errorf("committed and failed in all days (-want +got):\n%s", diff)
	}
	if writes < 3 {
		t.Errorf("died at %d writes, want more", writes)
	}
	minutes, err := mem.Counters(t.Context(), keep.Minute, "w", now.Add(-100*24*time.Hour), now.Add(-4*24*time.Hour))
	if err != nil || len(minutes) > 0 {
		t.Errorf("minutes of long ago: %v, %v", minutes, err)
	}
}

package host_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/host"
	law "github.com/keep-run/keep/law/repair"
	"github.com/keep-run/keep/script/sandbox"
	"github.com/keep-run/keep/store/memory"
)

// A lister counts how often runs are listed.
type lister struct {
	*memory.Store
	n atomic.Int64
}

func (l *lister) Runs(ctx context.Context, f keep.RunFilter, p keep.Page) ([]keep.Run, string, error) {
	l.n.Add(1)
	return l.Store.Runs(ctx, f, p)
}

// Escalations takes another time for each workflow, so that work on them overlaps.
func (l *lister) Escalations(ctx context.Context, f keep.EscalationFilter, p keep.Page) ([]keep.Escalation, string, error) {
	time.Sleep(time.Duration(f.Workflow[len(f.Workflow)-1]-'0') * time.Millisecond)
	return l.Store.Escalations(ctx, f, p)
}

// A host whose workflows have failed, and about which people are asked, comes to rest: what it looks
// for besides is bounded by how often it is asked to be idle.
func TestFailedScriptsRest(t *testing.T) {
	const workflows = 12
	db := &lister{Store: memory.New()}
	h, err := host.Open(t.Context(), db, host.Config{Sandbox: sandbox.Config{CacheDir: cacheDir}, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	for i := range workflows {
		b, err := sandbox.BuildSource("w.js", []byte(script(fmt.Sprintf("w%d", i), `producers: { async p() { throw new Error("wrong") } }`)))
		if err != nil {
			t.Fatal(err)
		}
		wf, err := h.LoadBundle(t.Context(), b)
		if err == nil {
			_, err = h.Deploy(t.Context(), wf)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() { h.Close() })
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	var running sync.WaitGroup
	running.Go(func() { _ = h.Run(ctx) })
	const times = 20
	for i := range times + 1 {
		if i == 1 {
			db.n.Store(0) // what failed is known
		}
		if err := h.WaitIdle(ctx); err != nil {
			t.Fatal(err)
		}
	}
	// One list of what failed, and at most two of each workflow, each time.
	if n, most := db.n.Load(), int64((times+10)*(1+2*workflows)); n > most {
		t.Errorf("runs were listed %d times, want %d at most", n, most)
	}
	stop()
	running.Wait()
}

// A question says that a repair was tried only if one was: a workflow that had all repairs of a day gets none.
func TestTried(t *testing.T) {
	s := law.Signature{Workflow: "w", Handler: "h"}
	none := host.Tried(law.Begun(s).Refuse("10 repairs of the workflow began within 24 hours, and that is all that it may have"))
	if none != "No repair was tried.\n10 repairs of the workflow began within 24 hours, and that is all that it may have" {
		t.Errorf("without an attempt: %q", none)
	}
	one, err := law.Begun(s).Begin(law.Limits{Attempts: 1, Tokens: 1}, "run_1", time.Unix(1, 0))
	if err != nil {
		t.Fatal(err)
	}
	if said := host.Tried(one.Refuse("all are used up")); !strings.HasPrefix(said, "A repair was tried, without success.\nattempt 1: ") {
		t.Errorf("after an attempt: %q", said)
	}
}

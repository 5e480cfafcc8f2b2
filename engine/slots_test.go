package engine

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector"
	"github.com/keep-run/keep/engine/lease"
	"github.com/keep-run/keep/law/policy"
)

// A slowTool answers lookups when it is told to.
type slowTool struct {
	connector.Tool
	release chan struct{}

	mu        sync.Mutex // protects the next two
	now, most int
}

func (s *slowTool) Reconcile(ctx context.Context, _ keep.Mutation) (connector.Answer, error) {
	s.mu.Lock()
	s.now++
	s.most = max(s.most, s.now)
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		s.now--
		s.mu.Unlock()
	}()
	select {
	case <-s.release:
		return connector.Answer{Verdict: connector.Absent}, nil
	case <-ctx.Done():
		return connector.Answer{}, context.Cause(ctx)
	}
}

// Law: bounded. Lookups that hang delay those after them by no more than the time
// at which each is cut, and who leaves while it waits asks nothing.
func TestLookupsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &Engine{policy: policy.Default(), asking: make(slots, 3), clock: lease.NewClock(time.Now)}
		slow := &slowTool{release: make(chan struct{})}
		start := time.Now()
		var wg sync.WaitGroup
		for range 7 {
			wg.Go(func() {
				if ans, _, _ := e.reconcile(t.Context(), &tool{set: new(toolSet), name: "crm.create", impl: slow}, keep.Mutation{}); ans.Verdict != connector.Retry {
					t.Errorf("a lookup that hangs is answered %v, want again", ans.Verdict)
				}
			})
		}
		synctest.Wait()
		ctx, cancel := context.WithCancelCause(t.Context())
		left := errors.New("left")
		cancel(left)
		if ans, _, _ := e.reconcile(ctx, &tool{set: new(toolSet), name: "crm.create", impl: slow}, keep.Mutation{}); ans.Verdict != connector.Retry || ans.Detail != "left" {
			t.Errorf("who leaves gets %+v, want again", ans)
		}
		wg.Wait()
		if took := time.Since(start); took != 3*e.policy.Reconcile.Inline || slow.most != 3 {
			t.Errorf("7 lookups that hang took %s, %d at once; want 3 rounds of %s, 3 at once", took, slow.most, e.policy.Reconcile.Inline)
		}
	})
}

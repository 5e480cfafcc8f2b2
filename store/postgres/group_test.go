package postgres

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// A gate is a combiner whose groups wait until they are let through.
type gate struct {
	combiner[int]
	asked chan []*request[int] // the next group
	open  chan struct{}        // lets one through
}

func newGate() *gate {
	g := &gate{asked: make(chan []*request[int]), open: make(chan struct{})}
	g.width, g.limit, g.key = 1, 100, func(n int) string { return fmt.Sprint(n) }
	g.serve = func(_ context.Context, group []*request[int]) {
		g.asked <- group
		<-g.open
		for _, r := range group {
			r.err = fate(r.what)
		}
	}
	return g
}

// fate is the error of each odd request.
func fate(n int) error {
	if n%2 == 0 {
		return nil
	}
	return fmt.Errorf("%d is odd", n)
}

func isFate(n int, err error) bool { return fmt.Sprint(err) == fmt.Sprint(fate(n)) }

// start asks in the background, and returns when that is in the queue.
func (g *gate) start(ctx context.Context, t *testing.T, wg *sync.WaitGroup, n int) {
	t.Helper()
	before := g.length()
	wg.Go(func() {
		if err := g.do(ctx, n); !isFate(n, err) && !errors.Is(err, context.Cause(ctx)) {
			t.Errorf("do(%d) = %v", n, err)
		}
	})
	for g.length() == before {
		runtime.Gosched() // until it is there
	}
}

func (g *gate) length() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.queue)
}

// pass lets the next group through, which must have these requests.
func (g *gate) pass(t *testing.T, want ...int) {
	t.Helper()
	var got []int
	for _, r := range <-g.asked {
		got = append(got, r.what)
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("the group is %v, want %v", got, want)
	}
	g.open <- struct{}{}
}

// atRest checks that nobody serves and nobody waits.
func (g *gate) atRest(t *testing.T) {
	t.Helper()
	if g.leaders != 0 || len(g.queue) != 0 {
		t.Errorf("%d serve and %d wait at the end", g.leaders, len(g.queue))
	}
}

func TestCombiner_serves_together_who_came_meanwhile(t *testing.T) {
	g, wg := newGate(), new(sync.WaitGroup)
	wg.Go(func() { _ = g.do(t.Context(), 1) })
	first := <-g.asked
	for _, n := range []int{2, 3, 2, 4} { // one key twice
		g.start(t.Context(), t, wg, n)
	}
	if g.open <- struct{}{}; len(first) != 1 {
		t.Errorf("%d in the first group", len(first))
	}
	g.pass(t, 2, 3, 4)
	g.pass(t, 2)
	wg.Wait()
	g.atRest(t)
}

// Beside a group another leaves only when it is large enough.
func TestCombiner_lets_a_large_group_leave_beside_another(t *testing.T) {
	g, wg := newGate(), new(sync.WaitGroup)
	g.width, g.worth, g.after = 2, 3, time.Hour
	wg.Go(func() { _ = g.do(t.Context(), 1) })
	first := <-g.asked
	g.start(t.Context(), t, wg, 2)
	g.start(t.Context(), t, wg, 3)
	g.mu.Lock()
	if g.leaders != 1 || len(first) != 1 {
		t.Errorf("%d lead while two wait, want one", g.leaders)
	}
	g.mu.Unlock()
	wg.Go(func() { _ = g.do(t.Context(), 4) })
	second := <-g.asked
	if len(second) != 3 {
		t.Errorf("%d left beside the first group, want 3", len(second))
	}
	g.start(t.Context(), t, wg, 5)
	g.open <- struct{}{} // one of the two; it leaves 5 to the other
	g.open <- struct{}{}
	g.pass(t, 5)
	wg.Wait()
	g.atRest(t)
}

// Beside a group that takes long a small one leaves, too.
func TestCombiner_waits_no_longer_than_it_may(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, wg := newGate(), new(sync.WaitGroup)
		g.width, g.worth, g.after = 2, 3, time.Minute
		for n := range 4 {
			wg.Go(func() { _ = g.do(t.Context(), n) })
			synctest.Wait()
			if n == 0 {
				<-g.asked
			}
			if n == 1 {
				time.Sleep(time.Minute - 1)
				synctest.Wait()
				if g.leaders != 1 {
					t.Errorf("%d lead before it is time", g.leaders)
				}
				time.Sleep(1)
				if second := <-g.asked; len(second) != 1 {
					t.Errorf("%d left beside the first group, want 1", len(second))
				}
			}
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		if g.leaders != 2 {
			t.Errorf("%d lead, want 2", g.leaders)
		}
		g.open <- struct{}{}
		g.open <- struct{}{}
		if last := <-g.asked; len(last) != 2 {
			t.Errorf("%d left at last, want 2", len(last))
		}
		g.open <- struct{}{}
		wg.Wait()
		time.Sleep(time.Hour) // the timer finds nobody
		g.atRest(t)
	})
}

// The task to serve must not get lost with a caller who leaves.
func TestCombiner_lets_callers_leave(t *testing.T) {
	g, wg := newGate(), new(sync.WaitGroup)
	wg.Go(func() { _ = g.do(t.Context(), 1) })
	first := <-g.asked
	why := errors.New("enough")
	ctx, leave := context.WithCancelCause(t.Context())
	defer leave(nil)
	g.start(ctx, t, wg, 2)
	g.start(t.Context(), t, wg, 3)
	leave(why)
	for g.length() == 2 {
		runtime.Gosched() // until it left
	}
	if g.open <- struct{}{}; len(first) != 1 {
		t.Errorf("%d in the first group", len(first))
	}
	g.pass(t, 3)
	wg.Wait()
	g.atRest(t)
}

func TestCombiner_gives_each_of_many_its_fate(t *testing.T) {
	g := newGate()
	g.width, g.limit, g.worth, g.gathers = 2, 7, 5, true
	g.serve = func(_ context.Context, group []*request[int]) {
		if seen := make(map[int]bool); len(group) <= 7 {
			for _, r := range group {
				if r.err = fate(r.what); seen[r.what] {
					r.err = errors.New("twice in one group")
				}
				seen[r.what] = true
			}
		}
	}
	var wg sync.WaitGroup
	for i := range 100 {
		wg.Go(func() {
			for n := range 100 {
				ctx, cancel := context.WithCancel(t.Context())
				if (i+n)%7 == 0 {
					wg.Go(cancel) // leaves at any point
				}
				what := (i * n) % 50
				if err := g.do(ctx, what); !isFate(what, err) && !errors.Is(err, context.Canceled) {
					t.Errorf("do(%d) = %v", what, err)
				}
				cancel()
			}
		})
	}
	wg.Wait()
	g.atRest(t)
	g.close()
	if err := g.do(t.Context(), 2); !errors.Is(err, ErrClosed) {
		t.Errorf("do after close = %v", err)
	}
}

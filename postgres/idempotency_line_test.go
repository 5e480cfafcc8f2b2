package postgres

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"testing"

	"github.com/keep-run/keep/idempotency/key"
)

// id returns the n-th id.
func id(n int) key.ID { return key.ID{byte(n), byte(n >> 8), 1} }

// A gate is a line whose round trips wait until they are let through.
type gate struct {
	line[int]
	asked chan []*turn[int] // what the next round trip asks
	open  chan struct{}     // lets one through
}

func newGate() *gate {
	g := &gate{asked: make(chan []*turn[int]), open: make(chan struct{})}
	g.atOnce = 1
	g.ask = func(ctx context.Context, group []*turn[int]) {
		g.asked <- group
		select {
		case <-g.open:
			for _, t := range group {
				t.answer = int(t.id[0])
			}
		case <-ctx.Done():
			for _, t := range group {
				t.err = context.Cause(ctx)
			}
		}
	}
	return g
}

// start asks in the background; once returns when that is in the line.
func (g *gate) start(ctx context.Context, n int, wg *sync.WaitGroup, t *testing.T) {
	t.Helper()
	before := g.length()
	wg.Go(func() {
		got, err := g.do(ctx, id(n), key.Record{})
		if err == nil && got != n || err != nil && ctx.Err() == nil {
			t.Errorf("turn %d = %d, %v", n, got, err)
		}
	})
	for g.length() == before {
		runtime.Gosched() // until it is there
	}
}

func (g *gate) length() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.waiting)
}

// first starts a turn and returns when it is being asked.
func (g *gate) first(t *testing.T, wg *sync.WaitGroup) {
	t.Helper()
	wg.Go(func() {
		if got, err := g.do(t.Context(), id(1), key.Record{}); got != 1 || err != nil {
			t.Errorf("turn 1 = %d, %v", got, err)
		}
	})
	if group := <-g.asked; len(group) != 1 {
		t.Fatalf("%d in the first round trip", len(group))
	}
}

func TestLine_asks_together_for_all_who_came_meanwhile(t *testing.T) {
	g, wg := newGate(), new(sync.WaitGroup)
	g.first(t, wg)
	for _, n := range []int{2, 3, 2, 4} { // one record twice
		g.start(t.Context(), n, wg, t)
	}
	g.open <- struct{}{}
	if group := <-g.asked; len(group) != 3 {
		t.Errorf("%d in the second round trip, want 3: a record is in it at most once", len(group))
	}
	g.open <- struct{}{}
	if group := <-g.asked; len(group) != 1 || group[0].id != id(2) {
		t.Errorf("%d in the third round trip, want the second turn of record 2", len(group))
	}
	g.open <- struct{}{}
	wg.Wait()
	if g.serving != 0 || len(g.waiting) != 0 {
		t.Errorf("%d serve and %d wait at the end", g.serving, len(g.waiting))
	}
}

// The duty to serve must not get lost with a caller who leaves.
func TestLine_lets_callers_leave(t *testing.T) {
	g, wg := newGate(), new(sync.WaitGroup)
	g.first(t, wg)
	why := errors.New("enough")
	ctx, leave := context.WithCancelCause(t.Context())
	defer leave(nil)
	left := make(chan error)
	go func() {
		_, err := g.do(ctx, id(2), key.Record{})
		left <- err
	}()
	for g.length() == 0 {
		runtime.Gosched()
	}
	g.start(t.Context(), 3, wg, t)
	leave(why)
	if err := <-left; !errors.Is(err, why) {
		t.Errorf("who left got %v, want the cause", err)
	}
	g.open <- struct{}{}
	if group := <-g.asked; len(group) != 1 || group[0].id != id(3) {
		t.Errorf("%d in the round trip after one left, want turn 3 alone", len(group))
	}
	g.open <- struct{}{}
	wg.Wait()
	if g.serving != 0 || len(g.waiting) != 0 {
		t.Errorf("%d serve and %d wait at the end", g.serving, len(g.waiting))
	}
}

// A round trip that nobody waits for any more ends.
func TestLine_gives_up_a_round_trip_that_nobody_waits_for(t *testing.T) {
	g := newGate()
	ctx, leave := context.WithCancel(t.Context())
	left := make(chan error)
	go func() {
		_, err := g.do(ctx, id(1), key.Record{})
		left <- err
	}()
	<-g.asked
	leave()
	if err := <-left; !errors.Is(err, context.Canceled) {
		t.Errorf("the only one got %v", err)
	}
}

func TestLine_serves_many(t *testing.T) {
	var l line[int]
	l.atOnce = 2
	l.ask = func(_ context.Context, group []*turn[int]) {
		seen := make(map[key.ID]bool)
		for _, t := range group {
			if seen[t.id] {
				t.err = errors.New("twice in one round trip")
			}
			seen[t.id], t.answer = true, int(t.id[0])
		}
	}
	var wg sync.WaitGroup
	for i := range 100 {
		wg.Go(func() {
			for n := range 100 {
				ctx, cancel := context.WithCancel(t.Context())
				if (i+n)%7 == 0 {
					go cancel() // leaves at any point
				}
				want := (i * n) % 50
				if got, err := l.do(ctx, id(want), key.Record{}); err == nil && got != want || err != nil && ctx.Err() == nil {
					t.Errorf("got %d, %v, want %d", got, err, want)
				}
				cancel()
			}
		})
	}
	wg.Wait()
	if l.serving != 0 || len(l.waiting) != 0 {
		t.Errorf("%d serve and %d wait at the end", l.serving, len(l.waiting))
	}
}

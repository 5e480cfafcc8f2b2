package sandbox

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// idleTime is how long an instance may wait for work before it is freed.
const idleTime = 30 * time.Second

// maxGrown is how much more memory than its template an instance may take from the
// system and be used for it.
const maxGrown = 1 << 20

// pool keeps instances between phases. Any instance can run any template.
type pool struct {
	open  func() (*instance, error)
	max   int // instances kept
	limit int // of the memory of an instance: one that reached it cannot be made smaller

	mu     sync.Mutex // protects all below
	idle   []idleInstance
	timer  *time.Timer
	closed bool
}

type idleInstance struct {
	in    *instance
	since time.Time
}

// take returns an instance for a template of that size.
func (p *pool) take(size int) (*instance, error) {
	p.mu.Lock()
	for i := len(p.idle) - 1; i >= 0; i-- { // the warmest first
		if in := p.idle[i].in; in.own.size <= size+maxGrown {
			p.idle = append(p.idle[:i], p.idle[i+1:]...)
			p.mu.Unlock()
			return in, nil
		}
	}
	p.mu.Unlock()
	return p.open()
}

// give takes an instance back, for others or to be freed. size is that of the
// template it ran; an instance that grew much or trapped is not used again.
func (p *pool) give(in *instance, size int) error {
	if in.broken || in.own.size > size+maxGrown || int(in.mem.Size()) >= p.limit {
		return in.close()
	}
	p.mu.Lock()
	var old *instance
	if p.closed {
		p.mu.Unlock()
		return in.close()
	}
	if len(p.idle) >= p.max {
		old = p.idle[0].in
		p.idle = append(p.idle[:0], p.idle[1:]...)
	}
	p.idle = append(p.idle, idleInstance{in, time.Now()})
	if p.timer == nil {
		p.timer = time.AfterFunc(idleTime, p.tick)
	}
	p.mu.Unlock()
	if old != nil {
		return old.close()
	}
	return nil
}

// tick is the timer's function. It sets the timer again as long as anything is
// left.
func (p *pool) tick() {
	p.reap(time.Now().Add(-idleTime))
	p.mu.Lock()
	defer p.mu.Unlock()
	p.timer = nil
	if len(p.idle) > 0 && !p.closed {
		p.timer = time.AfterFunc(idleTime, p.tick)
	}
}

// reap frees what has been idle since before t.
func (p *pool) reap(t time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	keep := p.idle[:0]
	for _, e := range p.idle {
		if e.since.After(t) {
			keep = append(keep, e)
		} else {
			_ = e.in.close() // frees memory; nobody could do anything about it
		}
	}
	p.idle = keep
}

// close frees all idle instances; those in use are freed when they come back.
func (p *pool) close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	if p.timer != nil {
		p.timer.Stop()
	}
	var errs []error
	for _, e := range p.idle {
		errs = append(errs, e.in.close())
	}
	p.idle = nil
	return errors.Join(errs...)
}

// gate hands out the right to execute JavaScript to as many phases as there are
// processors. A phase holds it only while it computes: never during a host
// call, and for no more than a turn when others wait.
//
// A phase that comes back from a host call goes before those that begin, since
// it holds an instance: otherwise many workflows would each hold one and wait.
// It goes before them only once for each call, so it starves nobody.
type gate struct {
	waiting atomic.Int32

	mu   sync.Mutex // protects the next 3 fields
	free int
	back []*turnstile // come back from a host call, in their order
	rest []*turnstile // all others, in their order
}

// turnstile is closed when its phase may continue.
type turnstile struct{ open chan struct{} }

// turn is how long a phase may compute while another one waits.
const turn = 10 * time.Millisecond

func newGate(n int) *gate { return &gate{free: n} }

// enter waits until there is a processor for the phase. comesBack says that it
// does so from a host call.
func (g *gate) enter(ctx context.Context, closed <-chan struct{}, comesBack bool) error {
	g.mu.Lock()
	if g.free > 0 {
		g.free--
		g.mu.Unlock()
		return nil
	}
	queue := &g.rest
	if comesBack {
		queue = &g.back
	}
	t := &turnstile{make(chan struct{})}
	*queue = append(*queue, t)
	g.mu.Unlock()
	g.waiting.Add(1)
	defer g.waiting.Add(-1)
	select {
	case <-t.open:
		return nil
	case <-ctx.Done():
		g.giveUp(queue, t)
		return context.Cause(ctx)
	case <-closed:
		g.giveUp(queue, t)
		return ErrClosed
	}
}

// giveUp takes t out of the queue. If its turn has come meanwhile, the turn is
// passed on.
func (g *gate) giveUp(queue *[]*turnstile, t *turnstile) {
	g.mu.Lock()
	i := slices.Index(*queue, t)
	if i >= 0 {
		*queue = slices.Delete(*queue, i, i+1)
	}
	g.mu.Unlock()
	if i < 0 {
		g.leave()
	}
}

// leave passes the processor on to the first that waits.
func (g *gate) leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, queue := range []*[]*turnstile{&g.back, &g.rest} {
		if len(*queue) > 0 {
			close((*queue)[0].open)
			*queue = slices.Delete(*queue, 0, 1)
			return
		}
	}
	g.free++
}

// contended reports whether somebody waits.
func (g *gate) contended() bool { return g.waiting.Load() > 0 }

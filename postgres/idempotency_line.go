package postgres

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/keep-run/keep/idempotency/key"
)

// A line is a queue of callers who share round trips to the server, and with
// writes also its fsyncs. No goroutine serves it: a caller who finds fewer than
// atOnce others at it asks for all who wait, himself among them, and then leaves
// that duty to one of those who came meanwhile.
type line[A any] struct {
	atOnce int
	ask    func(context.Context, []*turn[A]) // sets answer and err of each

	// mu protects the 2 next fields.
	mu      sync.Mutex
	waiting []*turn[A]
	serving int
}

// A turn is one caller's question and its answer.
type turn[A any] struct {
	ctx context.Context // the caller's: a turn is a call
	id  key.ID
	arg key.Record // of a write

	answer A // set before done is closed, and so is err
	err    error
	done   chan struct{}
	duty   chan struct{} // closed when the caller is to serve the line
}

const (
	// mostInLine is the most questions of one round trip. It bounds how long the
	// first waits, and how much is done again when one of them is refused.
	mostInLine = 64

	// roundTrip is the most time for one: a server that is gone does not hold the
	// line for ever.
	roundTrip = 10 * time.Second
)

// do asks about one record. If ctx ends before the answer is there its cause is
// returned, and a write may be stored all the same.
func (l *line[A]) do(ctx context.Context, id key.ID, arg key.Record) (A, error) {
	if err := context.Cause(ctx); err != nil {
		var none A
		return none, err
	}
	t := &turn[A]{ctx: ctx, id: id, arg: arg, done: make(chan struct{}), duty: make(chan struct{})}
	l.mu.Lock()
	l.waiting = append(l.waiting, t)
	if l.serving < l.atOnce {
		l.serving++
		close(t.duty)
	}
	l.mu.Unlock()
	select {
	case <-t.done:
	case <-t.duty:
		l.serve(t)
	case <-ctx.Done():
	}
	return l.leave(t)
}

// serve asks for those who wait until t is among them.
func (l *line[A]) serve(t *turn[A]) {
	for mine := false; !mine; {
		l.gather()
		group := l.take()
		if len(group) == 0 { // another server of the line has taken t
			select {
			case <-t.done:
			case <-t.ctx.Done():
			}
			return
		}
		mine = slices.Contains(group, t)
		l.roundTrip(t.ctx, group)
	}
}

// gather lets those who were just answered run, for as long as that makes the line
// longer: what they ask next joins this group. It waits for nobody who has
// something else to do.
func (l *line[A]) gather() {
	for was := -1; ; {
		l.mu.Lock()
		length := len(l.waiting)
		l.mu.Unlock()
		if length == was || length >= mostInLine {
			return
		}
		was = length
		for range 4 {
			runtime.Gosched()
		}
	}
}

// roundTrip asks for a group. It ends when nobody waits for it any more.
func (l *line[A]) roundTrip(ctx context.Context, group []*turn[A]) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), roundTrip)
	defer cancel()
	var left atomic.Int64
	for _, t := range group {
		stop := context.AfterFunc(t.ctx, func() {
			if left.Add(1) == int64(len(group)) {
				cancel()
			}
		})
		defer stop()
	}
	l.ask(ctx, group)
	for _, t := range group {
		close(t.done)
	}
}

// take removes the first of the line, each record at most once: two writes of one
// record must not meet in a transaction, where the second would not be stale yet.
func (l *line[A]) take() []*turn[A] {
	l.mu.Lock()
	defer l.mu.Unlock()
	group, rest := make([]*turn[A], 0, min(len(l.waiting), mostInLine)), l.waiting[:0]
	taken := make(map[key.ID]bool, cap(group))
	for _, t := range l.waiting {
		if len(group) == mostInLine || taken[t.id] {
			rest = append(rest, t)
			continue
		}
		taken[t.id] = true
		group = append(group, t)
	}
	clear(l.waiting[len(rest):])
	l.waiting = rest
	return group
}

// leave ends a turn: it returns the answer if there is one, and passes the duty
// on if t had it.
func (l *line[A]) leave(t *turn[A]) (A, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if i := slices.Index(l.waiting, t); i >= 0 {
		l.waiting = slices.Delete(l.waiting, i, i+1)
	}
	if isClosed(t.duty) {
		l.handOver()
	}
	if !isClosed(t.done) {
		var none A
		return none, context.Cause(t.ctx)
	}
	return t.answer, t.err
}

// handOver gives the duty to the first who does not have it. The caller holds mu.
func (l *line[A]) handOver() {
	for _, t := range l.waiting {
		if !isClosed(t.duty) {
			close(t.duty)
			return
		}
	}
	l.serving--
}

func isClosed(ch <-chan struct{}) bool {
	select {
	case <-ch:
		return true
	default:
		return false
	}
}

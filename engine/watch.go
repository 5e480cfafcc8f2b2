package engine

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector"
	"github.com/keep-run/keep/internal/pause"
	"github.com/keep-run/keep/law/policy"
)

// This file makes producers run when a service tells that there is something new
// (connector.Connection.Watch). It saves them the wait until their next tick, and nothing
// else: what is not told, because nobody listened or a host died, is found at the tick.

// A watch waits for one connection, as long as a producer of this host reads it at an
// interval.
type watch struct {
	connection string
	wait       func(ctx context.Context, changed func()) error

	mu      sync.Mutex // protects all below
	readers map[reader]bool
	waits   *waiting // nil: nobody does
	ended   bool     // its connection was replaced, or tells nothing by itself
}

// A waiting is one goroutine that waits.
type waiting struct{ cancel context.CancelFunc }

// A reader is a producer that is run when there is something new.
type reader struct {
	workflow keep.WorkflowName
	handler  keep.HandlerName
}

// newWatch returns the watch of a connection; nil: it has none.
func newWatch(c connector.Connection) *watch {
	if c.Watch == nil {
		return nil
	}
	return &watch{connection: c.Name, wait: c.Watch, readers: make(map[reader]bool)}
}

// watchFor makes news of the connection of t begin runs of the producer that has just read
// it.
func (h *scriptHost) watchFor(t *tool) {
	if w := t.watch; w != nil && h.place == policy.InProducer && t.spec.Effect == connector.List && polls(h.x.def) {
		h.x.e.follow(t.set, w, reader{h.x.a.name, h.x.run.Handler})
	}
}

// polls reports whether a handler is a producer that runs at an interval. One that runs by the
// calendar is not disturbed.
func polls(h keep.Handler) bool { return h.Kind == keep.Producer && h.Schedule.Cron == "" }

// follow adds a producer to a watch, and begins it.
func (e *Engine) follow(set *toolSet, w *watch, r reader) {
	e.mu.Lock()
	spawn := e.spawn
	e.mu.Unlock()
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ended || spawn == nil {
		return
	}
	w.readers[r] = true
	if w.waits != nil {
		return
	}
	leave, me := set.enter(), new(waiting)
	w.waits = me
	me.cancel = spawn(func(ctx context.Context) {
		defer leave()
		e.listen(ctx, w)
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.waits == me {
			w.waits = nil
		}
	})
}

// Bounds of the wait before a watch that failed begins again.
const (
	firstRewatch = time.Second
	maxRewatch   = 5 * time.Minute
)

// listen waits for news until ctx ends.
func (e *Engine) listen(ctx context.Context, w *watch) {
	for failures := 0; ctx.Err() == nil; failures++ {
		began := e.Now()
		err := w.once(ctx, func() { e.tell(w) })
		switch {
		case ctx.Err() != nil:
			return
		case errors.Is(err, errors.ErrUnsupported):
			w.end()
			return
		case e.Now().Sub(began) > maxRewatch:
			failures = 0
		}
		e.log.DebugContext(ctx, "nobody tells of news of a connection for a while; its producers run at their interval", "connection", w.connection, "err", err)
		_ = pause.For(ctx, min(maxRewatch, firstRewatch<<min(failures, 10)))
	}
}

// once waits until the connector gives up. A panic is its failure, and so is the end of its goroutine.
func (w *watch) once(ctx context.Context, changed func()) (err error) {
	guarded(func() { err = w.wait(ctx, changed) }, func(how string) { err = fmt.Errorf("the connector %s", how) })
	return err
}

// tell makes the producers of a watch due.
func (e *Engine) tell(w *watch) {
	w.mu.Lock()
	defer w.mu.Unlock()
	e.mu.Lock()
	defer e.mu.Unlock()
	for r := range w.readers {
		if a := e.actors[r.workflow]; a != nil {
			a.news[r.handler] = true
			a.poke(false)
		}
	}
}

// end ends a watch for good.
func (w *watch) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ended = true
	w.stop()
}

// stop ends the goroutine that waits, if there is one. The caller holds mu.
func (w *watch) stop() {
	if w.waits != nil {
		w.waits.cancel()
		w.waits = nil
	}
}

// unfollow takes the producers of a workflow of which keeps is false out of all watches. A
// watch for nobody ends: another host may wait then.
func (ts *Tools) unfollow(workflow keep.WorkflowName, keeps func(keep.HandlerName) bool) {
	for _, w := range ts.now.Load().watches {
		w.unfollow(workflow, keeps)
	}
}

func (w *watch) unfollow(workflow keep.WorkflowName, keeps func(keep.HandlerName) bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for r := range w.readers {
		if r.workflow == workflow && !keeps(r.handler) {
			delete(w.readers, r)
		}
	}
	if len(w.readers) == 0 {
		w.stop()
	}
}

// hasNews reports whether something new was told to a producer since its last run began.
func (a *actor) hasNews(h keep.HandlerName) bool {
	a.e.mu.Lock()
	defer a.e.mu.Unlock()
	return a.news[h]
}

// takesNews notes that a run of a handler begins: it reads what is new.
func (a *actor) takesNews(h keep.HandlerName) {
	a.e.mu.Lock()
	defer a.e.mu.Unlock()
	delete(a.news, h)
}

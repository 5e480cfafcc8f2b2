package sqlite

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/keep-run/keep"
)

// maxGroup is the most requests that share a transaction. It bounds how long
// the first of them waits, and how much is done again when the group fails.
const maxGroup = 512

// A writer owns the connection that writes. One goroutine, started by
// openWriter and awaited by close, serves the queue.
type writer struct {
	conn     *conn
	path     string // of the database, for errors
	identity *identity
	done     chan struct{} // closed when the goroutine has ended
	wake     chan struct{} // has a value when the queue is not empty

	unindexed int // changes of records that wait until search gets them

	counts counts // what is committed

	groups, served atomic.Uint64 // transactions and the requests in them

	// mu protects the 2 next fields.
	mu     sync.Mutex
	queue  []*request
	closed bool
}

// A request is a function to run in the next transaction, and its fate.
type request struct {
	do    func(*conn) error
	state atomic.Int32  // queued until the writer runs it
	err   error         // set before ready is closed
	ready chan struct{} // closed when the fate is known
}

const (
	queued  = iota
	started // the writer has it: only the writer says how it ends
	dropped // the caller left before that
)

// openWriter opens the connection and starts the goroutine. File is the one at path.
func openWriter(ctx context.Context, path, dsn string, file *os.File, unindexed int) (*writer, error) {
	conn, err := openConn(ctx, dsn)
	if err != nil {
		return nil, err
	}
	err = toWAL(conn)
	var same *identity
	if err == nil {
		same, err = identify(conn, path, file)
	}
	if err != nil {
		return nil, errors.Join(err, conn.close())
	}
	w := &writer{conn: conn, path: path, identity: same, unindexed: unindexed, done: make(chan struct{}), wake: make(chan struct{}, 1)}
	go w.run()
	return w, nil
}

// close lets the queue run empty, then closes the connection.
func (w *writer) close() error {
	w.mu.Lock()
	was := w.closed
	w.closed = true
	w.mu.Unlock()
	if was {
		return nil
	}
	w.signal()
	<-w.done
	return w.conn.close()
}

// do runs f in a transaction and returns when its outcome is on disk. F may run
// more than once, if the group it was in had to be undone; only its last run
// counts, and f must do nothing but use the connection.
//
// If ctx ends before f was started, f is dropped and the cause returned. After
// that do waits for the outcome, whatever happens to ctx.
func (w *writer) do(ctx context.Context, f func(*conn) error) error {
	r := &request{do: f, ready: make(chan struct{})}
	if err := context.Cause(ctx); err != nil {
		return err
	}
	w.mu.Lock()
	if w.closed {
		w.mu.Unlock()
		return ErrClosed
	}
	w.queue = append(w.queue, r)
	w.mu.Unlock()
	w.signal()
	select {
	case <-r.ready:
	case <-ctx.Done():
		if r.state.CompareAndSwap(queued, dropped) {
			return context.Cause(ctx)
		}
		<-r.ready
	}
	return named(r.err, w.path)
}

// signal wakes the goroutine, now or when it next looks.
func (w *writer) signal() {
	select {
	case w.wake <- struct{}{}:
	default: // it knows
	}
}

// run serves the queue until the writer is closed and the queue is empty.
func (w *writer) run() {
	defer close(w.done)
	var group []*request
	for range w.wake {
		for {
			var closed bool
			group, closed = w.take(group[:0])
			if len(group) == 0 {
				if closed {
					return
				}
				break
			}
			w.serve(group)
			w.groups.Add(1)
			w.served.Add(uint64(len(group)))
			if w.conn.unindexed >= w.unindexed {
				w.index()
			}
			w.gather()
		}
	}
}

// index adds records to the search, in a transaction of its own. If that fails,
// searches still read them from their tables, and it is tried again with the next ones.
func (w *writer) index() {
	w.conn.unindexed = 0
	r := &request{do: func(c *conn) error {
		_, err := c.index(indexChunk)
		return err
	}}
	_ = w.transact([]*request{r}, w.call)
}

// gather yields to the callers that just got their answers, for as long as that makes the
// queue longer: their next commits join this group and not the one after, which
// nearly doubles a group. It waits for no caller that has something else to do.
func (w *writer) gather() {
	for was := -1; ; {
		w.mu.Lock()
		length := len(w.queue)
		w.mu.Unlock()
		if length == was || length >= maxGroup {
			return
		}
		was = length
		for range 4 {
			runtime.Gosched()
		}
	}
}

// begins reports whether the request is to be run: its caller waits for it from then on.
func (r *request) begins() bool {
	return r.state.CompareAndSwap(queued, started) || r.state.Load() == started
}

// take moves the requests whose callers still wait from the queue to group. It
// reports whether the writer is closed; an empty group means an empty queue.
func (w *writer) take(group []*request) ([]*request, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for len(w.queue) > 0 && len(group) == 0 {
		n := min(len(w.queue), maxGroup)
		for _, r := range w.queue[:n] {
			if r.state.Load() == queued {
				group = append(group, r)
			}
		}
		w.queue = slices.Delete(w.queue, 0, n)
	}
	return group, w.closed
}

// serve gives every request of the group its fate.
//
// First it hopes: one transaction without savepoints, since a refused commit is
// rare and a savepoint costs as much as two statements and a copy of each page; and
// commits read little, since they find what they expect. If one is refused,
// everything is undone and done again with savepoints, and commits read all. If the
// transaction itself fails, the requests are tried one by one: a commit that does
// not fit on the disk must not take those that do with it. While another process writes, all have waited as long as they may.
func (w *writer) serve(group []*request) {
	err := w.transact(group, w.call)
	w.conn.readAll = true
	defer func() { w.conn.readAll = false }()
	if errors.Is(err, errRefused) && (len(group) > 1 || errors.Is(group[0].err, errUnexpected)) {
		err = w.transact(group, w.attempt)
	}
	if err == nil || len(group) == 1 || isBusy(err) || errors.Is(err, keep.ErrReplaced) {
		w.finish(group, err)
		return
	}
	for i := range group {
		w.finish(group[i:i+1], w.transact(group[i:i+1], w.call))
	}
}

// errRefused ends a transaction in which a request was refused.
var errRefused = errors.New("a request of the group was refused")

// finish announces the fate of requests: err if it is not nil, else their own.
func (w *writer) finish(group []*request, err error) {
	for _, r := range group {
		if err != nil && !errors.Is(err, errRefused) {
			r.err = err
		}
		close(r.ready)
	}
}

// transact runs the group in one transaction. A nil error means that it is on
// disk; keep.ErrReplaced, that the disk has it where nobody will look; any other, that it
// was undone as far as SQLite can tell.
func (w *writer) transact(group []*request, run func(*request) error) error {
	if _, err := w.conn.exec(`BEGIN IMMEDIATE`); err != nil {
		return err
	}
	if err := w.counts.begin(w.conn); err != nil {
		return w.undo(err)
	}
	for _, r := range group {
		if !r.begins() { // its caller left while another process was writing
			continue
		}
		if err := run(r); err != nil {
			return w.undo(err)
		}
	}
	said, err := w.counts.count(w.conn)
	if err != nil {
		return w.undo(err)
	}
	if _, err := w.conn.exec(`COMMIT`); err != nil {
		return w.undo(err)
	}
	// What was committed counts only if somebody will find it.
	err = w.identity.check()
	if err == nil && said != nil {
		w.counts.owed = false
		w.counts.say(*said, w.path)
	}
	return err
}

// attempt runs one request in a savepoint, so that one that is refused leaves
// nothing behind and the others stay. What it returns is the end of the
// transaction; what only concerns the request is in r.err.
func (w *writer) attempt(r *request) error {
	if _, err := w.conn.exec(`SAVEPOINT one`); err != nil {
		return err
	}
	if err := w.call(r); err != nil {
		if !errors.Is(err, errRefused) {
			return err
		}
		if _, err := w.conn.exec(`ROLLBACK TO one`); err != nil {
			return err
		}
	}
	_, err := w.conn.exec(`RELEASE one`)
	return err
}

// call runs the request's function and keeps what it says in r.err. A panic in
// it is a bug of ours; the writer survives it, since every workflow depends on it.
func (w *writer) call(r *request) error {
	func() {
		defer func() {
			if p := recover(); p != nil {
				r.err = fmt.Errorf("commit panicked: %v\n%s", p, debug.Stack())
			}
		}()
		r.err = r.do(w.conn)
	}()
	switch {
	case ofDatabase(r.err):
		return r.err
	case r.err != nil:
		return errRefused
	}
	return nil
}

// undo rolls the transaction back and returns why. After a full disk or a read
// error SQLite may have done so itself; then there is none to roll back, and
// that is no error.
func (w *writer) undo(cause error) error {
	_, _ = w.conn.exec(`ROLLBACK`)
	return cause
}

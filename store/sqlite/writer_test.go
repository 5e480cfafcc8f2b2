package sqlite

import (
	"context"
	"errors"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/keep-run/keep"
)

// openBlocked returns a database whose writer is busy until release is called.
func openBlocked(t *testing.T) (db *DB, release func()) {
	t.Helper()
	db = New(filepath.Join(t.TempDir(), "keep.db"), Config{})
	if err := db.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	started, gate := make(chan struct{}), make(chan struct{})
	done := make(chan error)
	go func() {
		done <- db.write.do(context.Background(), func(*conn) error {
			close(started)
			<-gate
			return nil
		})
	}()
	<-started
	release = sync.OnceFunc(func() {
		close(gate)
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() {
		release()
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	return db, release
}

func deployment(name keep.WorkflowName) keep.Commit {
	return keep.Commit{Workflow: name, At: time.UnixMilli(1), Changes: []keep.Change{
		keep.Deploy{Deployment: keep.Deployment{Workflow: name, Version: keep.Version{Major: 1}}},
	}}
}

// queue commits in the background and returns when the writer has it queued.
func queue(ctx context.Context, t *testing.T, db *DB, c keep.Commit) <-chan error {
	t.Helper()
	return inQueue(t, db, func() error { return db.Commit(ctx, c) })
}

// queueDo is queue for what is no commit.
func queueDo(t *testing.T, db *DB, f func(*conn) error) <-chan error {
	t.Helper()
	return inQueue(t, db, func() error { return db.write.do(t.Context(), f) })
}

func inQueue(t *testing.T, db *DB, do func() error) <-chan error {
	t.Helper()
	length := func() int {
		db.write.mu.Lock()
		defer db.write.mu.Unlock()
		return len(db.write.queue)
	}
	before := length()
	err := make(chan error, 1)
	go func() { err <- do() }()
	for length() == before {
		runtime.Gosched() // until it is there
	}
	return err
}

func TestACommitThatWasNotStartedIsDroppedWithItsContext(t *testing.T) {
	db, release := openBlocked(t)
	why := errors.New("stopping")
	ctx, cancel := context.WithCancelCause(t.Context())
	dropped, kept := queue(ctx, t, db, deployment("dropped")), queue(t.Context(), t, db, deployment("kept"))
	cancel(why)
	if err := <-dropped; !errors.Is(err, why) {
		t.Errorf("Commit = %v, want the cause", err)
	}
	release()
	if err := <-kept; err != nil {
		t.Errorf("Commit = %v", err)
	}
	list, err := db.Workflows(t.Context())
	if err != nil || len(list) != 1 || list[0].Name != "kept" {
		t.Errorf("Workflows = %v, %v", list, err)
	}
}

// A commit that waits while another process writes ends with its context, and is not made later.
func TestACommitThatWaitsForAnotherProcessEndsWithItsContext(t *testing.T) {
	path := filepath.Join(t.TempDir(), "keep.db")
	db, other := New(path, Config{BusyTimeout: time.Minute}), New(path, Config{})
	for _, db := range []*DB{db, other} {
		if err := db.Open(t.Context()); err != nil {
			t.Fatal(err)
		}
		defer db.Close()
	}
	why := errors.New("the caller left")
	err := other.write.do(t.Context(), func(*conn) error { // it holds the lock of the file
		ctx, leave := context.WithTimeoutCause(t.Context(), 50*time.Millisecond, why)
		defer leave()
		if err := db.Commit(ctx, deployment("late")); !errors.Is(err, why) {
			t.Errorf("Commit: %v, want %v", err, why)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := db.Commit(t.Context(), deployment("kept")); err != nil {
		t.Fatal(err)
	}
	if _, err := db.Workflow(t.Context(), "late"); !errors.Is(err, keep.ErrNotFound) {
		t.Errorf("the commit whose caller left: %v, want none", err)
	}
}

// Commits that wait together while another process writes wait as long as Config.BusyTimeout says, not one after the other.
func TestCommitsThatWaitForAnotherProcessEndTogether(t *testing.T) {
	path := filepath.Join(t.TempDir(), "keep.db")
	db, other := New(path, Config{BusyTimeout: 50 * time.Millisecond}), New(path, Config{})
	for _, db := range []*DB{db, other} {
		if err := db.Open(t.Context()); err != nil {
			t.Fatal(err)
		}
		defer db.Close()
	}
	writes, end := make(chan struct{}), make(chan struct{})
	holder := &request{ready: make(chan struct{}), do: func(*conn) error { // it holds the lock of the file
		close(writes)
		<-end
		return nil
	}}
	other.write.enqueue(holder)
	<-writes
	var group []*request
	for range 9 {
		group = append(group, &request{ready: make(chan struct{}), do: func(*conn) error { return nil }})
	}
	db.write.enqueue(group...)
	<-group[0].ready
	close(end)
	for i, r := range group {
		if <-r.ready; !isBusy(r.err) {
			t.Errorf("number %d of a group: %v, want that the database is locked", i+1, r.err)
		}
	}
	if <-holder.ready; holder.err != nil {
		t.Error(holder.err)
	}
	if err := db.Commit(t.Context(), deployment("kept")); err != nil {
		t.Errorf("afterwards: %v", err)
	}
}

// enqueue puts requests into the queue at once.
func (w *writer) enqueue(rs ...*request) {
	w.mu.Lock()
	w.queue = append(w.queue, rs...)
	w.mu.Unlock()
	w.signal()
}

func TestACommitThatWasStartedIsAwaited(t *testing.T) {
	db, release := openBlocked(t)
	release()
	ctx, cancel := context.WithCancel(t.Context())
	err := db.write.do(ctx, func(c *conn) error {
		cancel()
		return apply(c, deployment("w"))
	})
	if err != nil {
		t.Errorf("do = %v, want the fate of the commit", err)
	}
	if list, err := db.Workflows(t.Context()); err != nil || len(list) != 1 {
		t.Errorf("Workflows = %v, %v", list, err)
	}
}

func TestEachCommitOfAGroupHasItsOwnFate(t *testing.T) {
	db, release := openBlocked(t)
	bad := deployment("bad")
	bad.Changes = append(bad.Changes, keep.AppendLogs{Lines: []keep.LogLine{{Run: "unknown"}}})
	first := queue(t.Context(), t, db, deployment("first"))
	refused := queue(t.Context(), t, db, bad)
	last := queue(t.Context(), t, db, deployment("last"))
	// What was written before an error is undone, and nothing else of the group.
	panics := queueDo(t, db, func(c *conn) error {
		if err := c.script(`INSERT INTO meta VALUES ('half', 'written')`); err != nil {
			return err
		}
		panic("a bug")
	})
	release()
	if err := <-first; err != nil {
		t.Errorf("first: %v", err)
	}
	if err := <-refused; !errors.Is(err, keep.ErrNotFound) {
		t.Errorf("refused: %v", err)
	}
	if err := <-last; err != nil {
		t.Errorf("last: %v", err)
	}
	if err := <-panics; err == nil || !strings.Contains(err.Error(), "a bug") {
		t.Errorf("panic: %v", err)
	}
	list, err := db.Workflows(t.Context())
	if err != nil || len(list) != 2 || list[0].Name != "first" || list[1].Name != "last" {
		t.Errorf("Workflows = %v, %v, want first and last", list, err)
	}
	var half int
	if err := db.row(t.Context(), `SELECT count(*) FROM meta WHERE name = 'half'`, nil, &half); err != nil || half != 0 {
		t.Errorf("the request that panicked left %d rows, %v", half, err)
	}
}

func TestCloseAwaitsTheQueue(t *testing.T) {
	db, release := openBlocked(t)
	queued := queue(t.Context(), t, db, deployment("w"))
	closed := make(chan error)
	go func() { closed <- db.Close() }()
	release()
	if err := <-closed; err != nil {
		t.Errorf("Close = %v", err)
	}
	if err := <-queued; err != nil {
		t.Errorf("a commit that was queued before Close: %v", err)
	}
}

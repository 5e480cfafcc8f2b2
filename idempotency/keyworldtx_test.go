package idempotency_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/idempotency"
	"github.com/keep-run/keep/law/key"
)

func itoa(n int) string { return strconv.Itoa(n) }

// keyBusy is how long a writer waits for the file.
const keyBusy = 10 * time.Second

var errBusyFile = errors.New("the database is locked")

// keyLocks are held by who writes.
type keyLocks struct {
	mu   sync.Mutex
	held map[any]chan struct{}
}

// take waits until what is free, and holds it.
func (l *keyLocks) take(ctx context.Context, p *keyProcess, what any) error {
	busy := time.NewTimer(keyBusy)
	defer busy.Stop()
	for {
		l.mu.Lock()
		held, ok := l.held[what]
		if !ok {
			if l.held == nil {
				l.held = make(map[any]chan struct{})
			}
			l.held[what] = make(chan struct{})
			l.mu.Unlock()
			return nil
		}
		l.mu.Unlock()
		select {
		case <-held:
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-busy.C:
			return errBusyFile
		case <-p.dead:
			return errLost
		}
	}
}

// give frees what was taken.
func (l *keyLocks) give(what any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	close(l.held[what])
	delete(l.held, what)
}

// lockOf is what is locked by who writes a record.
func (w *keyWorld) lockOf(id key.ID) any {
	if w.rows {
		return id
	}
	return "file"
}

// keyTxStore and keyTxTaker have transactions.
type (
	keyTxStore struct{ keyStore }
	keyTxTaker struct{ keyTaker }
)

func (p *keyProcess) openTxStore(s keyStore) idempotency.Store {
	if p.w.taker {
		return keyTxTaker{keyTaker{s}}
	}
	return keyTxStore{s}
}

func (s keyTxStore) Begin(ctx context.Context) (key.Tx, error) { return s.begin(ctx) }
func (s keyTxTaker) Begin(ctx context.Context) (key.Tx, error) { return s.begin(ctx) }

// A keyTxn is a transaction of the database in which records and effects are.
type keyTxn struct {
	p *keyProcess
	s keyStore

	// w.mu protects what follows.
	locked     any // nil: nothing is
	effects    []*execution
	record     *key.Record
	ended      bool // by its handler, or by who commits or rolls back
	committing bool
}

func (s keyStore) begin(ctx context.Context) (key.Tx, error) {
	w := s.p.w
	if _, err := s.fate(ctx, true); err != nil {
		return nil, err
	}
	t := &keyTxn{p: s.p, s: s}
	if !w.rows {
		if err := w.locks.take(ctx, s.p, "file"); err != nil {
			return nil, err
		}
		t.locked = "file"
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if s.p.gone.Load() {
		t.end()
		return nil, errLost
	}
	w.txs = append(w.txs, t)
	w.saw("transaction: begun")
	return t, nil
}

// end gives back what the transaction locked. w.mu is held.
func (t *keyTxn) end() {
	t.ended = true
	if t.locked != nil {
		t.p.w.locks.give(t.locked)
		t.locked = nil
	}
	t.p.w.txs = slices.DeleteFunc(t.p.w.txs, func(o *keyTxn) bool { return o == t })
	for _, e := range t.effects {
		e.waits = false
	}
}

// dies rolls back what a process that was killed has not committed. w.mu is held.
func (t *keyTxn) dies() {
	if !t.ended && !t.committing {
		t.p.w.saw("transaction: dies with its process")
		t.end()
	}
}

// Handle implements key.Tx.
func (t *keyTxn) Handle() any { return t }

// Write implements key.Tx.
func (t *keyTxn) Write(ctx context.Context, r key.Record) error {
	w := t.p.w
	w.mu.Lock()
	ended, mine := t.ended, t.locked == any(r.ID)
	w.mu.Unlock()
	if ended {
		return key.ErrTxEnded
	}
	if _, err := t.s.fate(ctx, true); err != nil { // with the connection the transaction is gone
		_ = t.Rollback()
		return err
	}
	if w.rows && !mine {
		if err := w.locks.take(ctx, t.p, r.ID); err != nil {
			_ = t.Rollback()
			return err
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if t.ended {
		if w.rows && !mine {
			w.locks.give(r.ID)
		}
		return key.ErrTxEnded
	}
	was, err := w.store.Read(context.WithoutCancel(ctx), r.ID)
	if err == nil && was.Rev != r.Rev {
		err = keep.ErrStale
	}
	if err != nil {
		if w.rows && !mine {
			w.locks.give(r.ID)
		}
		return err
	}
	if w.rows {
		t.locked = r.ID
	}
	t.record = &r
	return nil
}

// Commit implements key.Tx.
func (t *keyTxn) Commit(ctx context.Context) error {
	w := t.p.w
	w.mu.Lock()
	if t.ended {
		w.mu.Unlock()
		return errors.New("the transaction is over")
	}
	late := w.rows && w.faults > 0 && chance(t.p.lucky, 0.05)
	delay := span(t.p.lucky, 25*time.Second)
	w.mu.Unlock()
	if late {
		return t.comesLate(ctx, delay)
	}
	fate, err := t.s.fate(ctx, true)
	if err != nil {
		_ = t.Rollback()
		return err
	}
	if err := t.commit(); err != nil {
		return err
	}
	if t.p.at("after a write") || fate == "is made, and its answer lost" {
		return errLost
	}
	return nil
}

// comesLate has the server commit although nobody waits for its answer any more.
func (t *keyTxn) comesLate(ctx context.Context, delay time.Duration) error {
	w := t.p.w
	w.mu.Lock()
	w.saw("transaction: committed late")
	w.note("process %d: a commit comes late, in %s", t.p.n, delay)
	t.committing = true
	w.mu.Unlock()
	done := make(chan struct{})
	w.working.Go(func() {
		defer close(done)
		time.Sleep(delay)
		_ = t.commit()
	})
	select {
	case <-time.After(delay / 3):
	case <-ctx.Done():
	case <-t.p.dead:
	}
	return errLost
}

// commit makes all of it at once.
func (t *keyTxn) commit() error {
	w := t.p.w
	w.mu.Lock()
	defer w.mu.Unlock()
	if t.ended {
		return errors.New("the transaction is over")
	}
	t.end()
	if t.record != nil {
		if err := w.writeLocked(context.Background(), t.p, *t.record); err != nil {
			w.broken("all-or-nothing", "a record that a transaction had locked is not as it was: %v", err)
			return err
		}
		w.note("process %d commits %s %s with %d effects", t.p.n, t.record.Key, t.record.State, len(t.effects))
	}
	for _, e := range t.effects {
		w.effect(e)
	}
	w.saw("transaction: committed")
	return nil
}

// Rollback implements key.Tx.
func (t *keyTxn) Rollback() error {
	w := t.p.w
	w.mu.Lock()
	defer w.mu.Unlock()
	if !t.ended && !t.committing {
		w.saw("transaction: rolled back")
		t.end()
	}
	return nil
}

// Ways of handlers in transactions.
const (
	commitsItself   = "commits itself"
	rollsBackItself = "rolls back itself"
	besides         = "works in another database" // which is committed by the handler
)

// worksInTx is what a handler does that has a transaction.
func (p *keyProcess) worksInTx(e *execution, rw http.ResponseWriter, r *http.Request, before, after time.Duration) {
	w := p.w
	defer p.ends(e)
	w.mu.Lock()
	bare := !idempotency.Guarded(r.Context())
	e.fenced, e.bare = !bare, bare
	if !bare && !p.file.atomic {
		switch what := w.kin.IntN(20); {
		case what < 2:
			e.how = commitsItself
		case what < 3:
			e.how = rollsBackItself
		case what < 6:
			e.how = besides
		}
	}
	if !bare && p.file.atomic && chance(w.kin, 0.03) {
		e.how = rollsBackItself // one that commits breaks its promise
	}
	early := chance(w.kin, 0.5)
	e.fenced = e.fenced && e.how != besides && e.how != commitsItself
	w.note("%s: %s, without a record %t", e, e.how, bare)
	w.mu.Unlock()
	if bare || e.how == besides {
		time.Sleep(before)
		p.commitsOther(e)
		time.Sleep(after)
		e.answer(rw, r)
		return
	}
	if !early { // slow things come first
		time.Sleep(before)
	}
	tx, err := idempotency.Tx[*keyTxn](r.Context())
	if err != nil {
		w.mu.Lock()
		e.how = refusesToBegin
		w.saw("handler: " + e.how)
		w.mu.Unlock()
		e.answer(rw, r)
		return
	}
	if again, err := idempotency.Tx[*keyTxn](r.Context()); again != tx || err != nil {
		w.t.Errorf("the second Tx is another one, or %v", err)
	}
	w.mu.Lock()
	if !tx.ended {
		tx.effects, e.waits, e.staged = append(tx.effects, e), true, true
	}
	w.mu.Unlock()
	if early {
		time.Sleep(before)
	}
	time.Sleep(after)
	switch e.how {
	case commitsItself:
		_ = tx.commit()
	case rollsBackItself:
		_ = tx.Rollback()
	}
	e.answer(rw, r)
}

// commitsOther has the effect in a database that is not that of the key. Who does not hear what became of it says so.
func (p *keyProcess) commitsOther(e *execution) {
	w := p.w
	w.mu.Lock()
	defer w.mu.Unlock()
	does := slices.Contains([]string{makes, failsAfter, cutAfter, panicAfter, doubtAfter, streams, besides}, e.how)
	if !does || p.gone.Load() {
		return
	}
	made := true
	if e.how == besides {
		if made = chance(w.kin, 0.7); !made || chance(w.kin, 0.3) {
			e.how = pick(w.kin, doubtAfter, doubtAfter, panicDoubts) // the commit is lost, or its answer
		}
	}
	if made {
		w.effect(e)
	}
}

const panicDoubts = "doubts, and panics"

// undone looks at a key that its owner, or the end of a lease, says is free. w.mu is held.
func (w *keyWorld) undone(m *wanted, was, r key.Record) {
	w.saw("released by the " + r.ResolvedBy)
	if r.ResolvedBy == "lease" && !was.Atomic {
		w.broken("doubt-is-not-failure", "%s is free, since its lease ended", m)
	}
	if m.effects > 0 && m.excused == 0 {
		w.broken("doubt-is-not-failure", "%s is free, and happened", m)
	}
	m.held = false
}

// settledInTx compares an answer with what was committed. w.mu is held.
func (w *keyWorld) settledInTx(e *execution, a *keyAnswer) {
	if !e.staged || e.how == commitsItself || e.how == rollsBackItself {
		return
	}
	want := 1
	if a.status >= 500 || e.nothing() {
		want = 0
	}
	w.saw(fmt.Sprintf("transaction: answered, effects %d", e.effects))
	if e.effects != want {
		w.broken("all-or-nothing", "%s (%s) is answered %d, replayed %t, and what is in its transaction is there %d times", e, e.how, a.status, a.replayed, e.effects)
	}
}

func txSights() []string {
	return []string{
		"transaction: begun", "transaction: committed", "transaction: rolled back", "transaction: committed late", "transaction: dies with its process",
		"transaction: answered, effects 0", "transaction: answered, effects 1", "released by the lease", "released by the owner", "handler: " + refusesToBegin,
		"killed after a write", "store: is made, and its answer lost", "executed without a record", "a doubt", "answer: 201, replayed true",
		"answer: 500, replayed true", "problem: body-not-stored", "problem: outcome-unknown",
	}
}

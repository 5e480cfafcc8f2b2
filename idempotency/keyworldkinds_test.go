package idempotency_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/idempotency"
	"github.com/keep-run/keep/law/key"
)

// # Kinds of worlds of keys
//
// The worlds of other kinds have all that the first one has, and what else their names say:
//
//   - transactions: handlers that work in the transaction of their key, in a file with one place to write or in a database with rows, and commit,
//     roll back, die between, lose the answer to a commit, or have it come late.
//   - configurations: guards on one store with other rules than their neighbours, and edits of one of them under a doubt.
//   - people: two persons at two hosts, with stores that are slow and lose what is written, decide at the same time, while retries are under way.
//   - proxy: see keyworldproxy_test.go.
//   - clocks: machines whose clocks differ by more than a lease, and a store with a time of its own.
const (
	kindPlain  = "plain"
	kindTx     = "transactions"
	kindMixed  = "configurations"
	kindPeople = "people"
	kindProxy  = "proxy"
	kindClocks = "clocks"
)

// kinds is what the later kinds of worlds have.
type kinds struct {
	kin     *rand.Rand // of what only they draw
	mixed   bool       // guards know callers in two ways
	rows    bool       // a transaction locks rows, not the file
	locks   keyLocks
	txs     []*keyTxn // that may be open
	persons map[string]*decision
	backend *keyBackend
}

// drawKind draws what only the kind of the world has.
func (w *keyWorld) drawKind() {
	w.kin = rand.New(rand.NewPCG(w.seed, 5))
	r, f := w.kin, &w.file
	switch w.kind {
	case kindTx:
		w.rows, f.atomic, f.remote = chance(r, 0.5), chance(r, 0.6), false
		if f.failOpen = chance(r, 0.2); f.atomic {
			f.repeatable = false
		}
		w.note("transactions: rows %t, atomic %t, fail open %t", w.rows, f.atomic, f.failOpen)
	case kindMixed:
		if w.mixed = chance(r, 0.3); w.mixed {
			f.stable = false
		}
		w.note("configurations: two sorts of callers %t", w.mixed)
	case kindPeople:
		f.repeatable, f.probes = false, chance(r, 0.2)
		w.persons = make(map[string]*decision)
	case kindProxy:
		w.drawProxy()
	}
}

// endKind ends what outlived the processes.
func (w *keyWorld) endKind() {
	if w.backend != nil { // what waited for a connection that was closed ends
		time.Sleep(5 * time.Minute)
	}
}

// fileOf returns what the next process is configured as. mu is held.
func (w *keyWorld) fileOf() keyFile {
	f, r := w.file, w.kin
	if w.kind != kindMixed {
		return f
	}
	f.policy = pick(r, key.AtMostOnce, key.AtMostOnce, key.Retry5xx)
	f.crash = pick(r, idempotency.AfterCrashUnknown, idempotency.AfterCrashUnknown, idempotency.AfterCrashRetry)
	f.wait, f.ttl = pick(r, 0, 2*time.Second, time.Minute), pick(r, 10*time.Minute, time.Hour, 7*24*time.Hour)
	f.probes, f.failOpen = f.probes && chance(r, 0.7), chance(r, 0.2)
	if w.mixed {
		f.stable = chance(r, 0.5)
	}
	w.note("the next process has: %s", f)
	return f
}

// editsUnderADoubt has a process begin with other rules while nobody knows what became of a request.
func (w *keyWorld) editsUnderADoubt() {
	if w.kind != kindMixed || !chance(w.kin, 0.5) {
		return
	}
	list, _, err := w.store.List(context.Background(), key.Filter{State: key.Unknown}, keep.Page{Limit: 1})
	if err != nil || len(list) == 0 {
		return
	}
	w.edit()
	if alive := w.alive(); len(alive) > 0 && chance(w.kin, 0.7) {
		alive[0].kill("edited")
	}
	w.mu.Lock()
	w.saw("edited under a doubt")
	w.mu.Unlock()
	if len(w.alive()) < 3 {
		w.begin()
	}
}

// edited returns the processes that end when rules are edited.
func (w *keyWorld) edited(alive []*keyProcess) []*keyProcess {
	if w.kind == kindMixed && len(alive) > 1 { // the others are begun again later
		return alive[:1]
	}
	return alive
}

// killedKind ends what a process had that was killed. mu is held.
func (w *keyWorld) killedKind(p *keyProcess) {
	for _, t := range slices.Clone(w.txs) {
		if t.p == p {
			t.dies()
		}
	}
	if p.front != nil {
		p.front.dies()
	}
}

// writeAlone stores a record that no transaction holds.
func (w *keyWorld) writeAlone(ctx context.Context, p *keyProcess, r key.Record) error {
	if w.kind != kindTx {
		return w.write(ctx, p, r)
	}
	what := w.lockOf(r.ID)
	if err := w.locks.take(ctx, p, what); err != nil {
		return err
	}
	defer w.locks.give(what)
	return w.write(ctx, p, r)
}

// unrecorded looks whether a process executes without a record what it executed before, and could not record. mu is held.
func (w *keyWorld) unrecorded(p *keyProcess, m *wanted) {
	rec, err := w.store.Read(context.Background(), m.id)
	if err != nil || m.renewedAt != 0 || rec.State != key.InProgress || w.owners[rec.Fence] != p {
		return
	}
	last := slices.DeleteFunc(slices.Clone(m.executions), func(e *execution) bool { return e.p != p || e.bare || e.n <= m.from })
	if len(last) > 0 && last[len(last)-1].fence == rec.Fence && last[len(last)-1].over && last[len(last)-1].effects > 0 {
		w.broken("recorded-before-sent", "process %d executes %s without a record, which it executed before, and could not record", p.n, m)
	}
}

// isWhole compares an answer with what the handler sent.
func (w *keyWorld) isWhole(of *execution, a *keyAnswer) bool {
	if got := a.header.Get("X-Execution"); got != itoa(of.n) {
		w.broken("kept", "the answer of %s has the header of execution %q", of, got)
	}
	if want := of.status(); want != 0 && a.status != want {
		w.broken("kept", "the answer of %s, %d, is %d, replayed %t", of, want, a.status, a.replayed)
	}
	w.settledInTx(of, a)
	return true
}

func mixedSights() []string {
	return []string{
		"killed", "edited", "edited under a doubt", "an attempt did nothing, and the one before is in doubt", "a doubt", "a key is over", "executed without a record", "problem: caller-changed", "problem: key-reused", "answer: 201, replayed true",
		"client: comes back late", "person: resolves, happened true", "person: resolves, happened false",
	}
}

// setClock gives a process the clock of its machine.
func (p *keyProcess) setClock() {
	ahead := pick(p.lucky, 0, 0, 40*time.Second, -40*time.Second, time.Hour, -time.Hour, 10*365*24*time.Hour)
	idempotency.SetClock(p.guard, func() time.Time { return time.Now().Add(ahead) })
	p.w.mu.Lock()
	defer p.w.mu.Unlock()
	p.w.note("the clock of process %d is %s ahead", p.n, ahead)
	p.w.saw(fmt.Sprintf("a clock that is %s ahead", ahead))
}

// A clockedStore is a store that tells the time of the world.
type clockedStore struct{ keyStore }

func (s clockedStore) Now(ctx context.Context) (time.Time, error) { return s.keyStore.now(ctx) }

// A clockedTaker takes keys in one step, too.
type clockedTaker struct{ keyTaker }

func (s clockedTaker) Now(ctx context.Context) (time.Time, error) { return s.keyStore.now(ctx) }

func (s keyStore) now(ctx context.Context) (time.Time, error) {
	_, err := s.fate(ctx, false)
	return time.Now(), err
}

func (p *keyProcess) openClockedStore(s keyStore) idempotency.Store {
	if p.w.taker {
		return clockedTaker{keyTaker{s}}
	}
	return clockedStore{s}
}

func clockSights() []string {
	return []string{
		"killed", "a doubt", "a clock that is 40s ahead", "a clock that is -40s ahead", "a clock that is 1h0m0s ahead", "a clock that is -1h0m0s ahead",
		"a key is over", "released by a probe", "problem: in-progress", "problem: outcome-unknown", "answer: 201, replayed true", "client: comes back late",
	}
}

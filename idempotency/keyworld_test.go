package idempotency_test

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/cryptotest"
	"testing/synctest"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/idempotency"
	"github.com/keep-run/keep/law/key"
	"github.com/keep-run/keep/store/memory"
)

// # Worlds of keys
//
// A world is one or two guards on one store, clients that retry, a handler, a probe and a person, in a bubble of testing/synctest: nothing
// sleeps in real time. One seed decides everything, but for the order of what goroutines do within the same instant. The guards, the law and
// the store (package memory) are the real ones; requests come past HTTP.
//
// The handler knows the truth: what it did, and for which request. It does its work itself, and then what it did not do before its process died never
// happens; or it has a service do it, which may do it after that. It answers 201, refuses, is busy (429), fails before and after the effect in
// each way that the policy of its route allows (500, 502, panics, Doubt, Release), streams, and takes longer than a lease.
//
// Clients send a request under a key of its own until it is answered, to any guard. They go away while they wait, send duplicates at the same time,
// come back after an answer, some of them after its time, use a key for another request, and renew their credential. Keys of two
// clients, and of two hosts, are the same texts. They ask what became of a request by its reference.
//
// Meanwhile processes are killed, before and after what they write too; writes are lost, or their answers are, or are slow; a store is away from one process for
// a while; rules are edited. A person resolves what nobody knows, truly, when it is over, and forgets a key now and then.
//
// What is held to:
//
//   - A request has one effect at most within the time of its key, however often it was sent. Exceptions are those that a rule promises: AfterCrashRetry,
//     once, and Repeatable, whose effects are one.
//   - No handler is executed while another one of the same request may be at work, nor after a doubt that nobody resolved. No process that renews its lease
//     is taken for dead.
//   - An answer is that of the request, and of its caller and host. What was shown is shown again.
//   - What a problem says is true: nothing was executed, the key was used for another request, another credential.
//   - What a reference says is true: of what was released there is no effect.
//   - Once all is well, each request comes to an answer.

var (
	seeds     = flag.Int("seeds", 300, "how many seeds TestKeyWorlds simulates")
	onlyKind  = flag.String("kind", "", "the kind of worlds that TestKeyWorlds and TestKeyWorld simulate; empty: all, and fewer of those that came later")
	firstSeed = flag.Uint64("first-seed", 1, "the first seed of TestKeyWorlds")
	oneWorld  = flag.Uint64("world", 0, "the seed that TestKeyWorld replays, and prints with -v")
)

// Seeds break no law, and contain what can happen.
func TestKeyWorlds(t *testing.T) {
	for _, k := range keyKinds() {
		if *onlyKind == "" || *onlyKind == k.name {
			t.Run(k.name, func(t *testing.T) { k.simulate(t) })
		}
	}
}

// A keyKind is a kind of worlds. Their seeds have nothing to do with those of another kind.
type keyKind struct {
	name   string
	share  int             // of -seeds one in so many, unless the kind is asked for
	sights func() []string // what the seeds of a run have to contain
}

func keyKinds() []keyKind {
	return []keyKind{{kindPlain, 1, keySights}, {kindTx, 4, txSights}, {kindMixed, 4, mixedSights}, {kindPeople, 4, peopleSights}, {kindProxy, 4, proxySights}, {kindClocks, 4, clockSights}}
}

// simulate lives through the seeds of a kind.
func (k keyKind) simulate(t *testing.T) {
	seen := make(map[string]int)
	var bad []uint64
	some := *seeds
	if *onlyKind == "" {
		some = max(1, some/k.share)
	}
	for n := range some {
		seed := *firstSeed + uint64(n)
		problems := simulate(t, k.name, seed, io.Discard, seen)
		for _, p := range problems {
			t.Errorf("seed %d: %s", seed, p)
		}
		if len(problems) > 0 {
			bad = append(bad, seed)
		}
	}
	for _, what := range slices.Sorted(maps.Keys(seen)) {
		t.Logf("%6d %s", seen[what], what)
	}
	if len(bad) > 0 {
		t.Logf("%d bad seeds: %v", len(bad), bad)
	}
	if *seeds >= 300 {
		for _, what := range k.sights() {
			if seen[what] == 0 {
				t.Errorf("in %d seeds this never happened: %s", some, what)
			}
		}
	}
}

// TestKeyWorld replays one seed: -run '^TestKeyWorld$' -world N -kind K -v. Goroutines that do something within the same instant have no order, so one that was
// bad is sought with -count 20.
func TestKeyWorld(t *testing.T) {
	if *oneWorld == 0 {
		t.Skip("no -world given")
	}
	for _, p := range simulate(t, cmp.Or(*onlyKind, kindPlain), *oneWorld, t.Output(), make(map[string]int)) {
		t.Error(p)
	}
}

// simulate lives through the world of a seed, and returns which laws it broke.
func simulate(t *testing.T, kind string, seed uint64, trace io.Writer, seen map[string]int) (problems []string) {
	t.Helper()
	t.Run(fmt.Sprint(seed), func(t *testing.T) {
		cryptotest.SetGlobalRandom(t, seed)
		synctest.Test(t, func(t *testing.T) {
			w := &keyWorld{
				t: t, kind: kind, seed: seed, began: time.Now(), trace: trace, seen: seen, rng: rand.New(rand.NewPCG(seed, 1)), lucky: rand.New(rand.NewPCG(seed, 2)),
				store: new(memory.Keys), wanted: make(map[key.Fingerprint]*wanted), owners: make(map[key.Fence]*keyProcess), calm: make(chan struct{}),
				callers: make(map[key.ID]bool), written: make(map[key.ID]time.Time),
			}
			w.live()
			problems = w.problems
		})
	})
	return problems
}

// A keyWorld is everything that outlives a process.
type keyWorld struct {
	t      *testing.T
	kind   string
	seed   uint64
	began  time.Time
	trace  io.Writer
	seen   map[string]int
	rng    *rand.Rand // of who edits
	store  *memory.Keys
	taker  bool // the store takes a key in one step
	probes bool // at first
	calm   chan struct{}

	working sync.WaitGroup // handlers, and the service behind them

	mu        sync.Mutex // protects all below
	problems  []string
	lucky     *rand.Rand
	file      keyFile
	processes []*keyProcess // that live
	started   int
	faults    float64 // the chance that a write or a read fails
	wanted    map[key.Fingerprint]*wanted
	owners    map[key.Fence]*keyProcess // who took which key
	callers   map[key.ID]bool           // whether the caller of a record has a name
	written   map[key.ID]time.Time      // when a record was written last
	runs      int                       // of handlers
	kinds                               // what the later kinds of worlds have
}

// A keyFile is what a world configures.
type keyFile struct {
	policy     key.Policy
	crash      idempotency.AfterCrash
	wait       time.Duration
	ttl        time.Duration
	probes     bool
	remote     bool // the handler has a service do it
	repeatable bool
	failOpen   bool
	stable     bool // callers have names
	atomic     bool // the handler promises that its effects are in the transaction of its key
}

func (f keyFile) String() string {
	return fmt.Sprintf("policy %s, after a crash %s, wait %s, ttl %s, probes %t, remote %t, repeatable %t, fail open %t, stable callers %t",
		f.policy, f.crash, f.wait, f.ttl, f.probes, f.remote, f.repeatable, f.failOpen, f.stable)
}

const (
	keyLease   = 30 * time.Second
	keyEffects = time.Minute // within which the service did what it was asked for
	keySettles = 5 * time.Second
)

func (w *keyWorld) note(format string, args ...any) {
	fmt.Fprintf(w.trace, "%12s %s\n", time.Since(w.began).Round(time.Microsecond), fmt.Sprintf(format, args...))
}

// saw counts what happened. mu is held.
func (w *keyWorld) saw(what string) { w.seen[what]++ }

// broken notes that a law is broken. mu is held.
func (w *keyWorld) broken(law, format string, args ...any) {
	p := law + ": " + fmt.Sprintf(format, args...)
	w.note("BROKEN %s", p)
	w.problems = append(w.problems, fmt.Sprintf("after %s: %s", time.Since(w.began).Round(time.Millisecond), p))
}

func span(r *rand.Rand, d time.Duration) time.Duration { return time.Duration(1 + r.Int64N(int64(d))) }

func chance(r *rand.Rand, p float64) bool { return r.Float64() < p }

func pick[T any](r *rand.Rand, of ...T) T { return of[r.IntN(len(of))] }

// live goes through the world from its beginning to its end.
func (w *keyWorld) live() {
	r := w.rng
	w.file = keyFile{
		policy: pick(r, key.AtMostOnce, key.AtMostOnce, key.Retry5xx), crash: pick(r, idempotency.AfterCrashUnknown, idempotency.AfterCrashUnknown, idempotency.AfterCrashRetry),
		wait: pick(r, 0, 2*time.Second, time.Minute), ttl: pick(r, 10*time.Minute, time.Hour, 7*24*time.Hour), probes: chance(r, 0.3), remote: chance(r, 0.5),
		repeatable: chance(r, 0.1), failOpen: chance(r, 0.1), stable: chance(r, 0.5),
	}
	w.probes = w.file.probes
	w.drawKind()
	w.taker, w.faults = chance(r, 0.5), pick(r, 0, 0.02, 0.1)
	w.note("%s; taker %t, faults %g", w.file, w.taker, w.faults)
	for range 1 + r.IntN(2) {
		w.begin()
	}
	var clients, people sync.WaitGroup
	for i, name := range []string{"ann", "bob", "cid"}[:1+r.IntN(3)] {
		c := &keyClient{w: w, name: name, rng: rand.New(rand.NewPCG(w.seed, 10+uint64(i))), tokens: []string{name + "-1"}}
		clients.Go(c.live)
	}
	gone := make(chan struct{})
	if w.kind == kindPeople {
		people.Go(func() { w.decideTogether(gone) })
	} else {
		people.Go(func() { w.decideAll(gone) })
	}
	w.chaos()
	clients.Wait()
	close(gone)
	people.Wait()
	for _, p := range w.alive() {
		p.end()
	}
	w.working.Wait()
	w.endKind()
	w.verify()
}

// chaos kills, begins and edits for a while; then all is well.
func (w *keyWorld) chaos() {
	r := w.rng
	for range 3 + r.IntN(12) {
		time.Sleep(span(r, 40*time.Second))
		w.editsUnderADoubt()
		alive := w.alive()
		switch what := r.IntN(10); {
		case len(alive) > 0 && what < 4:
			p := pick(r, alive...)
			w.mu.Lock()
			w.saw("killed")
			p.dies(pick(r, "now", "before a write", "after a write", "after a write", "before a handler", "after a handler"), r.IntN(3))
			w.mu.Unlock()
		case len(alive) > 0 && what < 5:
			p := pick(r, alive...)
			w.mu.Lock()
			w.saw("store away")
			p.away = time.Now().Add(span(r, 90*time.Second))
			w.note("the store is away from process %d until %s", p.n, p.away.Sub(w.began))
			w.mu.Unlock()
		case what < 7 && len(alive) < 2:
			w.begin()
		case what < 8:
			w.edit()
			for _, p := range w.edited(alive) { // a program is begun again with other rules
				p.kill("edited")
			}
			w.begin()
		}
		if len(w.alive()) == 0 {
			time.Sleep(span(r, pick(r, time.Second, time.Minute)))
			w.begin()
		}
	}
	w.mu.Lock()
	w.faults = 0
	w.note("calm")
	for _, p := range w.processes {
		p.killAt, p.away = "", time.Time{}
	}
	w.mu.Unlock()
	if len(w.alive()) == 0 {
		w.begin()
	}
	close(w.calm)
}

// edit changes a rule.
func (w *keyWorld) edit() {
	w.mu.Lock()
	defer w.mu.Unlock()
	r, f := w.rng, &w.file
	switch what := pick(r, "policy", "crash", "wait", "ttl", "probes", "remote"); what {
	case "policy":
		f.policy = pick(r, key.AtMostOnce, key.Retry5xx)
	case "crash":
		f.crash = pick(r, idempotency.AfterCrashUnknown, idempotency.AfterCrashRetry)
	case "wait":
		f.wait = pick(r, 0, 2*time.Second, time.Minute)
	case "ttl":
		f.ttl = pick(r, 10*time.Minute, time.Hour)
	case "probes":
		f.probes = !f.probes
	case "remote":
		f.remote = !f.remote
	}
	w.saw("edited")
	w.note("rules edited: %s", w.file)
}

// alive returns the processes that live.
func (w *keyWorld) alive() []*keyProcess {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.processes)
}

// A keyProcess has a guard.
type keyProcess struct {
	w     *keyWorld
	n     int
	file  keyFile
	guard *idempotency.Guard
	dead  chan struct{} // closed when it is killed
	gone  atomic.Bool
	stop  context.CancelFunc
	swept sync.WaitGroup
	front *keyFront // of a proxy

	// w.mu protects what follows.
	killAt string // empty: it lives
	after  int    // how many of these it survives
	away   time.Time
	lucky  *rand.Rand
}

// begin starts a process.
func (w *keyWorld) begin() {
	w.mu.Lock()
	w.started++
	p := &keyProcess{w: w, n: w.started, file: w.fileOf(), dead: make(chan struct{}), lucky: rand.New(rand.NewPCG(w.seed, 100+uint64(w.started)))}
	w.mu.Unlock()
	f := p.file
	rule := idempotency.Rule{
		Policy: f.policy, AfterCrash: f.crash, Wait: f.wait, TTL: f.ttl, AllowShortTTL: true, FailOpen: f.failOpen, SettleAfter: keySettles, NotExecuted: []int{409},
	}
	if f.remote || f.probes { // what a handler that lost its lease does itself takes as long, too
		rule.EffectTimeout = keyEffects
	}
	if f.stable {
		rule.Caller, rule.CallerVerified = callerNamed, true
	}
	if f.repeatable {
		rule.Repeatable = isRepeatable
	}
	if f.probes {
		rule.Probe = p.probe
	}
	if w.kind == kindTx {
		rule.Atomic = f.atomic
	}
	guard, err := idempotency.New(p.openStore(), idempotency.Config{Rules: []idempotency.Rule{rule}, Lease: keyLease, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		w.t.Error(err)
		return
	}
	p.guard = guard
	if w.kind == kindClocks {
		p.setClock()
	}
	if w.kind == kindProxy {
		p.openProxy()
	}
	ctx, stop := context.WithCancel(context.Background())
	p.stop = stop
	p.swept.Go(func() { _ = guard.Run(ctx) })
	w.mu.Lock()
	defer w.mu.Unlock()
	w.processes = append(w.processes, p)
	w.note("process %d begins", p.n)
}

// dies has the process die at a point. w.mu is held.
func (p *keyProcess) dies(at string, after int) {
	p.w.note("process %d dies %s, after %d", p.n, at, after)
	if at == "now" {
		p.killed("now")
		return
	}
	p.killAt, p.after = at, after
}

// at kills the process where it was to die, and reports whether it is dead.
func (p *keyProcess) at(point string) bool {
	p.w.mu.Lock()
	defer p.w.mu.Unlock()
	if p.killAt == point && !p.gone.Load() {
		if p.after--; p.after < 0 {
			p.w.saw("killed " + point)
			p.killed(point)
		}
	}
	return p.gone.Load()
}

func (p *keyProcess) kill(why string) {
	p.w.mu.Lock()
	defer p.w.mu.Unlock()
	p.killed(why)
}

// killed has nothing that the process does reach anybody any more. w.mu is held.
func (p *keyProcess) killed(why string) {
	if p.gone.Swap(true) {
		return
	}
	p.w.note("process %d is killed: %s", p.n, why)
	p.w.processes = slices.DeleteFunc(p.w.processes, func(o *keyProcess) bool { return o == p })
	close(p.dead)
	p.stop()
	p.w.killedKind(p)
}

// end ends the process, and waits for it.
func (p *keyProcess) end() {
	p.kill("ends")
	p.swept.Wait()
}

// A keyStore is that of one process.
type keyStore struct {
	*memory.Keys
	p *keyProcess
}

// A keyTaker takes keys in one step.
type keyTaker struct{ keyStore }

func (p *keyProcess) openStore() idempotency.Store {
	s := keyStore{p.w.store, p}
	if p.w.kind == kindTx {
		return p.openTxStore(s)
	}
	if p.w.kind == kindClocks {
		return p.openClockedStore(s)
	}
	if p.w.taker {
		return keyTaker{s}
	}
	return s
}

var errLost = errors.New("the connection was lost")

// fate decides what becomes of what a process wants of its store, and waits as long as that takes.
func (s keyStore) fate(ctx context.Context, writes bool) (fate string, err error) {
	w, p := s.p.w, s.p
	w.mu.Lock()
	slow := span(p.lucky, 3*time.Millisecond)
	switch {
	case time.Now().Before(p.away):
		fate = "is lost"
	case chance(p.lucky, w.faults):
		fate = pick(p.lucky, "is lost", "is slow")
		if writes {
			fate = pick(p.lucky, "is lost", "is made, and its answer lost", "is slow")
		}
		w.saw("store: " + fate)
	}
	if fate == "is slow" {
		slow = span(p.lucky, 15*time.Second)
	}
	w.mu.Unlock()
	select {
	case <-time.After(slow):
	case <-ctx.Done():
		return fate, context.Cause(ctx)
	}
	switch {
	case writes && p.at("before a write"), p.gone.Load(), fate == "is lost":
		return fate, errLost
	}
	return fate, nil
}

func (s keyStore) Read(ctx context.Context, id key.ID) (key.Record, error) {
	if _, err := s.fate(ctx, false); err != nil {
		return key.Record{}, err
	}
	return s.Keys.Read(ctx, id)
}

func (s keyStore) ReadAlias(ctx context.Context, alias key.ID, now time.Time) (key.Record, error) {
	if _, err := s.fate(ctx, false); err != nil {
		return key.Record{}, err
	}
	return s.Keys.ReadAlias(ctx, alias, now)
}

func (s keyStore) Write(ctx context.Context, r key.Record) error {
	fate, err := s.fate(ctx, true)
	if err != nil {
		return err
	}
	return s.wrote(fate, r, s.p.w.writeAlone(ctx, s.p, r))
}

// wrote returns what the process learns of a write.
func (s keyStore) wrote(fate string, r key.Record, err error) error {
	s.p.w.mu.Lock()
	s.p.w.note("process %d writes %s %s rev %d: %v %s", s.p.n, r.Key, r.State, r.Rev+1, err, fate)
	s.p.w.mu.Unlock()
	if s.p.at("after a write") || fate == "is made, and its answer lost" {
		return errors.Join(err, errLost)
	}
	return err
}

// Take implements idempotency.Taker.
func (s keyTaker) Take(ctx context.Context, r key.Record) (key.Record, error) {
	fate, err := s.fate(ctx, true)
	if err != nil {
		return key.Record{}, err
	}
	there, err := s.Keys.Read(ctx, r.ID)
	if err != nil || there.Rev > 0 {
		return there, err
	}
	return key.Record{}, s.wrote(fate, r, s.p.w.writeAlone(ctx, s.p, r))
}

func (s keyStore) List(ctx context.Context, f key.Filter, p keep.Page) ([]key.Record, string, error) {
	if _, err := s.fate(ctx, false); err != nil {
		return nil, "", err
	}
	return s.Keys.List(ctx, f, p)
}

func (s keyStore) Sweep(ctx context.Context, now time.Time, limit int) (int, error) {
	if _, err := s.fate(ctx, true); err != nil {
		return 0, err
	}
	return s.Keys.Sweep(ctx, now, limit)
}

//go:build unix

package gateway_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/cryptotest"
	"testing/synctest"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/engine"
	"github.com/keep-run/keep/gateway"
	"github.com/keep-run/keep/operator"
	"github.com/keep-run/keep/store/memory"
)

// # Worlds of gateways
//
// A world is one or two gateways on one store, one or two agents, a server and a person, in a bubble of testing/synctest: nothing sleeps in
// real time, and no process is started. One seed decides everything, but for the order of what goroutines do within the same instant. The gateways, the engine, the law, the store (package memory), the client of
// the server and net/http are the real ones. It is in this package, and not in internal/simtest, since what happens between two steps of a gateway are
// messages on connections: goroutines of net/http take no turns, so the order of what happens comes from times that differ, which the seed says.
//
// Server. It knows the truth: what it did, when, and for which call an agent meant, whose number is in the _meta of its first request. It answers late,
// loses answers before and after the effect, says errors before and after it, and refuses. It remembers a key for longer than any keep.toml says,
// shows what it did within a time that each keep.toml allows, tells who wants that how far it is, and does all that it does of a request within the shortest timeout. So each level is
// true, whatever is edited.
//
// In some worlds it has two more tools: one sets a value, and has no key, and calls of the other are unique. Agents share what these are about.
//
// Agents obey the protocol. One that gets no answer, or one that says that nobody knows, makes the same call again, at any gateway, or asks
// keep_outcome. They go away while they wait, lose answers that came (and leave, or make the call again as their next message), and cancel. A call is meant once until its last answer was read; an equal
// call is another one only if the agent read that, and its next message was answered. Some calls have an intent.
//
// In half of the worlds some of them are by HTTP: with sessions, of the version without, or now so and now on stdin and stdout, and two may have one
// name. They send on several connections, through a proxy and in batches, continue sessions, end them, begin anew where they were, hang up
// in the midst of a stream or of an answer, read late, and send what comes next before they have the answer. A message shows that an answer was read if it comes in the
// same session on the connection of that answer.
//
// In some worlds a person pauses and resumes the calls of agents, and in some they have a budget, of all calls.
//
// In some the clock of the gateways and of people is set back or jumps ahead while no gateway is there; never while a request of one is at the server.
//
// Meanwhile gateways are killed, at once or at a point of the engine, and end; commits are lost, or their answers are, or are slow; keep.toml is
// edited: identity, level, the name of the server with and without was, key_lasts, timeout, the rule, approval, and who may call; two gateways may
// have two of them for a while. The server changes its tool. In some worlds all gateways are away for hours.
//
// What is held to:
//
//   - Each send has a record, and no second one of an equal call (agent, content, intent) is sent while the outcome of one is unknown, whatever was edited.
//   - A call that is meant has one effect at most. The exception is what docs/gateway.md tells owners not to do: after a change of identity or a
//     rename without was, the answer of a call that had happened, and that no agent has, is not known any more. Nor is it held to while two
//     gateways with two keep.toml record a call at the same moment (docs/gaps.md).
//   - No call that sets something is sent again over a later one that set something else, unless a person said so, nor is one recorded while another is being sent again.
//   - No call is recorded by a commit that begins after a person paused the calls of agents, or for which the budget of its gateway has no room, unless a person allowed it.
//   - No call of a unique tool is recorded beside one of the same identity that may have happened, whoever made it, unless a person said so.
//   - Of what an agent is told as applied there is one effect, or at least one of what sets something, of what it is told as failed or rejected none, then and at the end. Nobody gets an answer of
//     another agent, or of another call as its own.
//   - No agent has a call recorded that it may not make, and no gateway that began since the tool changed calls it before a person agreed.
//   - Once all is well, each call that was meant comes to an answer.

var (
	seeds     = flag.Int("seeds", fewWorlds, "how many seeds TestWorlds simulates")
	firstSeed = flag.Uint64("first-seed", 1, "the first seed of TestWorlds")
	oneWorld  = flag.Uint64("world", 0, "the seed that TestWorld replays, and prints with -v")
)

// Seeds break no law, and contain what can happen.
func TestWorlds(t *testing.T) {
	seen := make(map[string]int)
	var bad []uint64
	for n := range *seeds {
		seed := *firstSeed + uint64(n)
		problems := simulate(t, seed, io.Discard, seen)
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
	if *seeds >= 100 {
		for _, what := range worldSights() {
			if seen[what] == 0 {
				t.Errorf("in %d seeds this never happened: %s", *seeds, what)
			}
		}
	}
}

// TestWorld replays one seed: -run '^TestWorld$' -world N -v. Goroutines that do something within the same instant have no order, so one seed is the
// same world most times, not always: one that was bad is sought with -count 20.
func TestWorld(t *testing.T) {
	if *oneWorld == 0 {
		t.Skip("no -world given")
	}
	for _, p := range simulate(t, *oneWorld, t.Output(), make(map[string]int)) {
		t.Error(p)
	}
}

// simulate lives through the world of a seed, and returns which laws it broke.
func simulate(t *testing.T, seed uint64, trace io.Writer, seen map[string]int) (problems []string) {
	t.Helper()
	t.Run(fmt.Sprint(seed), func(t *testing.T) {
		cryptotest.SetGlobalRandom(t, seed)
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, seed, trace, seen)
			w.live()
			problems = w.problems
		})
	})
	return problems
}

// A world is everything that outlives a gateway.
type world struct {
	t     *testing.T
	seed  uint64
	began time.Time
	trace io.Writer
	seen  map[string]int
	rng   *rand.Rand // of who edits
	store *memory.Store
	op    *operator.Operator
	calm  chan struct{} // closed when the chaos is over
	web   *webKind      // nil: no agent is by HTTP
	tools *toolKind     // nil: the server has no other tools
	held  *holdKind     // nil: people hold no calls up
	clock *clockKind    // nil: it is right

	server  *http.Server
	dials   chan net.Conn
	working sync.WaitGroup // requests at the server

	mu       sync.Mutex // protects all below
	problems []string
	lucky    *rand.Rand    // of the server
	tells    *rand.Rand    // of what it tells before an answer
	gateways []*process    // that live
	begins   chan struct{} // closed when the next gateway begins
	started  int
	faults   float64   // the chance that a commit fails
	variant  int       // of the tool of the server
	changed  time.Time // when that changed last
	calls    []*meant
	files    []keepFile // that there were
	records  map[string]*record
	keys     map[string]*record // by key, what the server did under it
	done     []done             // what the server did
	stored   map[keep.RunID]bool
	again    map[string]bool // two references: a person said that the first is to be made beside or over the second
	treated  map[string]bool // references of calls that a person treats as done
	allowed  map[string]bool // and of those that they allow beyond the budget
	paused   bool            // a person paused the calls of agents
}

// worlds has the world of each host of the name space of the tests.
var worlds sync.Map

// dialWorlds has the address of a world be its server.
func dialWorlds() {
	tr := http.DefaultTransport.(*http.Transport)
	dial := tr.DialContext
	tr.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
		if w, ok := worlds.Load(strings.TrimSuffix(addr, ":80")); ok {
			return w.(*world).dial(ctx)
		}
		return dial(ctx, network, addr)
	}
}

func (w *world) host() string { return fmt.Sprintf("w%d.world", w.seed) }

func newWorld(t *testing.T, seed uint64, trace io.Writer, seen map[string]int) *world {
	w := &world{
		t: t, seed: seed, began: time.Now(), trace: trace, seen: seen, rng: rand.New(rand.NewPCG(seed, 1)), lucky: rand.New(rand.NewPCG(seed, 2)),
		store: memory.New(), calm: make(chan struct{}), dials: make(chan net.Conn), begins: make(chan struct{}),
		web: newWebKind(seed), tools: newToolKind(seed), held: newHoldKind(seed), clock: newClockKind(seed), tells: rand.New(rand.NewPCG(seed, 4)),
		records: make(map[string]*record), keys: make(map[string]*record), stored: make(map[keep.RunID]bool), again: make(map[string]bool), treated: make(map[string]bool), allowed: make(map[string]bool),
	}
	if w.clock != nil {
		w.held = nil // a window of a budget is by the clock
	}
	var err error
	if w.op, err = operator.New(w.store, operator.Config{Policy: worldPolicy(), Now: w.now, Logger: slog.New(slog.DiscardHandler)}); err != nil {
		t.Fatal(err)
	}
	return w
}

// note writes a line of the trace. mu is held.
func (w *world) note(format string, args ...any) {
	fmt.Fprintf(w.trace, "%12s %s\n", time.Since(w.began).Round(time.Microsecond), fmt.Sprintf(format, args...))
}

// notes is note for who does not hold mu.
func (w *world) notes(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.note(format, args...)
}

// saw counts what happened. mu is held.
func (w *world) saw(what string) { w.seen[what]++ }

// broken notes that a law is broken. mu is held.
func (w *world) broken(law, format string, args ...any) {
	p := law + ": " + fmt.Sprintf(format, args...)
	w.note("BROKEN %s", p)
	w.problems = append(w.problems, fmt.Sprintf("after %s: %s", time.Since(w.began).Round(time.Millisecond), p))
}

// span returns a duration below d, which no other is.
func span(r *rand.Rand, d time.Duration) time.Duration { return time.Duration(1 + r.Int64N(int64(d))) }

func chance(r *rand.Rand, p float64) bool { return r.Float64() < p }

func pick[T any](r *rand.Rand, of ...T) T { return of[r.IntN(len(of))] }

// live goes through the world from its beginning to its end.
func (w *world) live() {
	worlds.Store(w.host(), w)
	defer worlds.Delete(w.host())
	w.server = &http.Server{Handler: http.HandlerFunc(w.serve), ConnContext: func(ctx context.Context, c net.Conn) context.Context {
		return context.WithValue(ctx, processKey{}, c.(*worldConn).p)
	}, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)}
	var serving, agents, people sync.WaitGroup
	serving.Go(func() { _ = w.server.Serve(listenTo(w.dials)) })
	files := w.first()
	for i, name := range []string{"ann", "bob"}[:1+w.rng.IntN(2)] {
		a := &worldAgent{w: w, name: name, mark: "t", rng: rand.New(rand.NewPCG(w.seed, 10+uint64(i))), tools: rand.New(rand.NewPCG(w.seed, 30+uint64(i)))}
		w.byHTTP(a, i)
		agents.Go(a.live)
	}
	gone := make(chan struct{})
	people.Go(func() { w.decideAll(gone) })
	people.Go(func() { w.held.pauseAll(w) })
	w.chaos(files)
	agents.Wait()
	close(gone)
	people.Wait()
	for _, p := range w.gatewaysNow() {
		p.end(false)
	}
	w.working.Wait()
	_ = w.server.Close()
	serving.Wait()
	w.verify()
}

// A process is a gateway.
type process struct {
	w      *world
	n      int
	file   keepFile
	killAt engine.Point // empty: it lives
	after  int          // how many of these it survives

	began   time.Time
	slot    int        // of its file
	lucky   *rand.Rand // of its store; w.mu protects it
	gateway *gateway.Gateway
	gone    atomic.Bool // it was killed
	ended   chan struct{}
	close   func() error
	web     *webDoor // nil: it serves nobody by HTTP

	mu    sync.Mutex // protects all below
	conns map[io.Closer]struct{}
}

type processKey struct{}

// errGone is what a killed process gets for everything.
var errGone = errors.New("the process is gone")

// holds has c closed when the process is killed.
func (p *process) holds(c io.Closer) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.gone.Load() {
		_ = c.Close()
		return
	}
	p.conns[c] = struct{}{}
}

// drops forgets c.
func (p *process) drops(c io.Closer) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.conns, c)
}

// kill has nothing that the process does reach anybody any more.
func (p *process) kill() {
	p.gone.Store(true)
	p.mu.Lock()
	conns := slices.Collect(maps.Keys(p.conns))
	clear(p.conns)
	p.mu.Unlock()
	for _, c := range conns {
		_ = c.Close()
	}
}

// at kills the process where it was to die. It is called by the gateway.
func (p *process) at(_ keep.WorkflowName, point engine.Point) {
	p.mu.Lock()
	dies := p.killAt == point && !p.gone.Load()
	if dies && p.after > 0 {
		p.after--
		dies = false
	}
	p.mu.Unlock()
	if !dies {
		return
	}
	p.w.mu.Lock()
	p.w.note("gateway %d is killed at %s", p.n, point)
	p.w.saw("killed at " + string(point))
	p.w.mu.Unlock()
	p.kill()
	go p.end(true)
}

// end ends the gateway, and returns when it has ended.
func (p *process) end(kill bool) {
	w := p.w
	w.mu.Lock()
	i := slices.Index(w.gateways, p)
	if i >= 0 {
		w.gateways = slices.Delete(w.gateways, i, i+1)
		w.note("gateway %d ends, killed %t", p.n, kill)
	}
	w.mu.Unlock()
	if i < 0 {
		<-p.ended
		return
	}
	if kill {
		p.kill()
	}
	p.shut(kill)
	_ = p.close()
	p.shut(false)
	p.kill() // what is left of its connections
	close(p.ended)
}

// gatewaysNow returns the gateways that live.
func (w *world) gatewaysNow() []*process {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.gateways)
}

// A worldStore is that of one gateway.
type worldStore struct {
	*memory.Store
	p *process
}

var errCommit = errors.New("the connection was lost")

// Commit implements store.Committer.
func (s worldStore) Commit(ctx context.Context, c keep.Commit) error {
	w := s.p.w
	w.mu.Lock()
	fate, slow := "", span(s.p.lucky, 2*time.Millisecond)
	if chance(s.p.lucky, w.faults) {
		fate = pick(s.p.lucky, "is lost", "is made, and its answer lost", "is slow")
		w.saw("commit " + fate)
	}
	if fate == "is slow" {
		slow = span(s.p.lucky, 8*time.Second)
		w.held.commitIsSlow()
	}
	w.mu.Unlock()
	time.Sleep(slow)
	switch {
	case s.p.gone.Load():
		return errGone
	case fate == "is lost":
		w.notes("gateway %d: a commit %s", s.p.n, fate)
		return errCommit
	}
	w.mu.Lock()
	paused := w.paused
	w.mu.Unlock()
	err := s.Store.Commit(ctx, c)
	if err == nil {
		w.learns(s.p, c, paused)
	}
	if fate == "is made, and its answer lost" {
		w.notes("gateway %d: a commit %s", s.p.n, fate)
		return errors.Join(err, errCommit)
	}
	return err
}

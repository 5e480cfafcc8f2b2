package simtest

import (
	"encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/engine"
	"github.com/keep-run/keep/law/budget"
	"github.com/keep-run/keep/law/limit"
	"github.com/keep-run/keep/law/policy"
)

// A world is everything that outlives a process: the store, the services and
// their truth, and what the seed has still to say.
type world struct {
	seed    uint64
	trace   io.Writer // nil: not written
	rates   rates
	policy  policy.Policy
	slow    time.Duration
	open    Opener
	store   Store // what open returned; nil: it is closed
	flows   []*flow
	ordered bool // some workflows choose what an unfinished run holds up
	unique  bool // an identity is applied once

	users  bool                        // people replace the secret of the connection
	userOf []int                       // of each secret that there was
	macs   map[string]int              // the secrets by what records have of them
	sentAs map[keep.MutationKey]string // with which each call was sent last
	onWord map[keep.MutationKey]bool   // whether a person said that it did not happen

	setting bool                      // calls of the tool a say what is to be
	sets    map[keep.MutationKey]int  // the place of each among those that were recorded, at its last attempt
	made    int                       // how many there are
	unsure  map[keep.MutationKey]bool // whether the last attempt at each was in doubt

	truth truth
	tools []*engine.Tools // as usual, and as two upgrades left them; see upgrades

	limits limit.Rule    // of the connection, in some worlds
	downs  float64       // the chance of an outage, for each call
	down   time.Duration // until when the service does not answer, by its clock

	budgets []budget.Rule                 // what calls may spend, in some worlds
	spent   map[keep.MutationKey]spending // of each call that was recorded
	raised  map[string]keep.Amount        // the highest limit that a person may have given to each budget

	stops map[keep.ToolName]*stopping // what is known of tools whose calls may stop

	edited   bool            // people edit keep.toml
	settings settings        // what it says now
	setback  atomic.Int64    // how far the clock of the host was set back while it ran
	fileGone bool            // the file of the database is not where it was
	nowhere  map[string]bool // attempts that were recorded while it was away

	skipping    bool // people skip items, and have them done again
	intervening bool // people cancel runs, let them continue now, publish, and reset checkpoints

	granted  bool                           // people give and take grants
	permits  map[keep.WorkflowName][]permit // of each grant, in their order
	begun    map[string]bool                // attempts that were recorded
	proposed map[string]bool                // versions to which no person agreed

	keyLasts time.Duration // how long services of level A remember a key; 0: forever
	keyFound bool          // what they did can be searched for when the key is forgotten

	turns *turns // of this bubble; nil: between bubbles, and after the last
	group *group // nil: one host at a time
	calm  bool   // the chaos is over
	drill *drill // nil: the seed decides what goes wrong
	cheat cheat  // empty: none

	offset  time.Duration // how far the host's clock is ahead of the services'
	stopped time.Duration // what the host's clock showed at the end of the last bubble

	// Guards of the laws; see watch.
	flying     map[flight][]keep.MutationKey     // calls under way
	called     map[string]bool                   // attempts that were made
	recordedAs map[keep.MutationKey]string       // how each call was to be sent, when it was recorded last: the hash of its pin
	settled    map[keep.MutationKey]string       // state and result of what is settled
	vouched    map[keep.EscalationID]bool        // whether an effect contradicts the answer
	taken      map[keep.EscalationID]keep.Action // answers that were taken
	resting    map[keep.WorkflowName]time.Time   // until when a service wants no call
	odd        map[string]bool                   // by token: the last answer had the wrong shape
	answered   map[keep.MutationKey]bool         // calls whose answer reached a host that was well
	lied       map[string]int                    // by token: lookups that hid an effect
	forgotten  map[string]int                    // by token: effects under a key that the service had forgotten, as no clock told
	treated    map[string]bool                   // chains and items whose call a person treats as done by another
	overtook   map[keep.RunID]bool               // chains that had their events before a skip of others was undone
	swept      archive

	mu       sync.Mutex       // protects the fields below
	rng      *rand.Rand       // what the seed decides
	ids      *rand.Rand       // entropy of the engine
	phases   uint64           // of scripts, so far
	decided  map[string][]int // by the seed of a phase: what the world decided in it
	digest   uint64
	steps    int
	seen     map[string]int // what happened, by name
	result   Result
	problems []string
}

// rates are the chances of this world's misfortunes, each for one occasion.
type rates struct {
	crash, commit, read, call, ask, script float64

	lie     float64       // a lookup that hides an effect after it settled
	folly   float64       // a person who answers without looking
	bustle  time.Duration // between two things that people do
	life    time.Duration // of a process that does not crash
	points  int           // how much chaos there is
	stretch int           // bubbles
}

// newWorld makes the world of a seed.
func newWorld(seed uint64, trace io.Writer) *world {
	w := &world{
		decided: make(map[string][]int),
		seed:    seed, trace: trace, open: inMemory(),
		flying: make(map[flight][]keep.MutationKey), called: make(map[string]bool), overtook: make(map[keep.RunID]bool),
		settled: make(map[keep.MutationKey]string), vouched: make(map[keep.EscalationID]bool),
		permits: make(map[keep.WorkflowName][]permit), begun: make(map[string]bool), proposed: make(map[string]bool),
		stops: make(map[keep.ToolName]*stopping), spent: make(map[keep.MutationKey]spending), raised: make(map[string]keep.Amount),
		sentAs: make(map[keep.MutationKey]string), onWord: make(map[keep.MutationKey]bool), macs: make(map[string]int), userOf: []int{0}, sets: make(map[keep.MutationKey]int), unsure: make(map[keep.MutationKey]bool), treated: make(map[string]bool), recordedAs: make(map[keep.MutationKey]string),
		taken: make(map[keep.EscalationID]keep.Action), resting: make(map[keep.WorkflowName]time.Time),
		odd: make(map[string]bool), nowhere: make(map[string]bool), answered: make(map[keep.MutationKey]bool), lied: make(map[string]int), forgotten: make(map[string]int),
		truth: truth{effects: make(map[string][]effect)}, seen: make(map[string]int),
		digest: 14695981039346656037,
		rng:    rand.New(rand.NewPCG(seed, 1)), ids: rand.New(rand.NewPCG(seed, 2)),
	}
	w.result.Seed = seed
	w.plan()
	return w
}

// chance draws from the seed.
func (w *world) chance(p float64) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.rng.Float64() < p
}

// maybe draws whether something goes wrong. In a calm world nothing does, and in
// a drill only what it is about.
func (w *world) maybe(p float64) bool {
	return !w.calm && w.drill == nil && p > 0 && w.chance(p)
}

// below returns a number in [0,n).
func (w *world) below(n int) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.rng.IntN(n)
}

// span returns a duration in [0,d), never a round one: two things that happen at
// once by accident would make the order a matter of luck.
func (w *world) span(d time.Duration) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	return time.Duration(w.rng.Int64N(int64(d)) | 1)
}

// now returns the time of the services.
func (w *world) now() time.Duration { return time.Since(epoch) - w.offset }

// epoch is when every bubble begins.
var epoch = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

// note adds a line to the trace.
func (w *world) note(what string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.steps++
	now := w.stopped // there is no other time outside a bubble that depends on the seed
	if w.turns != nil {
		now = time.Since(epoch)
	}
	w.digest = mix(mix(w.digest, binary.LittleEndian.AppendUint64(nil, uint64(now))), what)
	if w.trace != nil {
		fmt.Fprintf(w.trace, "%6d %14s %s\n", w.steps, now.Round(time.Microsecond), what)
	}
}

// mix adds text to a digest, as FNV-1a does.
func mix[T string | []byte](digest uint64, text T) uint64 {
	for i := range len(text) {
		digest = (digest ^ uint64(text[i])) * 1099511628211
	}
	return digest
}

// fault counts a misfortune, and traces it.
func (w *world) fault(what string) {
	w.note("FAULT " + what)
	w.saw("fault: " + what)
	w.result.Faults++
}

// saw counts a thing that a sample of seeds must contain.
func (w *world) saw(what string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.seen[what]++
}

// broken reports a law that does not hold.
func (w *world) broken(law, format string, args ...any) {
	problem := law + ": " + fmt.Sprintf(format, args...)
	w.note("BROKEN " + problem)
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.problems) < 20 {
		w.problems = append(w.problems, problem)
	}
}

// upgrades are what can become of the tools while no process runs.
var upgrades = []string{"nothing", "the lookups of level C", "the tool c"}

// nextTools returns the tools of the next process.
func (w *world) nextTools() *engine.Tools {
	if !w.maybe(0.05) {
		return w.tools[0]
	}
	n := 1 + w.below(2)
	w.fault("an upgrade took away " + upgrades[n])
	return w.tools[n]
}

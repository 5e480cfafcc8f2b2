package config_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/engine"
	"github.com/keep-run/keep/store/memory"
	"github.com/keep-run/keep/testkit/connectortest"
)

var (
	lossesWanted = flag.Int("losses", 10, "lives of a call that TestLosses lives with each tool")
	recordLosses = flag.Bool("record", false, "write what they came to")
	livesAtOnce  = flag.Int("lives", 6, "how many lives of a tool are lived at once")
)

// A tally is what the lives of one tool came to.
type tally struct {
	mu       sync.Mutex // protects the fields below
	lives    int
	once     int   // the effect is there, and nobody was asked
	asked    int   // a person was asked one question
	twice    int   // the effect is there more than once
	silent   int   // there is no effect, and nobody was asked
	requests []int // of lives with a doubt: after the first one, until it was over
}

// TestLosses lives a call of each mutate tool with answers that are lost, connections that
// are cut at any byte, hosts that are killed at any point, several of these at once, in
// the call, its lookups and its repetitions: the service has the effect once, or one
// question is open. Laws: once, witnessed, explained.
func TestLosses(t *testing.T) {
	var mu sync.Mutex // protects the file
	hashes := toolHashes(t)
	for full := range proofs {
		t.Run(full, func(t *testing.T) {
			t.Parallel()
			sum := &tally{}
			atOnce(*lossesWanted, func(n int) { sum.live(t, full, n) })
			r := sum.record(hashes[full])
			t.Logf("%+v", r)
			if *recordLosses {
				mu.Lock()
				defer mu.Unlock()
				writeLosses(t, full, r)
			}
		})
	}
}

// firstLives makes the first life of each tool one that is lived alone.
var firstLives sync.Mutex

// atOnce calls do for 0 to n-1, a few at a time: lives wait for deadlines more than for the
// processor. The first is alone: it fills the caches of encoding/json, whose sync.Map the race
// detector misreads when packages that it does not watch use sync.Map, too (see test.sh).
func atOnce(n int, do func(int)) {
	func() {
		firstLives.Lock()
		defer firstLives.Unlock()
		do(0)
	}()
	var next atomic.Int64
	next.Store(1)
	var wg sync.WaitGroup
	for range *livesAtOnce {
		wg.Go(func() {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				do(i)
			}
		})
	}
	wg.Wait()
}

// live lives the nth life of a tool.
func (y *tally) live(t *testing.T, full string, n int) {
	h := fnv.New64a()
	h.Write([]byte(full))
	p := misfortune(rand.New(rand.NewPCG(h.Sum64(), uint64(n))))
	out := liveThrough(t, full, p)
	y.mu.Lock()
	defer y.mu.Unlock()
	y.lives++
	switch {
	case out.effects > 1, out.questions > 1, out.effects == 0 && out.questions == 0:
		if out.effects > 1 {
			y.twice++
		} else if out.effects == 0 {
			y.silent++
		}
		t.Errorf("life %d of %s: %d effects and %d questions, %s; it had %s", n, full, out.effects, out.questions, out.record.State, p)
		return
	case out.questions == 1:
		y.asked++
	default:
		y.once++
	}
	if out.doubted {
		y.requests = append(y.requests, max(out.requests-1, 0))
	}
}

// A plan is what goes wrong in a life.
type plan struct {
	faults []connectortest.Fault
	cuts   []connectortest.Cut // of connections, in their order
	kills  []bool              // the host is killed at the cut
	deaths []engine.Point
}

// String says what goes wrong.
func (p plan) String() string {
	return fmt.Sprintf("faults %+v, cuts %+v, kills %v, deaths %v", p.faults, p.cuts, p.kills, p.deaths)
}

// misfortune returns what goes wrong in a life: always something.
func misfortune(r *rand.Rand) (p plan) {
	for range 1 + r.IntN(3) {
		p.faults = append(p.faults, []connectortest.Fault{
			{},
			{Answer: connectortest.Lost},
			{Answer: connectortest.Reset},
			{Answer: connectortest.Truncated},
			{Answer: connectortest.WrongBody},
			{Skip: true, Answer: connectortest.Lost},
			{Skip: true, Answer: connectortest.WrongBody},
			{Late: true, Answer: connectortest.Lost},
			{Status: 500}, {Skip: true, Status: 500}, {Status: 502}, {Skip: true, Status: 503}, {Skip: true, Status: 504},
			{Skip: true, Status: 429, RetryAfter: 0},
		}[r.IntN(14)])
	}
	for range r.IntN(4) {
		cut, kill := connectortest.Pass, false
		switch r.IntN(4) {
		case 0:
			cut.Request, kill = r.IntN(600), r.IntN(3) == 0
		case 1, 2:
			cut.Response, kill = r.IntN(700), r.IntN(3) == 0
		}
		cut.Reset = r.IntN(3) == 0
		p.cuts, p.kills = append(p.cuts, cut), append(p.kills, kill)
	}
	points := slices.DeleteFunc(engine.Points(), func(p engine.Point) bool { return p == engine.Bought || p == engine.AtGate })
	for range r.IntN(3) {
		p.deaths = append(p.deaths, points[r.IntN(len(points))])
	}
	return p
}

// An ending is what a life came to.
type ending struct {
	effects, questions, requests int
	record                       keep.Mutation
	doubted                      bool // nobody knew for a while what became of the call
}

// A mortal is the store of one host: once the host is dead, nothing of it is written.
type mortal struct {
	*memory.Store
	dead *atomic.Bool
}

var errDead = errors.New("the host is dead")

// Commit implements store.Committer.
func (m mortal) Commit(ctx context.Context, c keep.Commit) error {
	if m.dead.Load() {
		return errDead
	}
	return m.Store.Commit(ctx, c)
}

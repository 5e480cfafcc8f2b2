package config_test

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"hash/fnv"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/cmd/keep/internal/config"
	"github.com/keep-run/keep/engine"
	"github.com/keep-run/keep/store/memory"
	"github.com/keep-run/keep/testkit/connectortest"
)

var lossesWanted = flag.Int("losses", 10, "lives of a call that TestLosses lives with each tool; with -update they are written down")

// lossesFile is what the lives of the last long run came to, by tool.
const lossesFile = "testdata/losses.json"

// fullLosses is how many lives stand behind a line of docs/SERVICES.md.
const fullLosses = 1000

// A tally is what the lives of one tool came to.
type tally struct {
	Version string `json:"version"` // of the pack
	Lives   int    `json:"lives"`
	Once    int    `json:"once"`  // the effect is there, and nobody was asked
	Asked   int    `json:"asked"` // a person was asked one question

	// Of the lives in which nobody knew for a while what became of the call: how many there
	// were, and the requests after the first one until it was certain or a person was asked.
	Doubted int `json:"doubted"`
	Median  int `json:"median"`
	Most    int `json:"most"`

	mu       sync.Mutex // protects all fields while lives are lived
	requests []int
}

// TestLosses lives a call of each mutate tool with answers that are lost, connections that
// are cut at any byte, hosts that are killed at any point, several of these at once, in
// the call, its lookups and its repetitions: the service has the effect once, or one
// question is open. Laws: once, witnessed, explained.
func TestLosses(t *testing.T) {
	var mu sync.Mutex
	tallies := map[string]*tally{}
	t.Run("tools", func(t *testing.T) {
		for full := range proofs {
			t.Run(full, func(t *testing.T) {
				t.Parallel()
				sum := &tally{}
				atOnce(*lossesWanted, func(n int) { sum.live(t, full, n) })
				mu.Lock()
				defer mu.Unlock()
				tallies[full] = sum
			})
		}
	})
	if *update && !t.Failed() && *lossesWanted >= fullLosses {
		writeTallies(t, tallies)
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
	for range 6 {
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
	switch {
	case out.effects > 1, out.questions > 1, out.effects == 0 && out.questions == 0:
		t.Errorf("life %d of %s: %d effects and %d questions, %s; it had %s", n, full, out.effects, out.questions, out.record.State, p)
		return
	case out.questions == 1:
		y.Asked++
	default:
		y.Once++
	}
	y.Lives++
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
			{Status: 500}, {Status: 502}, {Skip: true, Status: 503}, {Skip: true, Status: 504},
			{Skip: true, Status: 429, RetryAfter: 0},
		}[r.IntN(13)])
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
	points := slices.DeleteFunc(engine.Points(), func(p engine.Point) bool { return p == engine.Bought })
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

// writeTallies writes down what the lives came to.
func writeTallies(t *testing.T, tallies map[string]*tally) {
	t.Helper()
	all, err := config.Packs(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for full, y := range tallies {
		slices.Sort(y.requests)
		y.Doubted, y.Median, y.Most = len(y.requests), y.requests[len(y.requests)/2], y.requests[len(y.requests)-1]
		for _, p := range all {
			if name, _, _ := strings.Cut(full, "."); name == p.Name {
				y.Version = p.Version
			}
		}
	}
	raw, err := json.MarshalIndent(tallies, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(lossesFile, append(raw, '\n'), 0o644); err != nil {
		t.Fatal(err)
	}
}

// readTallies returns what the last long run came to. Every tool has been through it, with
// the version of its pack that there is.
func readTallies(t *testing.T) map[string]*tally {
	t.Helper()
	raw, err := os.ReadFile(lossesFile)
	if err != nil {
		t.Fatal(err)
	}
	var out map[string]*tally
	if err := json.Unmarshal(raw, &out); err != nil {
		t.Fatal(err)
	}
	for full := range proofs {
		if y := out[full]; y == nil || y.Lives < fullLosses || y.Once+y.Asked != y.Lives {
			t.Fatalf("%s: %s has not %d lives of it; make losses", full, lossesFile, fullLosses)
		}
	}
	for _, full := range slices.Sorted(maps.Keys(out)) {
		if _, ok := proofs[full]; !ok {
			t.Errorf("%s has lives and no proof; make losses", full)
		}
	}
	return out
}

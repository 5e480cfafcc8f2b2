package simtest

import (
	"bytes"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/internal/pgtest"
	"github.com/keep-run/keep/store/postgres"
	"github.com/keep-run/keep/store/sqlite"
)

// storesSeeds are the first worlds of TestStoresMakeNoDifference: in the third an input is
// skipped, and in the fourth people edit everything and set the clock back.
var storesSeeds = []uint64{1, 2, 16, 13, 3, 4, 5, 6, 35}

// nthSeed returns the seed of a world of TestStoresMakeNoDifference.
func nthSeed(n int) uint64 {
	if n < len(storesSeeds) {
		return storesSeeds[n]
	}
	return uint64(n) + 100
}

// A step costs a server a round trip, so it has few seeds.
var serverSeeds = flag.Int("server-seeds", 2, "how many seeds TestStoresMakeNoDifference lives through on Postgres")

func TestMain(m *testing.M) { os.Exit(pgtest.Main(m)) }

// onSQLite returns an Opener of a file.
func onSQLite(t *testing.T) Opener {
	path := filepath.Join(t.TempDir(), "keep.db")
	return func() (Store, func() error) {
		db := sqlite.New(path, sqlite.Config{Host: true})
		if err := db.Open(person); err != nil {
			t.Fatal(err)
		}
		return db, db.Close
	}
}

// onPostgres returns an Opener of a schema. It listens to nothing: a bubble in which
// somebody waits for the network never rests, and so its clock would stand still. A
// statement that is under way holds the clock up, too, and so takes no time.
func onPostgres(t *testing.T) Opener {
	url := pgtest.SchemaURL(t)
	return func() (Store, func() error) {
		db := postgres.New(url, postgres.Config{})
		if err := db.Open(person); err != nil {
			t.Fatal(err)
		}
		return db, db.Close
	}
}

// The same worlds on every store: commits that fail, that are made and reported
// as failed, crashes, and all else that a seed decides. No law is broken, and
// the engine does the same things in the same order as in memory, since a store
// makes no difference.
//
// On Postgres there is one difference, and no other. A sweep leaves the newest row of the
// database, so that ids and cursors are not used again. Rows of several workflows are
// numbered there by the times of their commits, so that no two workflows share a counter
// (the first migration says so). When the clock was set back, the newest row is that of
// the latest time, and not the one that was committed last: a sweep leaves another chain
// than in memory. From there on the worlds differ, so the first difference is looked at.
func TestStoresMakeNoDifference(t *testing.T) {
	t.Parallel()
	if raced {
		t.Skip("test.sh runs it without the race detector, which makes SQLite ten times slower")
	}
	for _, store := range []struct {
		name   string
		open   func(*testing.T) Opener
		seeds  int
		byTime bool // rows of several workflows are in the order of the times of their commits
	}{
		{"sqlite", onSQLite, len(storesSeeds), false},
		{"postgres", onPostgres, *serverSeeds, true},
	} {
		t.Run(store.name, func(t *testing.T) {
			var sum Result
			for n := range store.seeds {
				seed := nthSeed(n)
				var asIs, onStore bytes.Buffer
				live := func(open Opener, trace io.Writer) Result {
					w := newWorld(seed, trace)
					w.open = open
					return w.run(t)
				}
				want, got := live(inMemory(), &asIs), live(store.open(t), &onStore)
				for _, problem := range got.Problems {
					t.Errorf("seed %d: broken law %s", seed, problem)
				}
				before, ours, theirs := firstDifference(asIs.String(), onStore.String())
				switch explained := store.byTime && want.Seen[setBack]+want.Seen[setBack+" under the host"] > 0 && isSweep(ours) && isSweep(theirs); {
				case got.Digest == want.Digest:
				case explained:
					t.Logf("seed %d: a sweep after the clock was set back: %q in memory, %q here", seed, ours, theirs)
				default:
					t.Errorf("seed %d: %s; in memory: %s; after %q came %q in memory, and %q here", seed, got, want, before, ours, theirs)
				}
				sum.Add(got)
			}
			t.Log(sum)
			if store.seeds < 6 {
				return
			}
			for _, what := range append(changes(), "fault: commit is lost", "fault: commit is unknown", "fault: commit is slow") {
				if sum.Seen[what] == 0 {
					t.Errorf("this never happened: %s", what)
				}
			}
		})
	}
}

// setBack is how a world counts that the clock of its host was set back.
const setBack = "fault: the clock was set back"

// firstDifference returns the first lines that two traces do not share, and the one before.
func firstDifference(a, b string) (before, inA, inB string) {
	as, bs := strings.Split(a, "\n"), strings.Split(b, "\n")
	for i := range min(len(as), len(bs)) {
		if as[i] != bs[i] {
			return before, as[i], bs[i]
		}
		before = as[i]
	}
	return before, "", ""
}

// isSweep reports whether a line of a trace is what a sweep did.
func isSweep(line string) bool { return strings.Contains(line, "sweep ") }

// changes returns what a sample must have seen committed: all that an engine
// asks of a store, but the reset of a checkpoint, which people seldom do.
func changes() (names []string) {
	for _, c := range []keep.Change{
		keep.PutRun{}, keep.PutMutation{}, keep.Reserve{}, keep.Release{}, keep.Finish{}, keep.Publish{}, keep.SkipEvents{},
		keep.PutInput{}, keep.SkipInput{}, keep.SetKV{}, keep.PutHandler{}, keep.RequestRun{}, keep.Deploy{}, keep.SetPaused{},
		keep.AppendLogs{}, keep.AppendTrace{}, keep.OpenEscalation{}, keep.CloseEscalation{}, keep.PutItem{}, keep.Sweep{},
	} {
		names = append(names, fmt.Sprintf("change: %T", c))
	}
	return names
}

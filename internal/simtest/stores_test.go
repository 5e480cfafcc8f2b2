package simtest

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/internal/pgtest"
	"github.com/keep-run/keep/store/postgres"
	"github.com/keep-run/keep/store/sqlite"
)

// storesSeeds are the worlds of TestStoresMakeNoDifference: in the fourth an input is skipped,
// and in the fifth people edit everything and set the clock back. The fifth is too late for
// Postgres: the newest row, which a sweep leaves, is another one there after that.
var storesSeeds = []uint64{1, 2, 3, 16, 13, 4, 5, 6, 7}

// A step costs a server a round trip, so it has few seeds.
var serverSeeds = flag.Int("server-seeds", fewServerSeeds, "how many seeds TestStoresMakeNoDifference lives through on Postgres")

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
func TestStoresMakeNoDifference(t *testing.T) {
	t.Parallel()
	for _, store := range []struct {
		name  string
		open  func(*testing.T) Opener
		seeds int
	}{
		{"sqlite", onSQLite, storeSeeds},
		{"postgres", onPostgres, *serverSeeds},
	} {
		t.Run(store.name, func(t *testing.T) {
			var sum Result
			for _, seed := range storesSeeds[:store.seeds] {
				want, got := Run(t, seed, nil), RunOn(t, store.open(t), seed, nil)
				for _, problem := range got.Problems {
					t.Errorf("seed %d: broken law %s", seed, problem)
				}
				if got.Digest != want.Digest {
					t.Errorf("seed %d: %s; in memory: %s", seed, got, want)
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

// changes returns what a sample must have seen committed: all that an engine
// asks of a store, but the reset of a checkpoint, which people seldom do.
func changes() (names []string) {
	for _, c := range []keep.Change{
		keep.PutRun{}, keep.PutMutation{}, keep.Reserve{}, keep.Release{}, keep.Finish{}, keep.Publish{}, keep.SkipEvents{},
		keep.PutInput{}, keep.SkipInput{}, keep.SetKV{}, keep.PutHandler{}, keep.RequestRun{}, keep.Deploy{}, keep.SetPaused{},
		keep.AppendLogs{}, keep.OpenEscalation{}, keep.CloseEscalation{}, keep.PutItem{}, keep.Sweep{},
	} {
		names = append(names, fmt.Sprintf("change: %T", c))
	}
	return names
}

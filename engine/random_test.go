package engine_test

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/engine"
	"github.com/keep-run/keep/internal/ceiling"
	"github.com/keep-run/keep/store/sqlite"
)

var _ database = (*sqlite.DB)(nil)

// A hundred events. Fifty times the process dies at a random point, or a commit
// fails or is of unknown fate, and the store is opened again; meanwhile the
// service loses answers and calls. In the end every event is consumed, by one
// effect, and Check was clean after each crash.
func TestRandomCrashes(t *testing.T) {
	for seed := range uint64(4) {
		for _, level := range []keep.Level{keep.LevelKey, keep.LevelWitness} {
			t.Run(fmt.Sprintf("%s/seed=%d", level, seed), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					w := newWorld(t)
					w.service.level = level
					w.crashAtRandom(rand.New(rand.NewPCG(seed, 4)), 100, 50, func() {})
				})
			})
		}
	}
}

// The same over a SQLite file, which is closed and opened again each time. The
// race detector makes SQLite, which is Go here, fifteen times slower.
func TestRandomCrashesOfAFile(t *testing.T) {
	events, crashes := 100, 50
	if ceiling.Race {
		events, crashes = 20, 8
	}
	path := filepath.Join(t.TempDir(), "keep.db")
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		db := w.reopen(nil, path)
		w.crashAtRandom(rand.New(rand.NewPCG(7, 4)), events, crashes, func() { db = w.reopen(db, path) })
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
}

// crashAtRandom plays the story of TestRandomCrashes; reopen is what a new
// process does first.
func (w *world) crashAtRandom(dice *rand.Rand, events, crashes int, reopen func()) {
	w.service.onCall = unreliable(dice)
	w.deploy()
	var ids []string
	for i := range events {
		ids = append(ids, fmt.Sprintf("e%02d", i))
	}
	w.publish("in", ids...)
	points := engine.Points()
	for range crashes {
		struck := false
		if dice.IntN(2) == 0 {
			w.dieAt, w.skipPoints = points[dice.IntN(len(points))], dice.IntN(3)
		} else {
			w.strike(1+dice.IntN(8), []fate{lost, unknown, dieBefore, dieAfter}[dice.IntN(4)], &struck)
		}
		_ = w.runFor(time.Duration(1+dice.IntN(20)) * time.Second) // of virtual time; the dead are never idle
		w.onCommit, w.dieAt = nil, ""
		reopen()
	}
	w.service.onCall = nil
	w.run()
	w.wantOnce(ids...)
}

// unreliable returns a service that loses every eighth call or answer, or is
// busy.
func unreliable(dice *rand.Rand) func(int) (bool, error) {
	var mu sync.Mutex
	return func(int) (bool, error) {
		mu.Lock()
		defer mu.Unlock()
		switch dice.IntN(24) {
		case 0:
			return true, errReset
		case 1:
			return false, errReset
		case 2:
			return false, keep.Failf(keep.ClassTransient, "http-429", "too many requests")
		}
		return true, nil
	}
}

// reopen closes db, as the end of a process does, and opens the file again.
func (w *world) reopen(db *sqlite.DB, path string) *sqlite.DB {
	w.t.Helper()
	if db != nil {
		if err := db.Close(); err != nil {
			w.t.Fatal(err)
		}
	}
	db = sqlite.New(path, sqlite.Config{Host: true})
	if err := db.Open(w.t.Context()); err != nil {
		w.t.Fatal(err)
	}
	w.store = db
	return db
}

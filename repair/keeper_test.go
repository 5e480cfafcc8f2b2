package repair_test

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/internal/llmtest"
	law "github.com/keep-run/keep/law/repair"
	"github.com/keep-run/keep/repair"
	"github.com/keep-run/keep/store"
	"github.com/keep-run/keep/store/sqlite"
)

func (w *world) keeper(t testing.TB, s *llmtest.Server, db store.Repairs) *repair.Keeper {
	t.Helper()
	return &repair.Keeper{Repairer: w.repairer(t, s, false), Store: db, Clock: time.Now}
}

// openRepairs opens a database in a file.
func openRepairs(t testing.TB) *sqlite.DB {
	t.Helper()
	db := sqlite.New(filepath.Join(t.TempDir(), "keep.db"), sqlite.Config{Host: true})
	if err := db.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	return db
}

// TestKeeper repairs a failure once: those that are alike get what came of it, and nobody is asked.
func TestKeeper(t *testing.T) {
	w := newWorld(t, renamed)
	fixed := caseOf(t, "falls-back").source
	for name, tt := range map[string]struct {
		reply    llmtest.Reply
		stage    law.Stage
		requests int
	}{
		"safe":      {call("propose", fixed), law.Proposed, 1},
		"impactful": {call("propose", caseOf(t, "drops-the-guard").source), law.Proposed, 1},
		"refused":   {call("propose", caseOf(t, "another-tool").source), law.Used, 3},
		"words":     {llmtest.Reply{Text: "no"}, law.Used, 3},
	} {
		t.Run(name, func(t *testing.T) {
			db := openRepairs(t)
			s := llmtest.Start(t, func(llmtest.Request) llmtest.Reply { return tt.reply })
			failed := w.failed
			for i := range 1000 {
				rec, err := w.keeper(t, s, db).Repair(t.Context(), failed)
				if err != nil || rec.Stage != tt.stage || (rec.Proposal() != nil) != (tt.stage == law.Proposed) {
					t.Fatalf("repair %d: %+v, %v; want %s", i+1, rec, err, tt.stage)
				}
				if len(rec.Tried()) != tt.requests || rec.Spent().Tokens == 0 || rec.Stage == law.Used && rec.Why == "" {
					t.Fatalf("tried %q, %d tokens, %q", rec.Tried(), rec.Spent().Tokens, rec.Why)
				}
				failed.ID = keep.RunID("run_other")
			}
			if n := len(s.Requests()); n != tt.requests {
				t.Errorf("1,000 failures that are alike asked %d times, want %d", n, tt.requests)
			}
			all, err := db.Repairs(t.Context(), w.failed.Workflow, time.Time{})
			if err != nil || len(all) != 1 {
				t.Errorf("%d repairs, %v; want one", len(all), err)
			}
		})
	}
}

// TestPerDay ends a repair before it begins when the workflow had enough of them.
func TestPerDay(t *testing.T) {
	w := newWorld(t, renamed)
	db := openRepairs(t)
	s := llmtest.Start(t, func(llmtest.Request) llmtest.Reply { return llmtest.Reply{Text: "no"} })
	now := time.Now()
	for i := range 12 {
		failed := w.failed
		f := *failed.Error
		failed.Error, f.At = &f, strings.Repeat("x", i+1) // another place
		k := w.keeper(t, s, db)
		k.Clock = func() time.Time { return now }
		rec, err := k.Repair(t.Context(), failed)
		if err != nil || rec.Stage != law.Used || (i >= 10) != strings.Contains(rec.Why, "10 repairs of the workflow") {
			t.Errorf("repair %d: %+v, %v", i+1, rec, err)
		}
		if want := 3 * min(i+1, 10); len(s.Requests()) != want {
			t.Errorf("after repair %d: %d requests, want %d", i+1, len(s.Requests()), want)
		}
	}
	if all, err := db.Repairs(t.Context(), "", time.Time{}); err != nil || len(all) != 10 {
		t.Errorf("%d repairs are kept, %v; want 10", len(all), err)
	}
	failed := w.failed
	k := w.keeper(t, s, db)
	k.Clock = func() time.Time { return now.Add(25 * time.Hour) }
	if rec, err := k.Repair(t.Context(), failed); err != nil || len(rec.Attempts) != 3 {
		t.Errorf("a day later: %+v, %v; want three attempts", rec, err)
	}
}

type kept = store.Repairs

// A dying store is one whose host dies at a write: before it, or right after.
type dying struct {
	kept
	at    int // writes until then
	after bool
	n     atomic.Int64
}

var errDead = errors.New("the host is dead")

func (d *dying) PutRepair(ctx context.Context, r keep.Repair) error {
	n := int(d.n.Add(1))
	if n > d.at || n == d.at && !d.after {
		return errDead
	}
	if err := d.kept.PutRepair(ctx, r); err != nil {
		return err
	}
	if n == d.at {
		return errDead
	}
	return nil
}

// TestDies has the host die at each durable step of a repair, and another one continue: no attempt
// is made twice, the model is asked no more often than there are attempts, and the end is the same
// whenever it is asked for.
func TestDies(t *testing.T) {
	w := newWorld(t, renamed)
	replies := []llmtest.Reply{{Text: "no"}, call("propose", caseOf(t, "another-tool").source), call("propose", caseOf(t, "falls-back").source)}
	for at := 1; at <= 7; at++ {
		for _, after := range []bool{false, true} {
			db := openRepairs(t)
			s := llmtest.Start(t, func(q llmtest.Request) llmtest.Reply { return replies[min(q.N, 3)-1] })
			_, err := w.keeper(t, s, &dying{kept: db, at: at, after: after}).Repair(t.Context(), w.failed)
			if died := at <= 6; errors.Is(err, errDead) != died {
				t.Fatalf("at write %d: %v, want it to die: %t", at, err, died)
			}
			rec, err := w.keeper(t, s, db).Repair(t.Context(), w.failed)
			if err != nil || rec.Stage == law.Trying || len(rec.Attempts) > 3 {
				t.Fatalf("after write %d: %+v, %v", at, rec, err)
			}
			again, err := w.keeper(t, s, db).Repair(t.Context(), w.failed)
			if err != nil || again.Stage != rec.Stage || len(again.Attempts) != len(rec.Attempts) {
				t.Errorf("after write %d: %+v, and then %+v, %v", at, rec, again, err)
			}
			if n := len(s.Requests()); n > 3 {
				t.Errorf("after write %d (written: %t) the model was asked %d times, for %d attempts", at, after, n, len(rec.Attempts))
			}
		}
	}
}

// deployNext has a person deploy version 2.0, unless that was done.
func (w *world) deployNext(t testing.TB) {
	d := w.base.Deployment
	d.Version = keep.Version{Major: 2}
	err := w.db.Commit(t.Context(), keep.Commit{Workflow: d.Workflow, At: time.Now().UTC().Truncate(time.Millisecond), Changes: []keep.Change{keep.Deploy{Deployment: d}}})
	if err != nil && !errors.Is(err, keep.ErrStale) {
		t.Error(err)
	}
}

// TestReplaced has a person deploy while a model is asked: it is not asked again, what it answers is not kept,
// and what it cost is.
func TestReplaced(t *testing.T) {
	for name, reply := range map[string]llmtest.Reply{
		"talks": {Calls: []llmtest.Call{{Name: "check", Arguments: map[string]string{"source": "x"}}}},
		"words": {Text: "no"}, "proposes": call("propose", caseOf(t, "falls-back").source),
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, renamed)
			db := openRepairs(t)
			s := llmtest.Start(t, func(llmtest.Request) llmtest.Reply {
				w.deployNext(t)
				return reply
			})
			for i := range 2 {
				rec, err := w.keeper(t, s, db).Repair(t.Context(), w.failed)
				if err != nil || rec.Stage != law.Replaced || rec.Why != "version 2.0 was deployed meanwhile" || len(rec.Attempts) != 1 || rec.Attempts[0].Source != "" || rec.Spent().Tokens == 0 {
					t.Errorf("repair %d: %+v, %v; want one that version 2.0 replaced", i, rec, err)
				}
			}
			failed := w.failed
			f := *failed.Error
			failed.Error, f.At = &f, "another place"
			if rec, err := w.keeper(t, s, db).Repair(t.Context(), failed); err != nil || rec.Stage != law.Replaced || len(rec.Attempts) != 0 {
				t.Errorf("another failure of the version that was replaced: %+v, %v", rec, err)
			}
			if all, err := db.Repairs(t.Context(), "", time.Time{}); err != nil || len(all) != 1 {
				t.Errorf("%d repairs are kept, %v; want the one that began", len(all), err)
			}
			if n := len(s.Requests()); n != 1 {
				t.Errorf("the model was asked %d times, want once", n)
			}
		})
	}
}

// A failing store fails to list runs while it is broken.
type failing struct {
	repair.Store
	broken *atomic.Bool
}

var errGone = errors.New("the database is gone")

func (f failing) Runs(ctx context.Context, filter keep.RunFilter, p keep.Page) ([]keep.Run, string, error) {
	if f.broken.Swap(false) {
		return nil, "", errGone
	}
	return f.Store.Runs(ctx, filter, p)
}

// TestBreaks has an attempt end by an error after the model has answered: what it cost is kept, and why it ended.
func TestBreaks(t *testing.T) {
	fixed := call("propose", caseOf(t, "falls-back").source)
	t.Run("store", func(t *testing.T) {
		w := newWorld(t, renamed)
		db := openRepairs(t)
		var broken atomic.Bool
		w.bench.Store = failing{w.bench.Store, &broken}
		s := llmtest.Start(t, func(llmtest.Request) llmtest.Reply { broken.Store(true); return fixed })
		k := w.keeper(t, s, db)
		k.Repairer.Limits.Tokens = 1
		if _, err := k.Repair(t.Context(), w.failed); !errors.Is(err, errGone) {
			t.Fatalf("Repair: %v, want %v", err, errGone)
		}
		rec, err := k.Repair(t.Context(), w.failed)
		if err != nil || rec.Stage != law.Used || rec.Spent().Tokens == 0 || rec.Spent().Cost == 0 {
			t.Errorf("%+v, %v; want a budget that is used up", rec, err)
		}
		if got := rec.Tried(); len(got) != 1 || !strings.HasPrefix(got[0], "attempt 1: it could not be tried: ") || !strings.Contains(got[0], errGone.Error()) {
			t.Errorf("tried %q, want one attempt that the database ended", got)
		}
		if n := len(s.Requests()); n != 1 {
			t.Errorf("the model was asked %d times, want once", n)
		}
	})
	t.Run("next", func(t *testing.T) {
		w := newWorld(t, renamed)
		db := openRepairs(t)
		var broken atomic.Bool
		w.bench.Store = failing{w.bench.Store, &broken}
		s := llmtest.Start(t, func(q llmtest.Request) llmtest.Reply {
			broken.Store(q.N == 2)
			return []llmtest.Reply{{Text: "no"}, fixed, fixed}[q.N-1]
		})
		k := w.keeper(t, s, db)
		if _, err := k.Repair(t.Context(), w.failed); !errors.Is(err, errGone) {
			t.Fatalf("Repair: %v, want %v", err, errGone)
		}
		rec, err := k.Repair(t.Context(), w.failed)
		if err != nil || rec.Stage != law.Proposed || len(rec.Attempts) != 3 || !strings.Contains(rec.Tried()[1], errGone.Error()) {
			t.Errorf("%+v, %v; want the third attempt's proposal", rec, err)
		}
		if text := s.Requests()[2].Text; !strings.Contains(text, "attempt 1: the model answered without a proposal") || strings.Contains(text, "attempt 2") || strings.Contains(text, errGone.Error()) {
			t.Errorf("the model is told what is not of a script: %s", text)
		}
	})
	t.Run("host", func(t *testing.T) {
		w := newWorld(t, renamed)
		db := openRepairs(t)
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		s := llmtest.Start(t, func(q llmtest.Request) llmtest.Reply {
			if q.N == 1 {
				stop()
			}
			return fixed
		})
		if _, err := w.keeper(t, s, db).Repair(ctx, w.failed); !errors.Is(err, context.Canceled) {
			t.Fatalf("Repair: %v, want %v", err, context.Canceled)
		}
		stored, err := db.Repairs(t.Context(), "", time.Time{})
		if err != nil || len(stored) != 1 {
			t.Fatalf("%d repairs, %v", len(stored), err)
		}
		rec, err := law.ReadRecord(stored[0])
		if err != nil || len(rec.Attempts) != 1 || rec.Attempts[0].EndedAt.IsZero() || !strings.Contains(rec.Tried()[0], "the host ended") {
			t.Errorf("%q, %v; want an attempt that the host ended", rec.Tried(), err)
		}
	})
}

// A refusing store refuses some writes.
type refusing struct {
	kept
	writes []int // that it refuses, from 1
	n      int
}

func (r *refusing) PutRepair(ctx context.Context, rec keep.Repair) error {
	if r.n++; slices.Contains(r.writes, r.n) {
		return errGone
	}
	return r.kept.PutRepair(ctx, rec)
}

// TestUnwritten has a database refuse what came of an attempt, again and again: it is known meanwhile, and is
// written before anything else is tried.
func TestUnwritten(t *testing.T) {
	fixed := call("propose", caseOf(t, "falls-back").source)
	for name, breaks := range map[string]bool{"ends by an error": true, "ends with a proposal": false} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, renamed)
			var broken atomic.Bool
			w.bench.Store = failing{w.bench.Store, &broken}
			s := llmtest.Start(t, func(llmtest.Request) llmtest.Reply { broken.Store(breaks); return fixed })
			k := w.keeper(t, s, &refusing{kept: openRepairs(t), writes: []int{2, 3, 4}})
			k.Repairer.Limits.Tokens = 1
			for range 3 {
				if _, err := k.Repair(t.Context(), w.failed); !errors.Is(err, errGone) {
					t.Fatalf("Repair: %v, want %v", err, errGone)
				}
			}
			want := law.Proposed
			if breaks {
				want = law.Used
			}
			rec, err := k.Repair(t.Context(), w.failed)
			if err != nil || rec.Stage != want || len(rec.Attempts) != 1 || rec.Spent().Tokens == 0 || rec.Spent().Cost == 0 || rec.Attempts[0].Why == law.HostEnded {
				t.Errorf("%+v, %v; want %s, with what the attempt cost", rec, err, want)
			}
			if n := len(s.Requests()); n != 1 {
				t.Errorf("the model was asked %d times, want once", n)
			}
		})
	}
	t.Run("replaced", func(t *testing.T) {
		w := newWorld(t, renamed)
		s := llmtest.Start(t, func(llmtest.Request) llmtest.Reply { return fixed })
		k := w.keeper(t, s, &refusing{kept: openRepairs(t), writes: []int{2, 3}})
		for range 2 {
			if _, err := k.Repair(t.Context(), w.failed); !errors.Is(err, errGone) {
				t.Fatalf("Repair: %v, want %v", err, errGone)
			}
			w.deployNext(t)
		}
		rec, err := k.Repair(t.Context(), w.failed)
		if err != nil || rec.Stage != law.Replaced || rec.Attempts[0].Source != "" || rec.Spent().Tokens == 0 {
			t.Errorf("%+v, %v; want one that another version replaced, with what it cost", rec, err)
		}
	})
}

// Of two hosts that repair the same one continues.
func TestTwoHosts(t *testing.T) {
	w := newWorld(t, renamed)
	db := openRepairs(t)
	var other error
	s := llmtest.Start(t, func(q llmtest.Request) llmtest.Reply {
		if q.N == 1 { // while the first host waits for the model
			_, other = w.keeper(t, llmtest.Start(t, func(llmtest.Request) llmtest.Reply { return llmtest.Reply{Text: "no"} }), db).Repair(t.Context(), w.failed)
		}
		return call("propose", caseOf(t, "falls-back").source)
	})
	_, err := w.keeper(t, s, db).Repair(t.Context(), w.failed)
	if other != nil || !errors.Is(err, keep.ErrStale) {
		t.Errorf("the first host: %v, want %v; the one that came later: %v", err, keep.ErrStale, other)
	}
	rec, err := w.keeper(t, s, db).Repair(t.Context(), w.failed)
	if err != nil || rec.Stage != law.Used || len(rec.Attempts) != 3 || rec.Proposal() != nil {
		t.Errorf("%+v, %v; want the end that the other host found", rec, err)
	}
}

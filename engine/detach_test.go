package engine_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector"
	"github.com/keep-run/keep/engine"
	"github.com/keep-run/keep/law/policy"
	"github.com/keep-run/keep/law/schedule"
)

// newLooseWorld is newJobWorld with the policy that a blocked item blocks only
// itself.
func newLooseWorld(t testing.TB, items ...string) *world {
	w := newJobWorld(t, items...)
	w.policy.OnItemBlocked = policy.Continue
	return w
}

// lose makes the n-th call lose its answer, after its effect or before it.
func lose(n int, effect bool) func(int) (bool, error) {
	return func(i int) (bool, error) {
		if i == n {
			return effect, errReset
		}
		return true, nil
	}
}

// The other items continue while the service is asked in the background, although
// the run that made the call is over; then the next run completes the item.
func TestBlockedItemBlocksOnlyItself(t *testing.T) {
	for _, effect := range []bool{true, false} {
		inKinds(t, fmt.Sprint(effect), func(t *testing.T, kind string) {
			synctest.Test(t, func(t *testing.T) {
				w := newLooseWorld(t, "a", "b", "c").writtenIn(kind)
				w.service.onCall = lose(1, effect)
				w.service.onAsk = func(n int) (connector.Verdict, error) {
					if n < 5 {
						return "", errReset
					}
					if effect {
						return connector.Happened, nil
					}
					return connector.Absent, nil
				}
				w.deploy()
				if err := w.runFor(time.Minute); err == nil {
					t.Error("idle with a lookup pending")
				}
				if got := w.items(); got["a"] != keep.ItemFailed || got["b"] != keep.ItemDone || got["c"] != keep.ItemDone {
					t.Errorf("while a is in doubt the items are %v, want b and c done", got)
				}
				if open, _, err := w.store.Runs(t.Context(), keep.RunFilter{Workflow: "w", Open: true}, keep.Page{}); err != nil || len(open) != 0 {
					t.Errorf("%d open runs, %v; want none", len(open), err)
				}
				w.run()
				if got := w.items()["a"]; got != keep.ItemDone || w.service.total() != 3 || w.service.asked != 5 {
					t.Errorf("a is %s after %d effects and %d lookups, want done after 3 and 5", got, w.service.total(), w.service.asked)
				}
			})
		})
	}
}

// A doubt that nobody can end waits for a person, whose answer moves the mutation
// of a closed run; the next run of the job acts on it.
func TestPersonDecidesAboutBlockedItem(t *testing.T) {
	for _, tt := range []struct {
		level  keep.Level
		action keep.Action
		calls  int
		status keep.ItemStatus
	}{
		{keep.LevelNone, keep.DidNotHappen, 4, keep.ItemDone},
		{keep.LevelNone, keep.Skip, 3, keep.ItemSkipped},
		{keep.LevelWitness, keep.DidNotHappen, 4, keep.ItemDone},
		{keep.LevelWitness, keep.CheckAgain, 3, keep.ItemDone},
	} {
		t.Run(fmt.Sprintf("%s %s", tt.level, tt.action), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newLooseWorld(t, "a", "b", "c")
				w.service.level = tt.level
				w.service.onCall = lose(1, tt.action == keep.CheckAgain)
				w.service.onAsk = func(int) (connector.Verdict, error) { return "", errReset }
				w.deploy()
				w.run()
				if got := w.items(); got["b"] != keep.ItemDone || got["c"] != keep.ItemDone || w.service.calls != 3 {
					t.Fatalf("items %v after %d calls, want b and c done after 3", got, w.service.calls)
				}
				time.Sleep(3 * time.Hour)
				w.deploy()
				w.run() // later runs and versions pass it over, too
				if got := w.items()["a"]; got != keep.ItemFailed || w.service.calls != 3 {
					t.Fatalf("a is %s after %d calls, want failed after 3", got, w.service.calls)
				}
				if err := w.engine().SkipItem(t.Context(), "w", "b", keep.Decision{By: "ann"}); err == nil {
					t.Error("a done item was skipped")
				}
				w.service.onAsk = nil
				if err := w.decide(tt.action); err != nil {
					t.Fatal(err)
				}
				w.run()
				if got := w.items()["a"]; got != tt.status || w.service.calls != tt.calls || len(w.questions()) != 0 {
					t.Errorf("a is %s after %d calls with %d questions, want %s after %d with none", got, w.service.calls, len(w.questions()), tt.status, tt.calls)
				}
				if n := w.service.total(); n > 3 {
					t.Errorf("%d effects, want at most 3", n)
				}
			})
		})
	}
}

// An item in doubt isn't skipped behind the lookup, and skipping it answers its
// question if there is one.
func TestSkipBlockedItem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newLooseWorld(t, "a", "b")
		w.service.onCall = lose(1, true)
		w.service.onAsk = func(int) (connector.Verdict, error) { return "", errReset }
		w.deploy()
		_ = w.runFor(time.Minute)
		if err := w.engine().SkipItem(t.Context(), "w", "a", keep.Decision{By: "ann"}); err == nil {
			t.Error("an item was skipped while its call is being asked about")
		}
		w.run()
		if err := w.engine().SkipItem(t.Context(), "w", "a", keep.Decision{By: "ann"}); err != nil {
			t.Fatal(err)
		}
		w.run()
		if got := w.items()["a"]; got != keep.ItemSkipped || len(w.questions()) != 0 || w.service.calls != 2 {
			t.Errorf("a is %s with %d questions after %d calls, want skipped with none after 2", got, len(w.questions()), w.service.calls)
		}
	})
}

// Several items may be blocked at once, each with its own question; with too many
// of them the job waits as if the policy were "stop" (law: bounded).
func TestManyBlockedItems(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ids []string
		for i := range 120 {
			ids = append(ids, fmt.Sprintf("i%03d", i))
		}
		w := newLooseWorld(t, ids...)
		w.policy.Breaker.Failures = 0 // which would stop the calls after ten
		w.service.level = keep.LevelNone
		w.service.onCall = func(int) (bool, error) { return true, errReset }
		w.deploy()
		w.run()
		qs, _, err := w.store.Escalations(t.Context(), keep.EscalationFilter{Open: true}, keep.Page{Limit: 1000})
		if err != nil || len(qs) != 101 || w.service.calls != 101 {
			t.Fatalf("%d questions after %d calls, %v; want 101: a hundred detached, one that stops the job", len(qs), w.service.calls, err)
		}
		if r := w.lastRun(); r.Closed || r.Status != keep.StatusReconciliation {
			t.Errorf("run = %s, closed: %t; want an open one, paused:reconciliation", r.Status, r.Closed)
		}
		w.service.onCall = nil
		for _, q := range qs {
			if err := w.engine().Decide(t.Context(), q.ID, keep.Decision{Action: keep.Skip, By: "ann"}); err != nil {
				t.Fatal(err)
			}
		}
		w.run()
		if w.service.calls != 120 || w.service.total() != 120 {
			t.Errorf("%d calls, %d effects; want 120 and 120", w.service.calls, w.service.total())
		}
	})
}

// A service that never gets the call is not called again without end: retries
// have their limit here, too, and their backoff.
func TestBlockedItemRetriesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newLooseWorld(t, "a")
		w.service.onCall = func(int) (bool, error) { return false, errReset }
		w.deploy()
		w.run()
		if most := w.policy.Retry.Attempts + 1; w.service.calls > most || w.service.calls < 2 {
			t.Errorf("%d calls before the next tick, want some and at most %d", w.service.calls, most)
		}
	})
}

// The process dies, or a commit fails or is of unknown fate, at every place of a
// job with a lost answer.
func TestEveryCommitGoesWrongWithBlockedItems(t *testing.T) {
	for _, level := range []keep.Level{keep.LevelKey, keep.LevelWitness, keep.LevelNone} {
		for _, effect := range []bool{true, false} {
			s := story{fmt.Sprint("Lost ", effect), func(w *world) {
				w.policy.OnItemBlocked = policy.Continue
				w.service.onCall = lose(1, effect)
				asked := 0
				w.service.onAsk = func(int) (connector.Verdict, error) {
					if asked++; asked < 3 {
						return "", errReset
					}
					w.service.onAsk = nil
					return "", errReset
				}
			}}
			t.Run(fmt.Sprintf("%s/%t", level, effect), func(t *testing.T) {
				for _, f := range []fate{lost, unknown, dieBefore, dieAfter} {
					for n, more := 1, true; more; n++ {
						more = tryFate(t, keep.Job, level, s, []fate{f}, []int{n})
					}
				}
			})
		}
	}
}

func TestDeathAtEveryPointWithBlockedItems(t *testing.T) {
	for _, p := range []engine.Point{engine.BeforeCall, engine.Recorded, engine.Answered, engine.OutcomeWritten, engine.AfterCommit} {
		for skip := range 3 {
			t.Run(fmt.Sprint(p, skip), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					w := newLooseWorld(t, "a", "b", "c")
					w.service.onCall = lose(1, true)
					w.deploy()
					w.dieAt, w.skipPoints = p, skip
					_ = w.runFor(time.Minute)
					w.dieAt = ""
					w.run()
					if n := w.service.total(); n != 3 {
						t.Errorf("%d effects, want 3", n)
					}
					for id, s := range w.items() {
						if s != keep.ItemDone {
							t.Errorf("item %s is %s, want done", id, s)
						}
					}
				})
			})
		}
	}
}

// The run says what it waits for before it continues, and its log which item it
// passed over.
func TestBlockedItemIsExplained(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newLooseWorld(t, "a", "b")
		w.service.level = keep.LevelNone
		w.service.onCall = lose(1, true)
		var logs []string
		w.onCommit = func(c keep.Commit, do func() error) error {
			for _, change := range c.Changes {
				if l, ok := change.(keep.AppendLogs); ok {
					for _, line := range l.Lines {
						logs = append(logs, line.Text)
					}
				}
			}
			return do()
		}
		w.deploy()
		w.run()
		if len(logs) != 1 || !strings.Contains(logs[0], `item "a" is passed over: it is not known whether svc.create on things happened`) {
			t.Errorf("logs %q, want one line about item a", logs)
		}
	})
}

// A run that is under way passed the item over: the answer makes the job due after it.
func TestDecideBlockedItemBesideARun(t *testing.T) {
	for _, action := range []keep.Action{keep.DidNotHappen, keep.Happened} {
		t.Run(string(action), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newLooseWorld(t, "a", "b")
				w.service.level = keep.LevelNone
				w.service.onCall = func(n int) (bool, error) {
					switch n {
					case 1:
						return action == keep.Happened, errReset
					case 2:
						time.Sleep(time.Second) // virtual: the answer is later than the run
						if err := w.decide(action); err != nil {
							t.Error(err)
						}
					}
					return true, nil
				}
				w.deploy()
				w.run()
				w.run() // reads what is stored
				if got := w.items(); got["a"] != keep.ItemDone || got["b"] != keep.ItemDone || w.service.total() != 2 {
					t.Errorf("%d effects, items %v; want both done once before the next tick", w.service.total(), got)
				}
			})
		})
	}
}

// The job that has the item now is due, whatever its name was when the call was made.
func TestDecideBlockedItemOfARenamedJob(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // the attempt that lost its answer began before, and its version calls the job otherwise
		w := newLooseWorld(t, "a", "b")
		w.service.level = keep.LevelNone
		w.service.onCall = func(n int) (bool, error) {
			switch n {
			case 1:
				return false, keep.Failf(keep.ClassTransient, "busy", "the service is busy")
			case 2:
				return false, errReset
			}
			return true, nil
		}
		w.deploy()
		w.runUntil(time.Millisecond)
		w.def.Handlers = []keep.Handler{{Name: "renamed", Items: "remind", Kind: keep.Job, Schedule: keep.Schedule{Interval: time.Hour}}}
		w.script["jobs.renamed"] = w.script["jobs.remind"]
		w.deploy()
		w.run()
		if r := w.runs()[len(w.runs())-1]; r.Handler != "remind" {
			t.Fatalf("the last attempt is one of %s, want that it kept its handler", r.Handler)
		}
		time.Sleep(time.Minute)
		if err := w.decide(keep.DidNotHappen); err != nil {
			t.Fatal(err)
		}
		w.run()
		if got := w.items()["a"]; got != keep.ItemDone {
			t.Errorf("a is %s before the next tick, want done", got)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		w := newLooseWorld(t, "a", "b")
		w.service.level = keep.LevelNone
		w.service.onCall = lose(1, false)
		w.deploy()
		w.run()
		w.def.Handlers = []keep.Handler{{Name: "renamed", Items: "remind", Kind: keep.Job, Schedule: keep.Schedule{Interval: time.Hour}}}
		w.script["jobs.renamed"] = w.script["jobs.remind"]
		w.deploy()
		w.run()
		time.Sleep(time.Minute)
		if err := w.decide(keep.DidNotHappen); err != nil {
			t.Fatal(err)
		}
		w.run()
		if got := w.items()["a"]; got != keep.ItemDone || w.service.total() != 2 {
			t.Errorf("a is %s with %d effects in all, want done and 2 before the next tick", got, w.service.total())
		}
	})
}

// Doubts about items are passed over however many newer doubts about events the workflow has: the handler of such an item is not run
// again and again.
func TestBlockedItemsBesideManyBlockedEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newLooseWorld(t, "one", "two", "three")
		act := newWorld(t)
		w.def.Topics, w.def.Handlers = act.def.Topics, append(w.def.Handlers, act.def.Handlers...)
		for name, f := range act.script {
			w.script[name] = f
		}
		w.def.Handlers[1].Order = keep.OrderKey
		w.script["consumers.act.key"] = func(c *call) any {
			var ev struct{ MessageID string }
			c.arg(0, &ev)
			return ev.MessageID
		}
		w.service.level, w.policy.Breaker.Failures = keep.LevelNone, 0
		w.service.onCall = func(int) (bool, error) { return false, errReset }
		w.deploy()
		w.run()
		for i := range schedule.MaxOpen {
			w.publish("in", fmt.Sprint("e", i))
		}
		w.run()
		began := make(map[string]int)
		for _, r := range w.runs() {
			began[string(r.Handler)]++
		}
		if began["act"] != schedule.MaxOpen || w.records() < schedule.MaxOpen {
			t.Fatalf("%v runs and %d records", began, w.records())
		}
		w.runUntil(3 * time.Hour) // three ticks of the job
		jobs := 0
		for _, r := range w.runs() {
			if r.Handler == "remind" {
				jobs++
			}
		}
		if more := jobs - began["remind"]; more > 4 {
			t.Errorf("%d more runs of the job in three hours, want one for each tick", more)
		}
	})
}

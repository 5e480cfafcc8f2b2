package engine_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/engine"
	"github.com/keep-run/keep/law/ledger"
)

// withItem is what ctx.withItem does, for scripts in Go.
func (c *call) withItem(id string, f func(c *call, isDone bool)) {
	var view struct{ IsDone, IsBlocked bool }
	if err := json.Unmarshal(c.do("item.begin", id, "Item "+id), &view); err != nil {
		panic(err)
	}
	inner := *c
	c.items++
	inner.scope = c.items
	if view.IsBlocked {
		return
	}
	f(&inner, view.IsDone)
	c.do("item.end")
}

// newJobWorld returns a world whose workflow is one job over items.
func newJobWorld(t testing.TB, items ...string) *world {
	w := newWorld(t)
	w.jobItems = items
	w.def = keep.Definition{Name: "w", Handlers: []keep.Handler{
		{Name: "remind", Kind: keep.Job, Schedule: keep.Schedule{Interval: time.Hour}},
	}}
	w.script = script{"jobs.remind": func(c *call) any {
		for _, id := range items {
			c.withItem(id, func(c *call, isDone bool) {
				if !isDone {
					c.do("svc.create", map[string]any{"id": id, "text": "hello"})
				}
			})
		}
		return nil
	}}
	return w
}

func (w *world) items() map[string]keep.ItemStatus {
	w.t.Helper()
	items, _, err := w.store.Items(w.t.Context(), keep.ItemFilter{Workflow: "w"}, keep.Page{})
	if err != nil {
		w.t.Fatal(err)
	}
	got := make(map[string]keep.ItemStatus)
	for _, it := range items {
		got[it.ID] = it.Status
	}
	return got
}

// Every item is worked on once, and a later run repeats nothing.
func TestJobWorksOnEachItemOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newJobWorld(t, "a", "b", "c")
		w.deploy()
		w.run()
		time.Sleep(2 * time.Hour) // virtual
		w.run()
		if n := w.service.total(); n != 3 || len(w.runs()) != 2 {
			t.Errorf("%d effects in %d runs, want 3 in 2", n, len(w.runs()))
		}
		for id, s := range w.items() {
			if s != keep.ItemDone {
				t.Errorf("item %s is %s, want done", id, s)
			}
		}
	})
}

// A failed call is sent again by the retry, an applied one is not; the
// item stays failed until its handler completes (§14.6).
func TestJobRetryRepeatsOnlyWhatFailed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newJobWorld(t, "a", "b", "c")
		w.service.onCall = func(n int) (bool, error) {
			if n == 2 {
				return false, keep.Failf(keep.ClassTransient, "refused", "connection refused")
			}
			return true, nil
		}
		w.deploy()
		if err := w.runFor(5 * time.Second); err == nil {
			t.Fatal("idle with a backoff pending")
		}
		if got := w.items(); got["a"] != keep.ItemDone || got["b"] != keep.ItemFailed || got["c"] != "" {
			t.Errorf("after the failure the items are %v, want a done, b failed, no c", got)
		}
		w.run()
		if w.service.calls != 4 || w.service.total() != 3 {
			t.Errorf("%d calls and %d effects, want 4 and 3", w.service.calls, w.service.total())
		}
		if got := w.items(); got["b"] != keep.ItemDone || got["c"] != keep.ItemDone {
			t.Errorf("items are %v, want all done", got)
		}
	})
}

// A mutate call in a done item aborts before the ledger is looked at.
func TestDoneItemMakesNoCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newJobWorld(t)
		w.script["jobs.remind"] = func(c *call) any {
			c.withItem("a", func(c *call, _ bool) {
				c.do("svc.create", map[string]any{"id": "a", "text": "hello"})
			})
			return nil
		}
		w.deploy()
		w.run()
		time.Sleep(2 * time.Hour)
		w.run()
		r := w.lastRun()
		if r.Status != keep.StatusLogic || r.Error.Code != "item-done" || w.service.calls != 1 {
			t.Errorf("run = %s (%v) after %d calls, want failed:logic item-done after 1", r.Status, r.Error, w.service.calls)
		}
		if got := w.items()["a"]; got != keep.ItemDone {
			t.Errorf("item is %s, want done", got)
		}
	})
}

// One identity twice in an item is one effect; a subkey separates.
func TestIdentityAndSubkey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newJobWorld(t)
		var results []string
		w.script["jobs.remind"] = func(c *call) any {
			c.withItem("a", func(c *call, done bool) {
				for _, params := range []map[string]any{
					{"id": "x", "text": "hello"}, {"id": "x", "text": "hello"},
					{"id": "x", "text": "hello", "subkey": "second"}, {"id": "y", "text": "hello"},
				} {
					results = append(results, string(c.do("svc.create", params)))
				}
			})
			return nil
		}
		w.deploy()
		w.run()
		if w.service.calls != 3 || len(results) != 4 {
			t.Errorf("%d calls for %d results, want 3 for 4", w.service.calls, len(results))
		}
	})
}

// The same identity with other content is not sent; a person decides.
func TestPayloadMismatchNeedsAttention(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newJobWorld(t)
		text := "hello"
		w.script["jobs.remind"] = func(c *call) any {
			c.withItem("a", func(c *call, done bool) {
				c.do("svc.create", map[string]any{"id": "a", "text": text})
				if text == "hello" {
					panic(thrown("broken after the call"))
				}
			})
			return nil
		}
		w.deploy()
		w.run()
		text = "other"
		w.deploy()
		w.run()
		r := w.lastRun()
		if r.Error == nil || r.Error.Code != "payload-mismatch" || w.service.calls != 1 {
			t.Fatalf("run stopped by %v after %d calls, want payload-mismatch after 1", r.Error, w.service.calls)
		}
		if got := w.items()["a"]; got != keep.ItemAttention {
			t.Errorf("item is %s, want needs_attention", got)
		}
		qs := w.questions()
		if len(qs) != 1 {
			t.Fatalf("%d questions, want 1", len(qs))
		}
		if q := qs[0]; !strings.Contains(q.Why, `text: "hello" → "other"`) ||
			!strings.Contains(q.Attempted, `{"id":"a","text":"hello"}`) || !strings.Contains(q.Attempted, `{"id":"a","text":"other"}`) {
			t.Errorf("question %q, %q; want the old content, the new, and what differs", q.Attempted, q.Why)
		}
	})
}

// A lost answer in an item is asked about; the job then continues.
func TestLostAnswerInItem(t *testing.T) {
	for _, effect := range []bool{true, false} {
		inKinds(t, fmt.Sprint(effect), func(t *testing.T, kind string) {
			synctest.Test(t, func(t *testing.T) {
				w := newJobWorld(t, "a", "b").writtenIn(kind)
				w.service.onCall = func(n int) (bool, error) {
					if n == 1 {
						return effect, errReset
					}
					return true, nil
				}
				w.deploy()
				w.run()
				if n := w.service.total(); n != 2 {
					t.Errorf("%d effects, want 2", n)
				}
				if r := w.lastRun(); r.Status != keep.StatusCommitted {
					t.Errorf("run = %s, want committed", r.Status)
				}
			})
		})
	}
}

// Every place between durable steps of a call in an item.
func TestDeathAtEveryPointOfAnItem(t *testing.T) {
	for _, p := range []engine.Point{engine.BeforeCall, engine.Recorded, engine.Answered, engine.OutcomeWritten, engine.AfterCommit} {
		inKinds(t, string(p), func(t *testing.T, kind string) {
			synctest.Test(t, func(t *testing.T) {
				w := newJobWorld(t, "a", "b", "c").writtenIn(kind)
				w.deploy()
				w.dieAt = p
				_ = w.runFor(time.Minute)
				w.run()
				if n := w.service.total(); n != 3 || w.service.calls != 3 {
					t.Errorf("%d effects by %d calls, want 3 by 3", n, w.service.calls)
				}
				want := []keep.ItemStatus{keep.ItemDone, keep.ItemDone, keep.ItemDone}
				got := w.items()
				if !slices.Equal([]keep.ItemStatus{got["a"], got["b"], got["c"]}, want) {
					t.Errorf("items = %v, want all done", got)
				}
			})
		})
	}
}

// The key of an item's mutation is the hash of what is changed.
func TestItemMutationKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newJobWorld(t, "a")
		w.deploy()
		w.run()
		m := w.mutation()
		want := ledger.ItemKey(ledger.ItemCall{Workflow: "w", Item: "a", Attempt: 1, Tool: "svc.create", Target: "things", Identity: []byte(`{"id":"a"}`)})
		if m.Key != want || m.Item != "a" || m.Attempt != 1 {
			t.Errorf("key %s of item %q attempt %d, want %s, a, 1", m.Key, m.Item, m.Attempt, want)
		}
	})
}

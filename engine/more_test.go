package engine_test

import (
	"encoding/json"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/engine"
)

// moreWorld is a world whose producer publishes the next 10 of 50 rows in each run, for a
// consumer that takes one a run, and says whether there are more.
func moreWorld(t *testing.T) *world {
	w := newWorld(t)
	w.def.Handlers = append(w.def.Handlers, keep.Handler{Name: "rows", Kind: keep.Producer, Schedule: keep.Schedule{Cron: "0 0 1 1 *"}})
	w.script["producers.rows"] = func(c *call) any {
		var at int
		if raw := c.do("kv.get", "at"); string(raw) != "null" {
			if err := json.Unmarshal(raw, &at); err != nil {
				t.Error(err)
			}
		}
		for i := at; i < at+10; i++ {
			c.do("publish", "in", map[string]any{"messageId": fmt.Sprint("r", i)})
		}
		c.do("kv.set", "at", at+10)
		return map[string]any{"more": at+10 < 50}
	}
	w.deploy()
	return w
}

// A producer that has more is run again at once, part by part, each with a commit of its own;
// consumers come in between, so that no more than one part waits. Law: bounded.
func TestProducerHasMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := moreWorld(t)
		most, waiting := 0, 0
		w.onCommit = func(c keep.Commit, do func() error) error {
			err := do()
			for _, change := range c.Changes {
				switch change := change.(type) {
				case keep.Publish:
					if change.Event.Topic == "in" {
						waiting++
					}
				case keep.Finish:
					waiting--
				}
			}
			most = max(most, waiting)
			return err
		}
		if err := w.engine().Trigger(t.Context(), "w", "rows", keep.Decision{By: "ann"}); err != nil {
			t.Fatal(err)
		}
		w.run()
		if n := w.runsOf("rows"); n != 5 || most != 10 {
			t.Errorf("%d runs, at most %d events wait; want 5 and 10", n, most)
		}
		if w.service.calls != 50 {
			t.Errorf("%d calls, want 50", w.service.calls)
		}
	})
}

// A host that dies between two parts leaves the rest to the next one: it is due, and begins
// where the part before ended.
func TestProducerHasMoreAfterACrash(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := moreWorld(t)
		if err := w.engine().Trigger(t.Context(), "w", "rows", keep.Decision{By: "ann"}); err != nil {
			t.Fatal(err)
		}
		w.dieAt, w.skipPoints = engine.AfterCommit, 11 // part 1, its ten events, part 2
		if err := w.runFor(time.Minute); err == nil || w.runsOf("rows") != 2 {
			t.Fatalf("the host did not die after part 2: %v, %d parts", err, w.runsOf("rows"))
		}
		w.run()
		if n := w.runsOf("rows"); n != 5 || w.service.calls != 50 {
			t.Errorf("%d runs and %d calls, want 5 and 50", n, w.service.calls)
		}
	})
}

// A producer that says that there is more, and stores nothing, would never end.
func TestMoreWithoutCheckpoint(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.def.Handlers = []keep.Handler{{Name: "rows", Kind: keep.Producer, Schedule: keep.Schedule{Cron: "0 0 1 1 *"}}}
		w.script["producers.rows"] = func(*call) any { return map[string]any{"more": true} }
		w.deploy()
		if err := w.engine().Trigger(t.Context(), "w", "rows", keep.Decision{By: "ann"}); err != nil {
			t.Fatal(err)
		}
		w.run()
		if r := w.lastRun(); r.Error == nil || r.Error.Code != "more-without-checkpoint" {
			t.Errorf("the run is %+v", r)
		}
	})
}

// Whatever else a producer returns means nothing.
func TestProducerReturns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, out := range []any{nil, true, "more", []any{true}, map[string]any{"more": false}, map[string]any{"more": "true"}, map[string]any{"more": nil}} {
			w := newWorld(t)
			w.def.Handlers = []keep.Handler{{Name: "rows", Kind: keep.Producer, Schedule: keep.Schedule{Cron: "0 0 1 1 *"}}}
			w.script["producers.rows"] = func(c *call) any { c.do("kv.set", "at", 1); return out }
			w.deploy()
			if err := w.engine().Trigger(t.Context(), "w", "rows", keep.Decision{By: "ann"}); err != nil {
				t.Fatal(err)
			}
			w.run()
			if n := w.runsOf("rows"); n != 1 || w.lastRun().Status != keep.StatusCommitted {
				t.Errorf("after %v: %d runs, the last is %s", out, n, w.lastRun().Status)
			}
		}
	})
}

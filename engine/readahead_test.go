package engine_test

import (
	"encoding/json"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keep-run/keep"
)

// A person starts an item over that the run has read ahead as done. Who asks the
// host that runs it is seen at once; what another process wrote waits for the
// next run, and until then the item makes no call.
func TestReprocessedItemThatWasReadAhead(t *testing.T) {
	for _, tt := range []struct {
		name      string
		otherHost bool
		calls     int // by the end of the run
	}{{"by this host", false, 31}, {"by another", true, 30}} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newJobWorld(t)
				e := w.engine()
				by, runs := e, 0
				if tt.otherHost {
					by = w.engine()
				}
				w.script["jobs.remind"] = func(c *call) any {
					runs++
					for i := range 30 {
						id := fmt.Sprint(i)
						c.withItem(id, func(c *call, isDone bool) {
							if runs == 2 && i == 9 {
								if err := by.ReprocessItem(t.Context(), "w", "15", keep.Decision{By: "ann"}); err != nil {
									t.Error(err)
								}
							}
							if !isDone {
								c.create(id, "hello")
							}
						})
					}
					return nil
				}
				w.deploy()
				w.run()
				time.Sleep(2 * time.Hour)
				if err := w.runEngine(e, time.Hour); err != nil {
					t.Fatal(err)
				}
				if w.service.calls != tt.calls || w.service.total() != tt.calls {
					t.Errorf("%d calls, %d effects; want %d", w.service.calls, w.service.total(), tt.calls)
				}
				time.Sleep(2 * time.Hour)
				w.run()
				if it := w.item("15"); w.service.calls != 31 || it.Attempt != 2 || it.Status != keep.ItemDone {
					t.Errorf("%d calls, item %s in attempt %d; want 31, done in attempt 2", w.service.calls, it.Status, it.Attempt)
				}
			})
		})
	}
}

// Results that were read ahead answer the calls that they belong to, of this
// attempt, with this content, and no others.
func TestResultsReadAheadAreThoseOfTheCall(t *testing.T) {
	const calls = 40
	synctest.Test(t, func(t *testing.T) {
		w := newJobWorld(t)
		var got []string
		changed, fails := -1, true
		w.oneItem(func(c *call, _ bool) {
			got = nil
			for i := range calls {
				text := "hello"
				if i == changed {
					text = "other"
				}
				w.service.result = json.RawMessage(fmt.Sprintf(`{"n":%d}`, w.service.calls))
				got = append(got, c.create(fmt.Sprint(i), text))
			}
			if fails {
				panic(thrown("broken after all calls"))
			}
		})
		w.deploy()
		w.run()
		first := fmt.Sprint(got)
		w.deploy()
		w.run()
		if again := fmt.Sprint(got); again != first || w.service.calls != calls {
			t.Errorf("results %s after %d calls, want those of the first time, %s", again, w.service.calls, first)
		}
		changed = calls - 1
		w.deploy()
		w.run()
		if r := w.lastRun(); r.Error == nil || r.Error.Code != "payload-mismatch" || len(got) != calls-1 || w.service.calls != calls {
			t.Errorf("run stopped by %v after %d answers and %d calls; want payload-mismatch at the last call", r.Error, len(got), w.service.calls)
		}
		if err := w.engine().ReprocessItem(t.Context(), "w", "a", keep.Decision{By: "ann"}); err != nil {
			t.Fatal(err)
		}
		fails = false
		w.run()
		if w.service.calls != 2*calls {
			t.Errorf("%d calls, want %d: a new attempt sends everything again", w.service.calls, 2*calls)
		}
	})
}

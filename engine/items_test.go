package engine_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keep-run/keep"
)

// A finished item starts over only because a person said so, and then sends
// everything again as a new attempt.
func TestReprocessItem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newJobWorld(t, "a", "b")
		w.deploy()
		w.run()
		if err := w.engine().ReprocessItem(t.Context(), "w", "a", keep.Decision{By: "ann"}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Hour)
		w.run()
		if w.service.calls != 3 || w.service.total() != 3 {
			t.Errorf("%d calls, %d effects; want 3 and 3: a twice, b once", w.service.calls, w.service.total())
		}
		it, err := w.store.Item(t.Context(), "w", "a")
		if err != nil || it.Attempt != 2 || it.Status != keep.ItemDone {
			t.Errorf("item a = %s, attempt %d, %v; want done, 2", it.Status, it.Attempt, err)
		}
	})
}

// Skipping passes an item over; a done item has nothing to skip, and one in
// doubt is not skipped behind the question.
func TestSkipItem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newJobWorld(t, "a", "b")
		w.service.onCall = func(n int) (bool, error) {
			if n == 2 {
				return false, keep.Failf(keep.ClassPermission, "http-401", "token expired")
			}
			return true, nil
		}
		w.deploy()
		w.run()
		e := w.engine()
		if err := e.SkipItem(t.Context(), "w", "a", keep.Decision{By: "ann"}); err == nil {
			t.Error("a done item was skipped")
		}
		if err := e.SkipItem(t.Context(), "w", "b", keep.Decision{By: "ann"}); err != nil {
			t.Fatal(err)
		}
		w.run()
		if w.service.calls != 2 || w.items()["b"] != keep.ItemSkipped {
			t.Errorf("%d calls, items %v; want 2, b skipped", w.service.calls, w.items())
		}
	})
}

// Thousands of items without a call are stored in bounded groups.
func TestManyItemsWithoutCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newJobWorld(t)
		w.script["jobs.remind"] = func(c *call) any {
			for i := range 1000 {
				c.withItem(fmt.Sprint(i), func(*call, bool) {})
			}
			return nil
		}
		w.deploy()
		w.commits = 0
		w.run()
		if w.commits != 11 {
			t.Errorf("%d commits for 1000 items, want 10 and the one that ends the run", w.commits)
		}
	})
}

// Items with a call cost the two commits of each call, and the one that ends the
// run: that an item is done is stored with the next commit (issue 4).
func TestItemsCostTheCommitsOfTheirCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 100
		var ids []string
		for i := range n {
			ids = append(ids, fmt.Sprint(i))
		}
		w := newJobWorld(t, ids...)
		w.deploy()
		w.commits = 0
		w.run()
		if w.commits != 2*n+1 || w.service.calls != n {
			t.Errorf("%d commits for %d calls, want %d", w.commits, w.service.calls, 2*n+1)
		}
	})
}

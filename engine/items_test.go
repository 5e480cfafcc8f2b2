package engine_test

import (
	"fmt"
	"maps"
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

// Two jobs of one workflow with the same ids have items of their own.
func TestTwoJobsShareNoItems(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newTwoJobs(t)
		w.deploy()
		w.run()
		if w.service.total() != 4 {
			t.Errorf("%d effects, want two items for each of two jobs", w.service.total())
		}
		want := map[string]keep.ItemStatus{"a": keep.ItemDone, "b": keep.ItemDone, "second::a": keep.ItemDone, "second::b": keep.ItemDone}
		if got := w.items(); !maps.Equal(got, want) {
			t.Errorf("the items are %v, want %v", got, want)
		}
		// The job that was second stays itself when it is alone, and under another name.
		w.def.Handlers = []keep.Handler{{Name: "renamed", Kind: keep.Job, Items: "second", Schedule: keep.Schedule{Interval: time.Hour}}}
		w.deploy()
		time.Sleep(2 * time.Hour)
		w.run()
		if w.service.total() != 4 || len(w.items()) != 4 {
			t.Errorf("%d effects for %v after the rename, want what there was", w.service.total(), w.items())
		}
	})
}

// An item that two jobs shared before they had items of their own stays with the job that
// made calls for it; one of which nothing says whose it is is not done again.
func TestItemsThatJobsShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newTwoJobs(t)
		both := w.def.Handlers
		for i := range both {
			both[i].Items = "" // as older versions have it
		}
		w.def.Handlers = both[:1]
		w.deploy()
		w.run() // first makes calls for a and b
		w.put(keep.Item{Workflow: "w", ID: "old", Title: "Old", Status: keep.ItemDone, Attempt: 1})
		time.Sleep(time.Minute)
		both[1].Items, both[0].Items = "second", "first"
		w.def.Handlers = both
		w.list["second"] = []string{"a", "old", "new"}
		w.deploy()
		w.run()
		want := map[string]keep.ItemStatus{"a": keep.ItemDone, "b": keep.ItemDone, "old": keep.ItemDone, "second::a": keep.ItemDone, "second::new": keep.ItemDone}
		if got := w.items(); !maps.Equal(got, want) {
			t.Errorf("the items are %v, want %v", got, want)
		}
	})
}

// An id of the first job that looks like one of the second is refused.
func TestAnIDThatLooksLikeAnotherJobs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newTwoJobs(t)
		w.list["first"] = []string{"second::a"}
		w.deploy()
		w.run()
		if qs := w.questions(); len(qs) != 1 || qs[0].Kind != keep.AskLogic || w.service.calls != 0 {
			t.Errorf("%d calls and questions %+v, want one about the id", w.service.calls, qs)
		}
	})
}

// A twoJobs is a world whose workflow has two jobs with the same ids.
type twoJobs struct {
	*world
	list map[string][]string // what the jobs go through
}

func newTwoJobs(t *testing.T) twoJobs {
	w := twoJobs{newWorld(t), map[string][]string{"first": {"a", "b"}, "second": {"a", "b"}}}
	w.def = keep.Definition{Name: "w"}
	w.script = script{}
	for _, job := range []string{"first", "second"} {
		w.def.Handlers = append(w.def.Handlers, keep.Handler{Name: keep.HandlerName(job), Kind: keep.Job, Items: job, Schedule: keep.Schedule{Interval: time.Hour}})
		w.script["jobs."+job] = func(c *call) any {
			for _, id := range w.list[job] {
				c.withItem(id, func(c *call, done bool) {
					if !done {
						c.do("svc.create", map[string]any{"id": job + id, "text": "hello"})
					}
				})
			}
			return nil
		}
	}
	w.script["jobs.renamed"] = w.script["jobs.second"]
	return w
}

func (w twoJobs) put(it keep.Item) {
	w.t.Helper()
	now := time.Now().UTC().Truncate(time.Millisecond)
	it.CreatedAt, it.UpdatedAt = now, now
	if err := w.store.Commit(w.t.Context(), keep.Commit{Workflow: "w", At: now, Changes: []keep.Change{keep.PutItem{Item: it}}}); err != nil {
		w.t.Fatal(err)
	}
}

package storetest

import (
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/keep-run/keep"
)

var repairPromises = []promise{
	{"a repair is written over the revision that was read, and no other", func(w *world) {
		s, made := w.Store, oddTime.UTC().Truncate(time.Millisecond)
		stale := func(err error) bool { return errors.Is(err, keep.ErrStale) }
		put := func(r keep.Repair) {
			w.Helper()
			if err := s.PutRepair(w.ctx, r); err != nil {
				w.Error(err)
			}
		}
		_, err := s.Repair(w.ctx, "x")
		w.fails("none", err, isNotFound)
		first := keep.Repair{ID: "x", Workflow: "a", State: []byte(`{"n":1}`), CreatedAt: oddTime}
		put(first)
		w.fails("a second first", s.PutRepair(w.ctx, first), stale)
		r := get[keep.Repair](w)(s.Repair(w.ctx, "x"))
		w.same("first", r, keep.Repair{ID: "x", Workflow: "a", State: []byte(`{"n":1}`), CreatedAt: made, Rev: 1})
		r.State, r.Workflow, r.CreatedAt = []byte(`{"n":2}`), "b", oddTime.Add(time.Hour)
		put(r)
		w.fails("an old revision", s.PutRepair(w.ctx, r), stale)
		second := keep.Repair{ID: "x", Workflow: "a", State: []byte(`{"n":2}`), CreatedAt: made, Rev: 2}
		w.same("second", get[keep.Repair](w)(s.Repair(w.ctx, "x")), second)
		r.ID, r.Rev = "gone", 1
		w.fails("gone", s.PutRepair(w.ctx, r), stale)
		_, err = s.Repair(w.ctx, "gone")
		w.fails("none of what is gone", err, isNotFound)
		for _, wrong := range []keep.Repair{
			{Workflow: "a", State: []byte(`{}`), CreatedAt: oddTime}, {ID: "y", State: []byte(`{}`), CreatedAt: oddTime},
			{ID: "y", Workflow: "a", State: []byte(`{}`)}, {ID: "y", Workflow: "a", State: make([]byte, keep.MaxRepair+1), CreatedAt: oddTime},
		} {
			w.fails("invalid", s.PutRepair(w.ctx, wrong), invalid)
		}
	}},
	{"repairs are listed by workflow and time, newest first", func(w *world) {
		s := w.Store
		at := func(n int) time.Time { return oddTime.Add(time.Duration(n) * time.Hour) }
		for id, r := range map[string]keep.Repair{
			"1": {Workflow: "a", CreatedAt: at(1)}, "2": {Workflow: "b", CreatedAt: at(2)}, "3": {Workflow: "a", CreatedAt: at(3)}, "4": {Workflow: "a", CreatedAt: at(3)},
		} {
			r.ID, r.State = id, []byte(`{}`)
			if err := s.PutRepair(w.ctx, r); err != nil {
				w.Error(err)
			}
		}
		ids := func(name keep.WorkflowName, since time.Time) (list []string) {
			for _, r := range get[[]keep.Repair](w)(s.Repairs(w.ctx, name, since)) {
				list = append(list, r.ID)
			}
			return list
		}
		w.same("of one", ids("a", time.Time{}), []string{"4", "3", "1"})
		w.same("of all", ids("", time.Time{}), []string{"4", "3", "2", "1"})
		w.same("since a time", ids("a", at(2)), []string{"4", "3"})
		w.same("at that time", ids("", at(2)), []string{"4", "3", "2"})
		w.same("of nobody", len(ids("c", time.Time{})), 0)
	}},
	{"of those who write a repair at the same time one does", func(w *world) {
		var wg sync.WaitGroup
		var won atomic.Int32
		for range 20 {
			wg.Go(func() {
				err := w.Store.PutRepair(w.ctx, keep.Repair{ID: "x", Workflow: "a", State: []byte(`{}`), CreatedAt: oddTime})
				if err == nil {
					won.Add(1)
				} else if !errors.Is(err, keep.ErrStale) {
					w.Error(err)
				}
			})
		}
		wg.Wait()
		w.same("winners", won.Load(), int32(1))
	}},
}

package storetest

import (
	"sync"
	"time"

	"github.com/keep-run/keep"
)

var hookPromises = []promise{
	{"counts of a hook add up, and the last refusal stays", func(w *world) {
		s := w.Store
		count := func(c keep.HookCount) {
			w.Helper()
			if err := s.CountHook(w.ctx, c); err != nil {
				w.Error(err)
			}
		}
		w.same("none", get[[]keep.HookCount](w)(s.HookCounts(w.ctx)), []keep.HookCount(nil))
		count(keep.HookCount{Name: "b", Refused: 2, LastRefusedAt: oddTime, LastRefusal: odd})
		count(keep.HookCount{Name: "a", Accepted: 1, LastAt: oddTime.Add(time.Minute)})
		count(keep.HookCount{Name: "a", Accepted: 2, Repeated: 3, LastAt: oddTime})
		count(keep.HookCount{Name: "b", Refused: 1, LastRefusedAt: oddTime.Add(-time.Hour), LastRefusal: "earlier"})
		count(keep.HookCount{Name: "b", Refused: 1, LastRefusedAt: oddTime, LastRefusal: "same time"})
		count(keep.HookCount{Name: "b", Repeated: 1, LastAt: oddTime})
		w.same("counts", get[[]keep.HookCount](w)(s.HookCounts(w.ctx)), []keep.HookCount{
			{Name: "a", Accepted: 3, Repeated: 3, LastAt: kept(oddTime.Add(time.Minute))},
			{Name: "b", Repeated: 1, Refused: 4, LastAt: kept(oddTime), LastRefusedAt: kept(oddTime), LastRefusal: "same time"},
		})
		w.fails("no name", s.CountHook(w.ctx, keep.HookCount{Accepted: 1}), invalid)
	}},
	{"counts of a hook that come at the same time are all counted", func(w *world) {
		var wg sync.WaitGroup
		for range 20 {
			wg.Go(func() {
				if err := w.Store.CountHook(w.ctx, keep.HookCount{Name: "h", Accepted: 1, LastAt: oddTime}); err != nil {
					w.Error(err)
				}
			})
		}
		wg.Wait()
		w.same("counts", get[[]keep.HookCount](w)(w.Store.HookCounts(w.ctx)), []keep.HookCount{{Name: "h", Accepted: 20, LastAt: kept(oddTime)}})
	}},
}

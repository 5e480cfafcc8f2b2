package storetest

import (
	"errors"
	"sync"
	"sync/atomic"

	"github.com/keep-run/keep"
)

var gatePromises = []promise{
	{"a gate is written over the revision that was read, and no other", func(w *world) {
		s := w.Store
		put := func(g keep.Gate) {
			w.Helper()
			if err := s.PutGate(w.ctx, g); err != nil {
				w.Error(err)
			}
		}
		stale := func(err error) bool { return errors.Is(err, keep.ErrStale) }
		none := get[keep.Gate](w)(s.Gate(w.ctx, "crm"))
		w.same("none", none, keep.Gate{Connection: "crm"})
		none.State = []byte(`{"a":1}`)
		put(none)
		w.fails("a second first", s.PutGate(w.ctx, none), stale)
		g := get[keep.Gate](w)(s.Gate(w.ctx, "crm"))
		w.same("first", g, keep.Gate{Connection: "crm", State: []byte(`{"a":1}`), Rev: 1})
		g.State = []byte(`{"a":2}`)
		put(g)
		w.fails("an old revision", s.PutGate(w.ctx, g), stale)
		put(keep.Gate{Connection: "bank", State: []byte(`{}`)})
		w.same("all", get[[]keep.Gate](w)(s.Gates(w.ctx)), []keep.Gate{
			{Connection: "bank", State: []byte(`{}`), Rev: 1}, {Connection: "crm", State: []byte(`{"a":2}`), Rev: 2}})
		w.fails("gone", s.PutGate(w.ctx, keep.Gate{Connection: "gone", State: []byte(`{}`), Rev: 1}), stale)
		w.same("none of what is gone", get[keep.Gate](w)(s.Gate(w.ctx, "gone")), keep.Gate{Connection: "gone"})
		w.fails("no name", s.PutGate(w.ctx, keep.Gate{State: []byte(`{}`)}), invalid)
	}},
	{"of those who write a gate at the same time one does", func(w *world) {
		var wg sync.WaitGroup
		var won atomic.Int32
		for range 20 {
			wg.Go(func() {
				err := w.Store.PutGate(w.ctx, keep.Gate{Connection: "crm", State: []byte(`{}`)})
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

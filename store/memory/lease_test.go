package memory_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/keep-run/keep/store"
	"github.com/keep-run/keep/store/memory"
	"github.com/keep-run/keep/testkit/storetest"
)

var (
	_ store.Leaser     = (*memory.Shared)(nil)
	_ storetest.Leased = (*memory.Shared)(nil)
)

func TestLeases(t *testing.T) {
	storetest.Leases(t, func(testing.TB) (storetest.Leased, func(time.Duration)) {
		var now atomic.Int64 // of the database, which is not that of the machine
		now.Store(time.Date(2031, 7, 6, 5, 4, 3, 0, time.UTC).UnixNano())
		s := memory.New().Share(func() time.Time { return time.Unix(0, now.Load()) })
		return s, func(d time.Duration) { now.Add(int64(d)) }
	})
}

// A shared store is a store like any other.
func TestShared(t *testing.T) {
	storetest.Run(t, func(testing.TB) store.Store { return memory.New().Share(time.Now) })
}

package sqlite_test

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/keep-run/keep/store/sqlite"
	"github.com/keep-run/keep/testkit/storetest"
)

// BenchmarkBudget measures a call that counts in a budget, of which so many calls count already that ended within its
// window of a day: what the engine reads first, and the two commits.
func BenchmarkBudget(b *testing.B) {
	for _, n := range []int{0, 1_000, 30_000, 300_000} {
		b.Run(fmt.Sprintf("calls=%d", n), func(b *testing.B) {
			db := sqlite.New(filepath.Join(b.TempDir(), "keep.db"), sqlite.Config{Host: true})
			if err := db.Open(b.Context()); err != nil {
				b.Fatal(err)
			}
			defer db.Close()
			l := newLoad(0)
			if err := db.Commit(b.Context(), l.Deploy()); err != nil {
				b.Fatal(err)
			}
			s := storetest.SpendingLoad{Load: l, Per: 24 * time.Hour}
			if err := s.Run(b.Context(), db); err != nil {
				b.Fatal(err)
			}
			must(b, db.Do(b.Context(), storetest.CopySpent(n, 20*time.Hour/time.Duration(max(n, 1)))))
			must(b, s.Run(b.Context(), db)) // what is done once
			b.ResetTimer()
			for range b.N {
				if err := s.Run(b.Context(), db); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

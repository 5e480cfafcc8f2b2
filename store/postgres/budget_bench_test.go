package postgres_test

import (
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/internal/pgtest"
	"github.com/keep-run/keep/store/postgres"
	"github.com/keep-run/keep/testkit/storetest"
)

// BenchmarkBudget is that of package sqlite.
func BenchmarkBudget(b *testing.B) {
	for _, n := range []int{0, 1_000, 30_000, 300_000} {
		b.Run(fmt.Sprintf("calls=%d", n), func(b *testing.B) {
			url := pgtest.SchemaURL(b)
			db := openDB(b, url, postgres.Config{Host: true})
			l := storetest.NewLoad(keep.WorkflowName(fmt.Sprintf("budget-%d-%d", n, os.Getpid())), 0)
			if err := db.Commit(b.Context(), l.Deploy()); err != nil {
				b.Fatal(err)
			}
			s := storetest.SpendingLoad{Load: l, Per: 24 * time.Hour}
			if err := s.Run(b.Context(), db); err != nil {
				b.Fatal(err)
			}
			exec(b, url, storetest.CopySpent(n, 20*time.Hour/time.Duration(max(n, 1))))
			exec(b, url, `VACUUM ANALYZE mutation`)
			if err := s.Run(b.Context(), db); err != nil { // what is done once
				b.Fatal(err)
			}
			b.ResetTimer()
			for range b.N {
				if err := s.Run(b.Context(), db); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

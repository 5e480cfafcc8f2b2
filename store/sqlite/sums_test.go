package sqlite_test

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/keep-run/keep/store/sqlite"
	"github.com/keep-run/keep/testkit/storetest"
)

// Check finds a sum that is less than its calls count: more would be spent than the budget has.
func TestSumTooSmall(t *testing.T) {
	t.Parallel()
	db := sqlite.New(filepath.Join(t.TempDir(), "keep.db"), sqlite.Config{Host: true})
	must(t, db.Open(t.Context()))
	defer db.Close()
	l := newLoad(0)
	must(t, db.Commit(t.Context(), l.Deploy()))
	s := storetest.SpendingLoad{Load: l, Per: 24 * time.Hour}
	must(t, s.Run(t.Context(), db))
	must(t, db.Do(t.Context(), storetest.CopySpent(200, time.Millisecond)))
	must(t, s.Run(t.Context(), db)) // now they are summed
	for _, want := range []bool{false, true} {
		found := false
		for err := range db.Check(t.Context()) {
			found = found || strings.Contains(err.Error(), "budget load: its sum of the piece ")
		}
		if found != want {
			t.Errorf("Check found a sum that is too small: %t, want %t", found, want)
		}
		must(t, db.Do(t.Context(), `UPDATE spent_sum SET low = low - 1`))
	}
}

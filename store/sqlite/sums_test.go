package sqlite_test

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/store/sqlite"
	"github.com/keep-run/keep/testkit/storetest"
)

// newLoaded returns a database with the workflow of a load.
func newLoaded(t *testing.T) (*sqlite.DB, *storetest.Load) {
	t.Helper()
	db := sqlite.New(filepath.Join(t.TempDir(), "keep.db"), sqlite.Config{Host: true})
	must(t, db.Open(t.Context()))
	t.Cleanup(func() { db.Close() })
	l := newLoad(0)
	must(t, db.Commit(t.Context(), l.Deploy()))
	return db, l
}

// Check finds a sum that is less than its calls count: more would be spent than the budget has.
func TestSumTooSmall(t *testing.T) {
	t.Parallel()
	db, l := newLoaded(t)
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

// Check adds up windows of budgets in a time that does not grow with the square of their calls.
func TestCheckOfManyCalls(t *testing.T) {
	t.Parallel()
	db, l := newLoaded(t)
	must(t, storetest.SpendingLoad{Load: l, Per: 24 * time.Hour}.Run(t.Context(), db))
	must(t, db.Do(t.Context(), storetest.CopySpent(10_000, time.Millisecond)))
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for err := range db.Check(ctx) {
		if _, ok := errors.AsType[*keep.Violation](err); !ok { // copies of a record have no history
			t.Fatal(err)
		}
	}
}

// Check finds a count that is kept beside the rows, and is another one.
func TestTallyIsChecked(t *testing.T) {
	t.Parallel()
	db, l := newLoaded(t)
	must(t, l.Run(t.Context(), db))
	for _, change := range []string{`UPDATE tally SET rows = rows + 1`, `UPDATE tally SET rows = 0`, `DELETE FROM tally`} {
		clean(t, db)
		must(t, db.Do(t.Context(), `CREATE TEMP TABLE kept AS SELECT * FROM tally; `+change))
		found := make(map[string]bool)
		for err := range db.Check(t.Context()) {
			v, ok := errors.AsType[*keep.Violation](err)
			if !ok {
				t.Fatal(err)
			}
			found[v.Record] = true
		}
		for _, noun := range []string{"run", "mutation", "input"} {
			if want := noun + "s of workflow " + string(l.Workflow); !found[want] {
				t.Errorf("after %s Check found %v, and not %s", change, found, want)
			}
		}
		must(t, db.Do(t.Context(), `DELETE FROM tally; INSERT INTO tally SELECT * FROM kept; DROP TABLE kept`))
	}
}

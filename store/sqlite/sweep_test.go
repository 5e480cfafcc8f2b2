package sqlite_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/store/sqlite"
)

// oldRuns makes n runs with a call of 4 KB each, and one with a title for search.
func oldRuns(t *testing.T, db *sqlite.DB, n int) time.Time {
	t.Helper()
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	payload := json.RawMessage(`{"text":"` + strings.Repeat("x", 4000) + `"}`)
	for i := range n {
		at = at.Add(time.Second)
		id := keep.RunID(fmt.Sprintf("run_%05d", i))
		m := keep.Mutation{Key: keep.MutationKey("mut_" + id), Workflow: "w", Run: id, Tool: "db.insert", Connector: "http", Level: keep.LevelKey,
			Payload: payload, Token: string(id), Title: "Old call", State: keep.Applied, ResolvedBy: "call", Attempts: 1,
			CallDeadline: at, CreatedAt: at, UpdatedAt: at}
		must(t, db.Commit(t.Context(), keep.Commit{Workflow: "w", At: at, Changes: []keep.Change{
			keep.PutRun{Run: keep.Run{ID: id, Chain: id, Workflow: "w", Handler: "h", Kind: keep.Consumer, Phase: keep.Committed, Status: keep.StatusCommitted,
				Closed: true, Mutation: m.Key, Title: fmt.Sprint("Old run ", i), CreatedAt: at, UpdatedAt: at}},
			keep.PutMutation{Mutation: m, Moves: []keep.Move{{At: at, By: "call", To: keep.InFlight, Evidence: "sent"},
				{At: at, By: "call", From: keep.InFlight, To: keep.Applied, Evidence: "happened"}}},
		}}))
	}
	return at.Add(time.Second)
}

// What a sweep deletes is neither counted nor found any more, and its space goes
// back to the file system.
func TestSweepGivesSpaceBack(t *testing.T) {
	const n = 2000
	path := filepath.Join(t.TempDir(), "keep.db")
	db := openDB(t, path, sqlite.Config{Host: true})
	before := oldRuns(t, db, n)
	_, err := db.Shrink(t.Context())
	must(t, err)
	full, _ := sizes(t, path)
	swept := 0
	for after, i := "", 0; i == 0 || after != ""; i++ {
		old, next, err := db.Over(t.Context(), keep.OldRuns{Workflow: "w", Before: before}, after, 300)
		must(t, err)
		var changes []keep.Change
		for _, c := range old {
			changes = append(changes, keep.Sweep{Chain: c.Chain, Before: before})
		}
		if swept += len(changes); len(changes) > 0 {
			must(t, db.Commit(t.Context(), keep.Commit{Workflow: "w", At: before, Changes: changes}))
		}
		after = next
	}
	if swept != n-1 { // the newest stays
		t.Errorf("%d chains were swept, want %d", swept, n-1)
	}
	for _, text := range []string{"", "old", "run"} {
		counts, err := db.CountRuns(t.Context(), keep.RunFilter{Text: text})
		if err != nil || counts[keep.StatusCommitted] != 1 {
			t.Errorf("CountRuns %q = %v, %v, want the newest one", text, counts, err)
		}
	}
	bytes, err := db.Shrink(t.Context())
	must(t, err)
	less, _ := sizes(t, path)
	if less > full/4 || bytes < full/2 {
		t.Errorf("the file has %d bytes after %d, and Shrink says that %d went", less, full, bytes)
	}
	clean(t, db)
	must(t, db.Index(t.Context()))
	var left int
	must(t, db.Scan(t.Context(), `SELECT count(*) FROM run_search_docsize`, &left))
	if left != 1 {
		t.Errorf("%d documents of runs are left in the index, want 1", left)
	}
	oldRunAgain(t, db, before)
}

// oldRunAgain wants that a number of a row is not used twice, which the index of
// titles and cursors rely on.
func oldRunAgain(t *testing.T, db *sqlite.DB, at time.Time) {
	t.Helper()
	var n, newest int64
	must(t, db.Scan(t.Context(), `SELECT max(n) FROM run`, &newest))
	must(t, db.Commit(t.Context(), keep.Commit{Workflow: "w", At: at, Changes: []keep.Change{keep.PutRun{Run: keep.Run{ID: "new", Chain: "new", Workflow: "w",
		Handler: "h", Kind: keep.Consumer, Phase: keep.Preparing, Status: keep.StatusActive, Title: "Fresh", CreatedAt: at, UpdatedAt: at}}}}))
	must(t, db.Scan(t.Context(), `SELECT max(n) FROM run`, &n))
	if n <= newest {
		t.Errorf("a new run has the number %d, the newest had %d", n, newest)
	}
	found, _, err := db.Runs(t.Context(), keep.RunFilter{Text: "fresh"}, keep.Page{})
	if err != nil || len(found) != 1 {
		t.Errorf("Runs = %v, %v, want the new one", found, err)
	}
}

// A sweep on a full disk deletes nothing or all of its commit, and continues later.
func TestSweepOnAFullDisk(t *testing.T) {
	db := openDB(t, filepath.Join(t.TempDir(), "keep.db"), sqlite.Config{Host: true})
	before := oldRuns(t, db, 20)
	pages, err := db.Pages(t.Context())
	must(t, err)
	must(t, db.LimitPages(t.Context(), pages))
	c := keep.Commit{Workflow: "w", At: before, Changes: []keep.Change{keep.Sweep{Chain: "run_00000", Before: before}, keep.Sweep{Chain: "run_00001", Before: before}}}
	if err := db.Commit(t.Context(), c); err != nil && !errors.Is(err, keep.ErrDiskFull) {
		t.Fatalf("Commit = %v", err)
	} else if err != nil {
		clean(t, db)
		must(t, db.LimitPages(t.Context(), 0))
		must(t, db.Commit(t.Context(), c))
	}
	clean(t, db)
}

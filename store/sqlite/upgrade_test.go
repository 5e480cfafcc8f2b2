package sqlite_test

import (
	"testing"

	"github.com/keep-run/keep"
)

// A file of the version before search by the database opens; its records are found by
// all of their names, also those beyond one part of the index.
func TestSearchOfAnOlderFile(t *testing.T) {
	db := openOlder(t, 8, `
		WITH RECURSIVE i (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM i WHERE n < 5000)
		INSERT INTO item (workflow, id, title, status, attempt, rev, created_at, updated_at)
		SELECT 'w', 'order=O' || n, 'Old title', 'done', 1, 1, 1, 1 FROM i;
		INSERT INTO title_word VALUES (4, 0, 'old', x'0100'), (4, 0, 'title', x'0100'), (4, 0, ' ww', x'0100');
		UPDATE title_index SET upto = 1 WHERE noun = 'item';
		UPDATE item SET title = 'Other' WHERE n = 1`)
	for text, want := range map[string]int{"old": 4999, "other": 1, "O4321": 1, "order=o4999": 1, "o499": 11} {
		list, next, err := db.Items(t.Context(), keep.ItemFilter{Text: text}, keep.Page{Limit: keep.MaxPage})
		if err != nil || len(list) != want || next != "" {
			t.Errorf("%q finds %d items, next %q, %v, want %d", text, len(list), next, err, want)
		}
	}
	var indexed int
	must(t, db.Scan(t.Context(), `SELECT count(*) FROM item_search_docsize`, &indexed))
	if indexed != 5000 {
		t.Errorf("%d items are in the index, want 5000", indexed)
	}
	clean(t, db)
}

package transfer_test

import (
	"database/sql"
	"slices"
	"strings"
	"testing"

	_ "github.com/jackc/pgx/v5/stdlib"

	"github.com/keep-run/keep/store/transfer"
)

// derived are tables that are made anew, or not moved at all: meta has the mark, and
// leases and hosts are those of one database.
var derived = strings.Fields(`meta tally event_cause search_index search_changed lease host spent_sum idempotency_lost`)

// TestEveryTableIsMoved fails when a migration adds a table that a move would lose: add
// its noun to Kinds, or say here that it need not be moved. What is kept of a noun is
// moved by itself; see TestEveryField.
func TestEveryTableIsMoved(t *testing.T) {
	t.Parallel()
	f, s := file(t), schema(t)
	openFile(t, f)
	openSchema(t, s)
	for name, db := range map[string]struct{ driver, dsn, query string }{
		"sqlite":   {"sqlite", f.path, `SELECT name FROM pragma_table_list WHERE schema = 'main' AND type = 'table' AND name NOT LIKE 'sqlite%'`},
		"postgres": {"pgx", s.url, `SELECT table_name FROM information_schema.tables WHERE table_schema = current_schema()`},
	} {
		raw, err := sql.Open(db.driver, db.dsn)
		if err != nil {
			t.Fatal(err)
		}
		defer raw.Close()
		rows, err := raw.QueryContext(ctx, db.query)
		if err != nil {
			t.Fatal(err)
		}
		defer rows.Close()
		seen := 0
		for ; rows.Next(); seen++ {
			var table string
			if err := rows.Scan(&table); err != nil {
				t.Fatal(err)
			}
			if !slices.Contains(derived, table) && !slices.ContainsFunc(transfer.Kinds, func(k transfer.Kind) bool { return k.Name == table }) {
				t.Errorf("%s: %s is not moved", name, table)
			}
		}
		if rows.Err() != nil || seen < len(transfer.Kinds) {
			t.Errorf("%s: %d tables, %v", name, seen, rows.Err())
		}
	}
}

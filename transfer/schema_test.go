package transfer_test

import (
	"database/sql"
	"slices"
	"strings"
	"testing"

	_ "github.com/jackc/pgx/v5/stdlib"

	"github.com/keep-run/keep/transfer"
)

// derived are tables that are made anew, or not moved at all: meta has the mark, and
// leases and hosts are those of one database.
var derived = strings.Fields(`meta tally title_word event_cause title_index title_changed lease host`)

// numbers are columns by which a store orders rows, or finds their parents, and what is
// derived from others.
var numbers = strings.Fields(`n seq line move words seen_seq idle_seq`)

// TestEverythingIsMoved fails when a migration adds a table or a column that a move
// would lose: say in Tables how it is moved, or here that it need not be.
func TestEverythingIsMoved(t *testing.T) {
	t.Parallel()
	f, s := file(t), schema(t)
	openFile(t, f)
	openSchema(t, s)
	for name, db := range map[string]struct{ driver, dsn, query string }{
		"sqlite": {"sqlite", f.path, `SELECT t.name, c.name FROM pragma_table_list t, pragma_table_info(t.name) c
			WHERE t.schema = 'main' AND t.type = 'table' AND t.name NOT LIKE 'sqlite%'`},
		"postgres": {"pgx", s.url, `SELECT table_name, column_name FROM information_schema.columns WHERE table_schema = current_schema()`},
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
		seen := make(map[string]bool)
		for rows.Next() {
			var table, column string
			if err := rows.Scan(&table, &column); err != nil {
				t.Fatal(err)
			}
			seen[table] = true
			if !moved(table, column) {
				t.Errorf("%s: %s.%s is not moved", name, table, column)
			}
		}
		if rows.Err() != nil || len(seen) < len(transfer.Tables) {
			t.Errorf("%s: %d tables, %v", name, len(seen), rows.Err())
		}
	}
}

func moved(table, column string) bool {
	if slices.Contains(derived, table) {
		return true
	}
	i := slices.IndexFunc(transfer.Tables, func(t transfer.Table) bool { return t.Name == table })
	if i < 0 {
		return false
	}
	t := transfer.Tables[i]
	ofParent := column == "workflow" && (t.Parent != "" || table == "notice")
	return t.Index(column) >= 0 || slices.Contains(numbers, column) || ofParent
}

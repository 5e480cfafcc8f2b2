package postgres_test

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/keep-run/keep/internal/pgtest"
	"github.com/keep-run/keep/store/postgres"
)

// whole are the tables that a database which is cut along workflow keeps in one
// piece, and why they are not on the path of a run.
var whole = map[string]string{
	"meta":             "what the database is",
	"host":             "one row a host",
	"workflow":         "its key is the workflow's name",
	"idempotency_key":  "of HTTP requests, which have no workflow",
	"idempotency_lost": "a row if a server lost some of these",
	"credential":       "tokens and sessions of people",
	"hook":             "one row a hook, written once a second at most",
	"account":          "one row an account, written when its tokens are renewed",
	"gate":             "one row a limited connection, which all of its users share",
	"spent_sum":        "sums of budgets, which all workflows share, written once in some hundred calls",
	"repair":           "one row a failure that is repaired, written with each attempt",
}

// loose are the unique indexes without the workflow: they find a row by an id that is
// unique by chance. A distributed database leaves out that they are unique.
var loose = []string{"escalation_by_id", "input_by_id", "mutation_by_key", "run_by_id"}

// What docs/SCALING.md says of a database that is cut along workflow is so: each
// table has the workflow in its key, or is one of those that stay whole; a unique
// index has it, or is one that finds by id; no table of a workflow draws from a
// sequence, has a trigger, or refers to another one but by the workflow's name.
func TestTablesCanBeCutAlongWorkflow(t *testing.T) {
	t.Parallel()
	url := pgtest.SchemaURL(t)
	openDB(t, url, postgres.Config{Host: true})
	conn := connect(t, url)
	names := func(query string) (out []string) {
		t.Helper()
		rows, err := conn.Query(t.Context(), query)
		if err != nil {
			t.Fatal(err)
		}
		defer rows.Close()
		for rows.Next() {
			var name string
			if err := rows.Scan(&name); err != nil {
				t.Fatal(err)
			}
			out = append(out, name)
		}
		if rows.Err() != nil {
			t.Fatal(rows.Err())
		}
		return out
	}
	const keyed = `EXISTS (SELECT 1 FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attnum = ANY (i.indkey) AND a.attname = 'workflow')`
	const from = ` FROM pg_class c JOIN pg_index i ON i.indrelid = c.oid JOIN pg_class x ON x.oid = i.indexrelid
		WHERE c.relnamespace = current_schema::regnamespace AND c.relkind = 'r' AND `
	if got, want := names(`SELECT c.relname::text`+from+`i.indisprimary AND NOT `+keyed+` ORDER BY 1`), slices.Sorted(maps.Keys(whole)); !slices.Equal(got, want) {
		t.Errorf("without the workflow in their keys are %q, want %q", got, want)
	}
	free := slices.DeleteFunc(names(`SELECT c.relname || ' ' || x.relname`+from+`i.indisunique AND NOT i.indisprimary AND NOT `+keyed+` ORDER BY x.relname`),
		func(of string) bool { return whole[of[:strings.IndexByte(of, ' ')]] != "" })
	for i, of := range free {
		_, free[i], _ = strings.Cut(of, " ")
	}
	if !slices.Equal(free, loose) {
		t.Errorf("unique without the workflow are %q, want %q", free, loose)
	}
	for what, query := range map[string]string{
		"draws from a sequence": `SELECT relname::text FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid WHERE relnamespace = current_schema::regnamespace AND relkind = 'r' AND attidentity <> ''
			UNION SELECT relname::text FROM pg_class c JOIN pg_attrdef d ON d.adrelid = c.oid WHERE relnamespace = current_schema::regnamespace AND pg_get_expr(adbin, adrelid) LIKE '%nextval%'`,
		"refers to another table": `SELECT c.relname::text FROM pg_class c JOIN pg_constraint k ON k.conrelid = c.oid WHERE relnamespace = current_schema::regnamespace AND k.contype = 'f'
			AND pg_get_constraintdef(k.oid) <> 'FOREIGN KEY (workflow) REFERENCES workflow(name)'`,
		"has a trigger": `SELECT c.relname::text FROM pg_class c JOIN pg_trigger g ON g.tgrelid = c.oid WHERE relnamespace = current_schema::regnamespace AND NOT tgisinternal`,
	} {
		for _, table := range names(query) {
			if whole[table] == "" {
				t.Errorf("%s %s", table, what)
			}
		}
	}
}

// What only Postgres itself has is used in few places, of which docs/SCALING.md
// speaks: a dialect without it needs a change there and nowhere else.
func TestDialect(t *testing.T) {
	for _, c := range []struct {
		what  string
		used  string
		files []string
	}{
		{"LISTEN/NOTIFY", `(?i)\bLISTEN "|pg_notify|\bNOTIFY `, []string{"alert.go", "lease.go", "news.go"}},
		{"advisory locks", `pg_(try_)?advisory`, []string{"budget.go", "decision.go", "idempotency.go", "open.go", "rival.go"}},
		{"planner switches", `enable_seqscan|plan_cache_mode`, []string{"check.go", "idempotency.go", "open.go", "place.go", "receive.go"}},
		{"SKIP LOCKED", `SKIP LOCKED`, []string{"budget.go", "idempotency.go", "lease.go", "run.go"}},
	} {
		files, err := filepath.Glob("*.go")
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, name := range files {
			text, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			if !strings.HasSuffix(name, "_test.go") && regexp.MustCompile(c.used).Match(text) {
				got = append(got, name)
			}
		}
		if !slices.Equal(got, c.files) {
			t.Errorf("%s: used in %q, want %q; say in docs/SCALING.md what it needs", c.what, got, c.files)
		}
	}
}

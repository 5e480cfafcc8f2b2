package postgres_test

import (
	"maps"
	"slices"
	"testing"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/internal/pgtest"
	"github.com/keep-run/keep/postgres"
)

// BenchmarkLook searches a million titles. The processors that the server uses are
// not this process's, so only the time is told.
func BenchmarkLook(b *testing.B) {
	db := openDB(b, pgtest.SchemaURL(b), postgres.Config{Host: true, Conns: 4})
	ctx := b.Context()
	for _, sql := range []string{
		`INSERT INTO lease (workflow, n) SELECT 'w' || i, 0 FROM generate_series(0, 9) i`,
		`INSERT INTO tally SELECT 'w' || i, 'input', '', 100000 FROM generate_series(0, 9) i`,
		`INSERT INTO input (workflow, source, type, external_id, id, n, title, status, unfinished, created_at, words)
		 SELECT 'w' || (i % 10), 'mail', 'mail', i, 'in_' || i, i::bigint << 10, title,
		        CASE i % 100 WHEN 0 THEN 'pending' ELSE 'done' END, CASE i % 100 WHEN 0 THEN 1 ELSE 0 END, i,
		        array_to_tsvector(string_to_array(lower(title), ' '))
		   FROM (SELECT i, 'Invoice ' || i || ' from ' || (ARRAY['ada', 'bob', 'cyd'])[i % 3 + 1] || CASE WHEN i < 500000 THEN ' early' ELSE '' END AS title
		           FROM generate_series(1, 1000000) i) AS v`,
		`VACUUM ANALYZE input`,
	} {
		if err := db.Exec(ctx, sql); err != nil {
			b.Fatal(err)
		}
	}
	bare := keep.Page{Bare: true}
	looks := make(map[string]func() (int, error))
	for name, f := range map[string]keep.InputFilter{
		"Common":           {Text: "invoice"},
		"CommonOfWorkflow": {Text: "invoice", Workflow: "w3"},
		"CommonPending":    {Text: "invoice", Status: keep.InputPending},
		"CommonDone":       {Text: "invoice", Workflow: "w3", Status: keep.InputDone},
		"Third":            {Text: "ada"},
		"CommonAndThird":   {Text: "invoice ada"},
		"Rare":             {Text: "543210"},
		"CommonAndRare":    {Text: "invoice 543210"},
		"OldOnly":          {Text: "early"},
		"NeverTogether":    {Text: "ada bob"},
		"Absent":           {Text: "nothing"},
		"Prefix":           {Text: "invo"},
		"PrefixOfMany":     {Text: "1"},
	} {
		looks["Search"+name] = func() (int, error) { l, _, err := db.Inputs(ctx, f, bare); return len(l), err }
		looks["Count"+name] = func() (int, error) { c, err := db.CountInputs(ctx, f); return len(c), err }
	}
	after := keep.Page{Limit: 100}
	for range 1000 {
		_, next, err := db.Inputs(ctx, keep.InputFilter{Text: "invoice ada"}, after)
		if err != nil || next == "" {
			b.Fatalf("next %q, %v", next, err)
		}
		after.After = next
	}
	looks["SearchPage1000"] = func() (int, error) {
		l, _, err := db.Inputs(ctx, keep.InputFilter{Text: "invoice ada"}, after)
		return len(l), err
	}
	for _, name := range slices.Sorted(maps.Keys(looks)) {
		b.Run(name, func(b *testing.B) {
			n := 0
			for b.Loop() {
				var err error
				if n, err = looks[name](); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(n), "found")
		})
	}
}

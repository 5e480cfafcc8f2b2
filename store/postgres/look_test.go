package postgres_test

import (
	"maps"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/keep-run/keep/internal/pgtest"
	"github.com/keep-run/keep/store/postgres"
	"github.com/keep-run/keep/testkit/storetest"
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
	looks, err := storetest.Looks(ctx, db)
	if err != nil {
		b.Fatal(err)
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

// That the index takes long is known on a server that says so in another language, too: its search continues without it.
func TestTookLongInGerman(t *testing.T) {
	if err := (&pgconn.PgError{Severity: "FEHLER", SeverityUnlocalized: "ERROR", Code: "57014", Message: "storniere Anfrage wegen Zeitüberschreitung der Anfrage"}); !postgres.TookLong(err) {
		t.Errorf("%v: is not known to have taken too long", err)
	}
	url := pgtest.StartGerman(t).URL("postgres")
	conn := connect(t, url)
	if _, err := conn.Exec(t.Context(), `SET statement_timeout = 1`); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Exec(t.Context(), `SELECT pg_sleep(60)`); !postgres.TookLong(err) {
		t.Errorf("%v: is not known to have taken too long", err)
	}
	// On a busy machine a millisecond is not enough for this one either.
	if _, err := connect(t, url).Exec(t.Context(), `SELECT 1 / 0`); postgres.TookLong(err) {
		t.Errorf("%v: is known to have taken too long", err)
	}
}

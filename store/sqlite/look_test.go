package sqlite_test

import (
	"maps"
	"path/filepath"
	"slices"
	"testing"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/internal/cputime"
	"github.com/keep-run/keep/store/sqlite"
	"github.com/keep-run/keep/testkit/storetest"
)

// BenchmarkLook is what a page asks of a file with a million inputs and a million
// mutations: counts, newest rows, search.
func BenchmarkLook(b *testing.B) {
	db := openDB(b, filepath.Join(b.TempDir(), "keep.db"), sqlite.Config{Host: true})
	ctx := b.Context()
	err := db.Do(ctx, `
		WITH RECURSIVE i (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM i WHERE n < 1000000)
		INSERT INTO input (id, workflow, source, type, external_id, title, status, created_at, unfinished)
		SELECT printf('in_%09d', n), 'w' || (n % 10), 'mail', 'mail', n,
		       'Invoice ' || n || ' from ' || CASE n % 3 WHEN 0 THEN 'ada' WHEN 1 THEN 'bob' ELSE 'cyd' END || iif(n < 500000, ' early', ''), iif(n % 100 = 0, 'pending', 'done'), n, n % 100 = 0
		  FROM i;
		WITH RECURSIVE i (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM i WHERE n < 1000000)
		INSERT INTO mutation (key, workflow, run, item, attempt, tool, connector, level, target, subkey, payload_hash, token, title,
			state, warning, attempts, reconcile_attempts, next_reconcile_at, call_deadline, settle_after, can_reconcile, resolved_by,
			rev, created_at, updated_at, payload)
		SELECT printf('m_%09d', n), 'w' || (n % 10), printf('run_%09d', n), '', 0, 'crm.create', 'http', 'C', 'contacts', '', '', 'token', '',
		       iif(n % 100 = 0, 'failed', 'applied'), '', 1, 0, 0, 1, 0, 1, 'call', 2, n, n, printf('{"text":"%0500d"}', n)
		  FROM i;
		`)
	if err != nil {
		b.Fatal(err)
	}
	b.Run("Index", func(b *testing.B) {
		for range b.N {
			if err := db.Index(ctx); err != nil {
				b.Fatal(err)
			}
		}
	})
	bare := keep.Page{Bare: true}
	looks := map[string]func() (int, error){
		"CountInputs": func() (int, error) { c, err := db.CountInputs(ctx, keep.InputFilter{}); return c[keep.InputDone], err },
		"CountInputsOfWorkflow": func() (int, error) {
			c, err := db.CountInputs(ctx, keep.InputFilter{Workflow: "w3"})
			return c[keep.InputDone], err
		},
		"CountMutations": func() (int, error) {
			c, err := db.CountMutations(ctx, keep.MutationFilter{})
			return c[keep.Applied], err
		},
		"Inputs":    func() (int, error) { l, _, err := db.Inputs(ctx, keep.InputFilter{}, bare); return len(l), err },
		"Mutations": func() (int, error) { l, _, err := db.Mutations(ctx, keep.MutationFilter{}, bare); return len(l), err },
	}
	searches, err := storetest.Looks(ctx, db)
	if err != nil {
		b.Fatal(err)
	}
	maps.Copy(looks, searches)
	for _, name := range slices.Sorted(maps.Keys(looks)) {
		b.Run(name, func(b *testing.B) {
			begin := cputime.Used()
			n := 0
			for b.Loop() {
				var err error
				if n, err = looks[name](); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64((cputime.Used()-begin).Microseconds())/float64(b.N)/1000, "cpu-ms/op")
			b.ReportMetric(float64(n), "found")
		})
	}
}

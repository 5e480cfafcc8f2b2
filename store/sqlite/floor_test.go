package sqlite

import (
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// BenchmarkFloor is what BenchmarkRun is compared with, in one run on one
// machine: the same bytes in two grouped durable commits of six plain statements
// each, with no index, no law and no copy between the caller and the statement.
func BenchmarkFloor(b *testing.B) {
	db := New(filepath.Join(b.TempDir(), "floor.db"), Config{})
	if err := db.Open(b.Context()); err != nil {
		b.Fatal(err)
	}
	defer db.Close()
	err := db.write.do(b.Context(), func(c *conn) error {
		return c.script(`
			CREATE TABLE f_run (id INTEGER PRIMARY KEY, workflow TEXT, phase TEXT, prepared TEXT) STRICT;
			CREATE TABLE f_event (id INTEGER PRIMARY KEY, workflow TEXT, status TEXT, reserved_by INTEGER, payload TEXT) STRICT;
			CREATE TABLE f_mutation (id INTEGER PRIMARY KEY, state TEXT, payload TEXT, result TEXT) STRICT;
			CREATE TABLE f_history (id INTEGER PRIMARY KEY, mutation INTEGER, state TEXT) STRICT;
			CREATE TABLE f_handler (workflow TEXT PRIMARY KEY, last INTEGER) STRICT, WITHOUT ROWID`)
	})
	if err != nil {
		b.Fatal(err)
	}
	text := strings.Repeat("x", 1000)
	var last atomic.Int64
	b.ResetTimer()
	var wg sync.WaitGroup
	for i := range 64 {
		wg.Go(func() {
			workflow := fmt.Sprintf("workflow-%02d", i)
			for n := last.Add(1); n <= int64(b.N); n = last.Add(1) {
				if err := floorRun(b, db, workflow, n, text); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "runs/s")
}

func floorRun(b *testing.B, db *DB, workflow string, n int64, text string) error {
	all := func(c *conn, statements ...[]any) error {
		for _, s := range statements {
			if _, err := c.exec(s[0].(string), s[1:]...); err != nil {
				return err
			}
		}
		return nil
	}
	err := db.write.do(b.Context(), func(c *conn) error {
		return all(c,
			[]any{`INSERT INTO f_event (id, workflow, status, payload) VALUES (?, ?, 'pending', ?)`, n, workflow, text},
			[]any{`INSERT INTO f_run (id, workflow, phase, prepared) VALUES (?, ?, 'mutating', ?)`, n, workflow, text},
			[]any{`UPDATE f_event SET reserved_by = ? WHERE id = ?`, n, n},
			[]any{`INSERT INTO f_mutation (id, state, payload) VALUES (?, 'in_flight', ?)`, n, text},
			[]any{`INSERT INTO f_history (mutation, state) VALUES (?, 'in_flight')`, n},
			[]any{`INSERT INTO f_handler VALUES (?, ?) ON CONFLICT DO UPDATE SET last = excluded.last`, workflow, n})
	})
	if err != nil {
		return err
	}
	return db.write.do(b.Context(), func(c *conn) error {
		return all(c,
			[]any{`UPDATE f_mutation SET state = 'applied', result = ? WHERE id = ?`, text, n},
			[]any{`INSERT INTO f_history (mutation, state) VALUES (?, 'applied')`, n},
			[]any{`UPDATE f_event SET status = 'consumed' WHERE id = ?`, n},
			[]any{`UPDATE f_run SET phase = 'committed' WHERE id = ?`, n},
			[]any{`SELECT 1 FROM f_run WHERE id = ?`, n},
			[]any{`UPDATE f_handler SET last = ? WHERE workflow = ?`, n, workflow})
	})
}

package idempotency_test

import (
	"context"
	"database/sql"
	"net/http"
	"path/filepath"
	"testing"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/idempotency"
	"github.com/keep-run/keep/law/key"
	"github.com/keep-run/keep/store/sqlite"
)

// SQLite ends the whole transaction when a statement that writes in it is interrupted. What the handler wrote before is gone then, and
// what it writes after that is there at once: its answer is not that of a transaction.
func TestTxEndedByAnInterruption(t *testing.T) {
	t.Parallel()
	for _, atomic := range []bool{false, true} {
		db := sqlite.New(filepath.Join(t.TempDir(), "keys.db"), sqlite.Config{})
		must(t, db.Open(t.Context()))
		defer db.Close()
		w := newWorldOn(t, func(*flaky) idempotency.Store { return db.Keys() }, rule(idempotency.Rule{Atomic: atomic}), func(rw http.ResponseWriter, r *http.Request) {
			tx, err := idempotency.Tx[*sql.Tx](r.Context())
			if err != nil {
				t.Error(err)
				return
			}
			for _, text := range []string{`CREATE TABLE made (n)`, `INSERT INTO made VALUES (1)`} {
				if _, err := tx.ExecContext(r.Context(), text); err != nil {
					t.Error(err)
				}
			}
			ctx, cancel := context.WithTimeout(r.Context(), 20*time.Millisecond)
			defer cancel()
			if _, err := tx.ExecContext(ctx, `INSERT INTO made WITH RECURSIVE c (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c) SELECT n FROM c`); err == nil {
				t.Error("what has no end has ended")
			}
			rw.WriteHeader(201) // it was not so important
		})
		w.problem(w.do(with("k")), 503, idempotency.KindOutcomeUnknown)
		list, _, err := db.Keys().List(t.Context(), key.Filter{}, keep.Page{})
		if err != nil || len(list) != 1 || list[0].State != key.Unknown {
			t.Errorf("atomic %t: the records are %+v, %v", atomic, list, err)
		}
	}
}

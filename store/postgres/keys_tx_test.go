package postgres_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/keep-run/keep/idempotency"
	"github.com/keep-run/keep/internal/pgtest"
	"github.com/keep-run/keep/law/key"
)

// send sends a request with a key to a guard.
func send(h http.Handler, name string) *httptest.ResponseRecorder {
	r := httptest.NewRequest("POST", "/", strings.NewReader("x"))
	r.Header.Set("Idempotency-Key", name)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// A server that takes no writes, as a standby or one whose disk is full, still says what became of a request: with fail_open it is not
// executed again, also by a process that has not seen its key before.
func TestFailOpenOnAServerThatOnlyReads(t *testing.T) {
	t.Parallel()
	url := pgtest.SchemaURL(t)
	var runs atomic.Int64
	guard := func(url string) http.Handler {
		k, _ := open(t, url)
		g, err := idempotency.New(k, idempotency.Config{Rules: []idempotency.Rule{{FailOpen: true}}})
		if err != nil {
			t.Fatal(err)
		}
		return g.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			if runs.Add(1) == 1 {
				w.WriteHeader(http.StatusCreated)
			}
			fmt.Fprint(w, "ran")
		}))
	}
	if got := send(guard(url), "k"); got.Code != 201 {
		t.Fatalf("%d %s", got.Code, got.Body)
	}
	onlyReads := guard(url + "&default_transaction_read_only=on")
	for range 2 {
		if got := send(onlyReads, "k"); got.Code != 201 || got.Header().Get(idempotency.ReplayedHeader) != "true" {
			t.Errorf("a retry: %d %v %s", got.Code, got.Header(), got.Body)
		}
	}
	if n := runs.Load(); n != 1 {
		t.Errorf("executed %d times", n)
	}
	if got := send(onlyReads, "new"); got.Code != 200 || runs.Load() != 2 {
		t.Errorf("a request that nobody began: %d %s, executed %d times", got.Code, got.Body, runs.Load())
	}
}

// Of a transaction that ends otherwise than by the guard nothing is lost in silence, and nothing is done twice: with Rule.Atomic
// the key is free if none of it is there, and whoever ended it himself leaves a doubt.
func TestTransactionsThatEndOtherwise(t *testing.T) {
	t.Parallel()
	const insert = `INSERT INTO orders VALUES ('x')`
	for _, test := range []struct {
		name   string
		does   []string
		orders int
		state  key.State // of an atomic rule; of others it is unknown
		kind   idempotency.Kind
	}{
		{"handler rolls back", []string{insert, `ROLLBACK`}, 0, key.Unknown, idempotency.KindOutcomeUnknown},
		{"handler commits", []string{insert, `COMMIT`}, 1, key.Unknown, idempotency.KindOutcomeUnknown},
		{"handler rolls back and begins", []string{insert, `ROLLBACK AND CHAIN`}, 0, key.Unknown, idempotency.KindOutcomeUnknown},
		{"handler commits and begins", []string{insert, `COMMIT`, `BEGIN`}, 1, key.Unknown, idempotency.KindOutcomeUnknown},
		{"handler commits, and dies", []string{insert, `COMMIT`, `SELECT pg_terminate_backend(pg_backend_pid())`}, 1, key.Unknown, idempotency.KindOutcomeUnknown},
		{"connection ends", []string{insert, `SELECT pg_terminate_backend(pg_backend_pid())`}, 0, key.Released, idempotency.KindStoreUnavailable},
		{"statement fails", []string{insert, `SELECT 1/0`}, 0, key.Released, idempotency.KindStoreUnavailable},
		{"commit fails", []string{`INSERT INTO orders VALUES ('bad')`}, 0, key.Released, idempotency.KindStoreUnavailable},
		{"connection ends in the commit", []string{`INSERT INTO orders VALUES ('dies')`}, 0, key.Released, idempotency.KindStoreUnavailable},
	} {
		for _, atomic := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, atomic %t", test.name, atomic), func(t *testing.T) {
				t.Parallel()
				url := pgtest.SchemaURL(t)
				k, pool := open(t, url)
				exec(t, url, `CREATE TABLE orders (note TEXT);
					CREATE FUNCTION judge() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
						IF new.note = 'bad' THEN RAISE 'not like that'; END IF;
						IF new.note = 'dies' THEN PERFORM pg_terminate_backend(pg_backend_pid()); END IF;
						RETURN NULL; END $$;
					CREATE CONSTRAINT TRIGGER judged AFTER INSERT ON orders DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION judge()`)
				g, err := idempotency.New(k, idempotency.Config{Rules: []idempotency.Rule{{Atomic: atomic}}})
				if err != nil {
					t.Fatal(err)
				}
				h := g.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					tx, err := idempotency.Tx[pgx.Tx](r.Context())
					if err != nil {
						t.Error(err)
						return
					}
					for _, text := range test.does {
						_, _ = tx.Exec(context.WithoutCancel(r.Context()), text) // a handler that drops errors
					}
					w.WriteHeader(http.StatusCreated)
				}))
				got := send(h, "k")
				state, kind := key.Unknown, idempotency.KindOutcomeUnknown
				if atomic {
					state, kind = test.state, test.kind
				}
				if got.Code != 503 || !strings.Contains(got.Body.String(), idempotency.ProblemBase+string(kind)) {
					t.Errorf("the client gets %d %s, want 503 %s", got.Code, got.Body, kind)
				}
				var orders int
				if err := pool.QueryRow(t.Context(), `SELECT count(*) FROM orders`).Scan(&orders); err != nil || orders != test.orders {
					t.Errorf("%d orders, %v, want %d", orders, err, test.orders)
				}
				if rec, err := k.Read(t.Context(), key.NewID("example.com", "", "k")); err != nil || rec.State != state {
					t.Errorf("the key is %q, %v, want %q", rec.State, err, state)
				}
			})
		}
	}
}

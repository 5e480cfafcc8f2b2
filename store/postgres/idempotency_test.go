package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/idempotency"
	"github.com/keep-run/keep/internal/pgtest"
	"github.com/keep-run/keep/law/key"
	"github.com/keep-run/keep/store/postgres"
	"github.com/keep-run/keep/testkit/idempotencytest"
)

// open returns the keys of a database, and its pool.
func open(t testing.TB, url string) (*postgres.Keys, *pgxpool.Pool) {
	t.Helper()
	pool, err := pgxpool.New(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	k := postgres.NewKeys(pool)
	if err := k.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	return k, pool
}

func TestKeys(t *testing.T) {
	idempotencytest.Run(t, func(t testing.TB) idempotency.Store {
		k, _ := open(t, pgtest.SchemaURL(t))
		return k
	})
}

func TestKeysOnPostgres(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]func(*testing.T){
		"two_pools":            keysOnPostgresTwoPools,
		"commits_with_the_key": keysOnPostgresCommitsWithTheKey,
		"group":                keysOnPostgresGroup,
		"lost_connections":     keysOnPostgresLostConnections,
		"space":                keysOnPostgresSpace,
		"newer_schema":         keysOnPostgresNewerSchema,
	} {
		t.Run(name, test)
	}
}

// Keys in the database of a newer Keep are as its hosts are: refused if it asks for more than is known here. Tables of other
// programs, by whatever name, are beside them.
func keysOnPostgresNewerSchema(t *testing.T) {
	t.Parallel()
	url := pgtest.SchemaURL(t)
	exec(t, url, `CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT); CREATE TABLE run (id TEXT); CREATE TABLE orders (id TEXT)`)
	k, _ := open(t, url)
	for asks, want := range map[string]error{
		`('keep_schema', '1')`:                                nil,
		`('keep_schema', '1000000'), ('keep_oldest', '10')`:   nil,
		`('keep_schema', '1000000'), ('keep_oldest', '1000')`: keep.ErrNewerDatabase,
	} {
		exec(t, url, `DELETE FROM meta; INSERT INTO meta VALUES `+asks)
		if err := k.Migrate(t.Context()); !errors.Is(err, want) || want != nil && !strings.Contains(err.Error(), "install that version") {
			t.Errorf("%s: %v, want %v", asks, err, want)
		}
		if err := k.Check(t.Context()); !errors.Is(err, want) {
			t.Errorf("%s: Check = %v, want %v", asks, err, want)
		}
	}
	for _, columns := range []string{`name TEXT, value JSONB`, `name TEXT, value BOOL`, `name INT, value TEXT`, `value TEXT`} {
		url := pgtest.SchemaURL(t)
		exec(t, url, `CREATE TABLE meta (`+columns+`)`)
		if err := migrateKeys(t, url); err != nil {
			t.Errorf("beside meta (%s): %v", columns, err)
		}
	}
	url = pgtest.SchemaURL(t)
	_, schema, _ := strings.Cut(url, "search_path=")
	role := "keys_of_" + schema
	exec(t, url, `CREATE TABLE meta (name TEXT, value TEXT); CREATE ROLE `+role+`; GRANT USAGE, CREATE ON SCHEMA `+schema+` TO `+role)
	if err := migrateKeys(t, url+"&role="+role); err != nil {
		t.Errorf("beside meta that the role may not read: %v", err)
	}
}

// migrateKeys makes the table of keys.
func migrateKeys(t *testing.T, url string) error {
	t.Helper()
	pool, err := pgxpool.New(t.Context(), url)
	if err != nil {
		return err
	}
	defer pool.Close()
	return postgres.NewKeys(pool).Migrate(t.Context())
}

func keysOnPostgresTwoPools(t *testing.T) {
	t.Parallel()
	url := pgtest.SchemaURL(t)
	var runs atomic.Int64
	var guards []http.Handler
	for range 2 {
		k, _ := open(t, url)
		g, err := idempotency.New(k, idempotency.Config{Rules: []idempotency.Rule{{Wait: time.Minute}}})
		if err != nil {
			t.Fatal(err)
		}
		guards = append(guards, g.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, runs.Add(1)) })))
	}
	var wg sync.WaitGroup
	for i := range 50 {
		wg.Go(func() {
			r := httptest.NewRequest("POST", "/%ff%00", strings.NewReader("x"))
			r.Header.Set("Idempotency-Key", "k")
			w := httptest.NewRecorder()
			guards[i%2].ServeHTTP(w, r)
			if w.Code != 200 || w.Body.String() != "1" {
				t.Errorf("%d %s", w.Code, w.Body)
			}
		})
	}
	wg.Wait()
}

func keysOnPostgresCommitsWithTheKey(t *testing.T) {
	t.Parallel()
	k, pool := open(t, pgtest.SchemaURL(t))
	if _, err := pool.Exec(t.Context(), `CREATE TABLE orders (note TEXT)`); err != nil {
		t.Fatal(err)
	}
	status := 201
	g, err := idempotency.New(k, idempotency.Config{Rules: []idempotency.Rule{{Atomic: true}}})
	if err != nil {
		t.Fatal(err)
	}
	h := g.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		tx, err := idempotency.Tx[pgx.Tx](r.Context())
		if err == nil {
			_, err = tx.Exec(r.Context(), `INSERT INTO orders VALUES ('x')`)
		}
		if err != nil {
			t.Error(err)
		}
		w.WriteHeader(status)
	}))
	for i, test := range []struct {
		status, orders int
		state          key.State
	}{{201, 1, key.Done}, {429, 1, key.Released}, {500, 1, key.Done}, {422, 2, key.Done}} {
		status = test.status
		r := httptest.NewRequest("POST", "/", nil)
		r.Header.Set("Idempotency-Key", fmt.Sprint("k", i))
		h.ServeHTTP(httptest.NewRecorder(), r)
		var orders int
		if err := pool.QueryRow(t.Context(), `SELECT count(*) FROM orders`).Scan(&orders); err != nil {
			t.Fatal(err)
		}
		rec, err := k.Read(t.Context(), key.NewID("example.com", "", fmt.Sprint("k", i)))
		if err != nil || orders != test.orders || rec.State != test.state {
			t.Errorf("%d: %d orders and key %q, %v, want %d and %q", test.status, orders, rec.State, err, test.orders, test.state)
		}
	}
}

// record returns a key that was begun now, for an hour.
func record(t testing.TB, name string) key.Record {
	r, err := key.Apply(key.Record{}, key.Fact{Evidence: key.Begun, Fence: 1, Lease: time.Minute, Claim: key.Claim{
		ID: key.NewID("", "", name), Key: name, Method: "POST", Path: "/", TTL: time.Hour}}, time.Now())
	if err != nil {
		t.Error(err)
	}
	return r
}

// One record that the server refuses must not take those with it that share its
// transaction.
func keysOnPostgresGroup(t *testing.T) {
	t.Parallel()
	k, _ := open(t, pgtest.SchemaURL(t))
	taken := record(t, "taken")
	if err := k.Write(t.Context(), taken); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for i := range 100 {
		wg.Go(func() {
			name, want := fmt.Sprint("k", i), error(nil)
			switch i % 10 {
			case 3:
				name = strings.Repeat("x", 300) + name // against a CHECK of the table
			case 7:
				name, want = "taken", keep.ErrStale
			}
			err := k.Write(t.Context(), record(t, name))
			refused := new(pgconn.PgError)
			if i%10 == 3 && !errors.As(err, &refused) || i%10 != 3 && !errors.Is(err, want) {
				t.Errorf("write %d: %v", i, err)
			}
			if got, err := k.Read(t.Context(), key.NewID("", "", name)); err != nil || (got.Rev == 1) != (i%10 != 3) {
				t.Errorf("read %d: rev %d, %v", i, got.Rev, err)
			}
		})
	}
	wg.Wait()
}

// A server that is gone is an error for all who wait, and none once it is back.
func keysOnPostgresLostConnections(t *testing.T) {
	t.Parallel()
	k, pool := open(t, pgtest.SchemaURL(t)+"&application_name="+t.Name())
	for range 3 {
		if _, err := k.Read(t.Context(), key.NewID("", "", "k")); err != nil {
			t.Fatal(err)
		}
		// Every connection but the one that asks for it.
		_, err := pool.Exec(t.Context(), `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
			WHERE pid <> pg_backend_pid() AND application_name = $1`, t.Name())
		if err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		for range 20 {
			wg.Go(func() {
				for tries := 0; ; tries++ {
					_, err := k.Read(t.Context(), key.NewID("", "", "k"))
					if err == nil {
						return
					}
					if tries == 10 {
						t.Errorf("still %v", err)
						return
					}
				}
			})
		}
		wg.Wait()
	}
}

// What is swept is used again once the server has vacuumed, which it does by
// itself, and what is at the end of the table comes back to the file system.
func keysOnPostgresSpace(t *testing.T) {
	t.Parallel()
	k, pool := open(t, pgtest.URL(t)) // nobody else there has a transaction that may still see what was deleted
	fill := func() {
		t.Helper()
		var wg sync.WaitGroup
		for worker := range 16 {
			wg.Go(func() {
				for i := range 100 {
					r := record(t, fmt.Sprint("k", worker, "-", i))
					r, err := key.Apply(r, key.Fact{Evidence: key.Answered, Fence: 1, By: "owner", Answer: key.Answer{Status: 200, Body: make([]byte, 1000)}}, time.Now())
					if err == nil {
						err = k.Write(t.Context(), r)
					}
					if err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
		wg.Wait()
	}
	size := func() (table, all int64) {
		t.Helper()
		if err := pool.QueryRow(t.Context(), `SELECT pg_table_size('idempotency_key'), pg_total_relation_size('idempotency_key')`).Scan(&table, &all); err != nil {
			t.Fatal(err)
		}
		return table, all
	}
	sweep := func() {
		t.Helper()
		for {
			n, err := k.Sweep(t.Context(), time.Now().Add(2*time.Hour), 200)
			if err != nil {
				t.Fatal(err)
			}
			if n < 200 {
				break
			}
		}
	}
	vacuum := func() {
		t.Helper()
		if _, err := pool.Exec(t.Context(), `VACUUM idempotency_key`); err != nil {
			t.Fatal(err)
		}
	}
	fill()
	table, all := size()
	for range 3 {
		sweep()
		// A transaction of another test, in the same database, keeps rows from being vacuumed while it lasts.
		until := time.Now().Add(time.Minute)
		for vacuum(); ; vacuum() {
			now, _ := size()
			if now <= table/10 {
				break
			}
			if time.Now().After(until) {
				t.Errorf("the table has %d bytes after a sweep, %d before", now, table)
				break
			}
		}
		fill()
	}
	if _, now := size(); now > all*5/4 {
		t.Errorf("table and indexes have %d bytes when filled again, %d the first time", now, all)
	}
}

// A key that is refused as somebody's, and cannot be read then, is somebody's all the same: who executes without records while
// the store is down must not execute it.
func TestTakenKeyThatCannotBeRead(t *testing.T) {
	url := pgtest.SchemaURL(t)
	owner, _ := open(t, url)
	claim := key.Claim{ID: key.NewID("", "", "k"), Key: "k", Method: "POST", Path: "/", TTL: time.Hour}
	rec, err := key.Apply(key.Record{}, key.Fact{Evidence: key.Begun, Fence: 7, Claim: claim, Lease: time.Minute}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	if there, err := owner.Take(t.Context(), rec); err != nil || there.Rev != 0 {
		t.Fatal(there, err)
	}
	cfg, err := pgxpool.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	cfg.ConnConfig.Tracer = unreadable{}
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	if _, err := postgres.NewKeys(pool).Take(t.Context(), rec); !errors.Is(err, keep.ErrStale) {
		t.Errorf("take: %v, want %v", err, keep.ErrStale)
	}
}

// unreadable ends what reads one record.
type unreadable struct{}

func (unreadable) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	return ctx
}
func (unreadable) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData)     {}
func (unreadable) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}
func (unreadable) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData)     {}
func (unreadable) TraceBatchStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceBatchStartData) context.Context {
	if strings.HasPrefix(data.Batch.QueuedQueries[0].SQL, "SELECT id, version") {
		ended, cancel := context.WithCancel(ctx)
		cancel()
		return ended
	}
	return ctx
}

//go:build unix

package acceptance_test

import (
	"context"
	"database/sql"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/keep-run/keep/idempotency"
	"github.com/keep-run/keep/idempotency/acceptance"
	"github.com/keep-run/keep/idempotency/proxy"
	"github.com/keep-run/keep/internal/pgtest"
	"github.com/keep-run/keep/internal/port"
	"github.com/keep-run/keep/store/memory"
	"github.com/keep-run/keep/store/postgres"
	"github.com/keep-run/keep/store/sqlite"
)

// TestMain is the server of the tests below, if the environment says so.
func TestMain(m *testing.M) {
	if os.Getenv("KEEP_TEST_FRONT") == "" {
		os.Exit(pgtest.Main(m))
	}
	if err := serve(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// serve runs a guard or a proxy in front of a backend until it is killed.
func serve(ctx context.Context) error {
	store, err := openStore(ctx, os.Getenv("KEEP_TEST_DB"))
	if err != nil {
		return err
	}
	upstream, quiet := os.Getenv("KEEP_TEST_UPSTREAM"), slog.New(slog.DiscardHandler)
	if os.Getenv("KEEP_TEST_FRONT") == "proxy" {
		p, err := proxy.New(store, proxy.Config{Upstream: upstream, Listen: os.Getenv("KEEP_TEST_LISTEN"),
			AdminListen: os.Getenv("KEEP_TEST_ADMIN"), AdminToken: "t", Lease: proxy.Duration(lease), Logger: quiet})
		if err != nil {
			return err
		}
		return p.Run(ctx)
	}
	g, err := idempotency.New(store, idempotency.Config{Lease: lease, Logger: quiet})
	if err != nil {
		return err
	}
	to, err := url.Parse(upstream)
	if err != nil {
		return err
	}
	// The handler's work is elsewhere, since what it did must outlive it.
	return http.ListenAndServe(os.Getenv("KEEP_TEST_LISTEN"), g.Handler(httputil.NewSingleHostReverseProxy(to)))
}

// lease is short, so that the tests need not wait long after a death.
const lease = 500 * time.Millisecond

// openStore opens a store for as long as the process lives.
func openStore(ctx context.Context, db string) (idempotency.Store, error) {
	if strings.HasPrefix(db, "postgres://") {
		pg := postgres.New(db, postgres.Config{})
		err := pg.Open(ctx)
		return pg.Keys(), err
	}
	file := sqlite.New(db, sqlite.Config{BusyTimeout: 100 * time.Millisecond})
	err := file.Open(ctx)
	return file.Keys(), err
}

// A front is what is tested, in a process of its own that can be killed.
type front struct {
	kind, db, upstream, listen, admin string

	cmd *exec.Cmd
}

// start starts the process anew, after the end of the one before.
func (f *front) start(context.Context) error {
	f.kill()
	f.cmd = exec.Command(os.Args[0])
	f.cmd.Stderr = os.Stderr
	f.cmd.Env = append(os.Environ(), "KEEP_TEST_FRONT="+f.kind, "KEEP_TEST_DB="+f.db, "KEEP_TEST_UPSTREAM="+f.upstream,
		"KEEP_TEST_LISTEN="+f.listen, "KEEP_TEST_ADMIN="+f.admin)
	return f.cmd.Start()
}

func (f *front) kill() {
	if f.cmd != nil {
		_ = f.cmd.Process.Kill()
		_ = f.cmd.Wait()
	}
}

// sqliteOutage takes the right to write a file, so that nobody else has it.
func sqliteOutage(t *testing.T, db string) (down, up func(context.Context) error) {
	raw, err := sql.Open("sqlite", "file:"+db+"?_txlock=immediate&_pragma=busy_timeout(10000)")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = raw.Close() })
	var tx *sql.Tx
	return func(ctx context.Context) (err error) { tx, err = raw.BeginTx(t.Context(), nil); return err },
		func(context.Context) error { return tx.Rollback() }
}

// postgresOutage closes a database to everybody.
func postgresOutage(t *testing.T, db string) (down, up func(context.Context) error) {
	u, err := url.Parse(db)
	if err != nil {
		t.Fatal(err)
	}
	name := strings.TrimPrefix(u.Path, "/")
	u.Path = "/postgres"
	conn, err := pgx.Connect(t.Context(), u.String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	allow := func(ctx context.Context, yes bool) error {
		_, err := conn.Exec(ctx, fmt.Sprintf("ALTER DATABASE %s ALLOW_CONNECTIONS %t", pgx.Identifier{name}.Sanitize(), yes))
		return err
	}
	return func(ctx context.Context) error {
			if err := allow(ctx, false); err != nil {
				return err
			}
			_, err := conn.Exec(ctx, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = $1", name)
			return err
		}, func(ctx context.Context) error {
			return allow(ctx, true)
		}
}

func TestRun(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]func(*testing.T){
		"guard_and_proxy": runGuardAndProxy,
		"memory":          runMemory,
		"missing_guard":   runMissingGuard,
		"skipped":         runSkipped,
	} {
		t.Run(name, test)
	}
}

// Our guard and our proxy pass every case, on both stores, as processes that are
// killed and stores that are really gone. A guard alone has no admin address.
func runGuardAndProxy(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"guard", "proxy"} {
		for _, store := range []string{"sqlite", "postgres"} {
			t.Run(kind+" on "+store, func(t *testing.T) {
				t.Parallel()
				db, outage := filepath.Join(t.TempDir(), "keys.db"), sqliteOutage
				if store == "postgres" {
					db, outage = pgtest.URL(t), postgresOutage
				}
				up := httptest.NewServer(new(acceptance.Backend))
				defer up.Close()
				f := &front{kind: kind, db: db, upstream: up.URL, listen: port.Addr(t), admin: port.Addr(t)}
				t.Cleanup(f.kill)
				target := target("http://" + f.listen)
				target.Restart, target.Lease = f.start, lease
				target.StoreDown, target.StoreUp = outage(t, db)
				if kind == "proxy" {
					target.Admin, target.AdminToken = "http://"+f.admin, "t"
				}
				if err := f.start(t.Context()); err != nil {
					t.Fatal(err)
				}
				ready(t, target.URL)
				count := 0
				for _, r := range run(t, target) {
					if kind == "guard" && r.Group == "operations" {
						continue
					}
					if count++; !r.Passed {
						t.Errorf("%s: %s: %s%s", r.Group, r.Name, r.Problem, r.Skipped)
					}
				}
				if count < 130 {
					t.Errorf("%d cases, want at least 130", count)
				}
			})
		}
	}
}

// ready waits until a server answers.
func ready(t *testing.T, url string) {
	t.Helper()
	for until := time.Now().Add(time.Minute); ; {
		resp, err := http.Get(url)
		if err == nil {
			resp.Body.Close()
			return
		}
		if time.Now().After(until) {
			t.Fatal(err)
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-t.Context().Done():
			t.Fatal(err)
		}
	}
}

// A store in memory forgets with its process, and passes the rest.
func runMemory(t *testing.T) {
	t.Parallel()
	g, err := idempotency.New(new(memory.Keys), idempotency.Config{})
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewServer(g.Handler(new(acceptance.Backend)))
	defer s.Close()
	for _, r := range run(t, target(s.URL)) {
		if !r.Passed && r.Skipped == "" {
			t.Errorf("%s: %s: %s", r.Group, r.Name, r.Problem)
		}
	}
}

func target(url string) acceptance.Target {
	return acceptance.Target{
		URL: url, Body: `{"n":"{n}"}`, Programmable: true, BodyLimit: 1 << 20, ResponseLimit: 8 << 20,
		Headers:     map[string]string{"Content-Type": "application/json", "Authorization": "Bearer a"},
		OtherCaller: map[string]string{"Authorization": "Bearer b"},
	}
}

func run(t *testing.T, target acceptance.Target) []acceptance.Result {
	t.Helper()
	results, err := acceptance.Run(t.Context(), target, nil)
	if err != nil {
		t.Fatal(err)
	}
	return results
}

// A suite that passes whatever it is pointed at proves nothing.
func runMissingGuard(t *testing.T) {
	t.Parallel()
	s := httptest.NewServer(new(acceptance.Backend))
	defer s.Close()
	nothing := func(context.Context) error { return nil }
	dies, asked := target(s.URL), target(s.URL)
	dies.Restart, dies.StoreDown, dies.StoreUp = nothing, nothing, nothing
	asked.Admin = s.URL
	failed := map[string]int{}
	for _, r := range append(run(t, dies), run(t, asked)...) {
		if !r.Passed && r.Skipped == "" {
			failed[r.Group]++
		}
	}
	for _, group := range []string{"gating", "replay fidelity", "fingerprint", "concurrency", "failure policy", "crash", "scope", "expiry",
		"size and streaming", "store outage", "operations"} {
		if failed[group] == 0 {
			t.Errorf("a bare handler fails no case of %s", group)
		}
	}
}

func runSkipped(t *testing.T) {
	t.Parallel()
	g, err := idempotency.New(new(memory.Keys), idempotency.Config{})
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewServer(g.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, "made") })))
	defer s.Close()
	results, err := acceptance.Run(context.Background(), acceptance.Target{URL: s.URL}, nil)
	if err != nil {
		t.Fatal(err)
	}
	passed, skipped := 0, 0
	for _, r := range results {
		switch {
		case r.Skipped != "":
			skipped++
		case r.Passed:
			passed++
		default:
			t.Errorf("%s: %s: %s", r.Group, r.Name, r.Problem)
		}
	}
	if passed < 25 || skipped < 50 {
		t.Errorf("%d passed and %d skipped", passed, skipped)
	}
}

// The guide for clients knows every problem that they can meet.
func TestGuide(t *testing.T) {
	t.Parallel()
	for _, kind := range idempotency.Kinds() {
		switch kind {
		case idempotency.KindUpstreamFailed: // of requests without a key
			continue
		case idempotency.KindBodyUnreadable, idempotency.KindBodyTooLarge, idempotency.KindBodyTimeout, idempotency.KindUnknownReference:
			continue // they say themselves what to do
		}
		if !strings.Contains(acceptance.Guide, "`"+string(kind)+"`") {
			t.Errorf("the guide does not say what to do about %s", kind)
		}
	}
	if !strings.Contains(acceptance.Guide, idempotency.InstancePath) {
		t.Error("the guide does not say where to ask")
	}
}

//go:build unix

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/idempotency"
	"github.com/keep-run/keep/internal/pgtest"

	"github.com/keep-run/keep/cmd/keep/internal/exit"
)

// keepIn runs keep in a directory and returns its status and what it printed.
func keepIn(t testing.TB, dir string, args ...string) (status int, stdout, stderr string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), buildKeep(t), args...)
	var out, said bytes.Buffer
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = dir, append(os.Environ(), "NO_COLOR=1", "KEEP_PROXY_ADMIN_TOKEN=t"), &out, &said
	err := cmd.Run()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		status = exit.ExitCode()
	} else if err != nil {
		t.Fatal(err)
	}
	return status, out.String(), said.String()
}

// People see and decide about keys beside a running proxy: in its database, through
// its admin API, and through that of keep.toml.
func TestKeysOfARunningProxy(t *testing.T) {
	t.Parallel()
	onBothStores(t, func(t *testing.T, db string) {
		up := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }))
		defer up.Close()
		p := startProxy(t, db, up.URL, "")
		transport := newTransport(t)
		dir := t.TempDir()
		config := "db = 'nothing.db'\n[proxy]\nadmin_token = 't'\nadmin_listen = '" + strings.TrimPrefix(p.admin, "http://") + "'\n"
		if err := os.WriteFile(filepath.Join(dir, "keep.toml"), []byte(config), 0o600); err != nil {
			t.Fatal(err)
		}
		for name, where := range map[string][]string{"database": {"--db", db}, "admin": {"--admin", p.admin}, "keep.toml": nil} {
			keys := func(args ...string) (int, string, string) {
				t.Helper()
				return keepIn(t, dir, append(append([]string{"keys"}, args...), where...)...)
			}
			ask := func(want int, word string) {
				t.Helper()
				if status, body := try(transport, p.url, name); status != want || !strings.Contains(body, word) {
					t.Errorf("%s: the proxy answers %d %s, want %d %s", name, status, body, want, word)
				}
			}
			ask(502, "outcome-unknown") // the upstream hung up
			status, out, said := keys("--json", "--status", "unknown", "--key", name)
			var views []idempotency.View
			if err := json.Unmarshal([]byte(out), &views); status != 0 || err != nil || len(views) != 1 || views[0].Key != name {
				t.Fatalf("%s: list: %d %s%s %v", name, status, out, said, err)
			}
			ref := views[0].Reference
			if status, out, said := keys("resolve", ref, "happened", "--status", "201", "--body", "found", "--header", "X-By: hand", "--content-type", "text/x"); status != 0 {
				t.Errorf("%s: resolve: %d %s%s", name, status, out, said)
			}
			ask(201, "found")
			if status, _, said := keys("resolve", ref, "did-not-happen", "--yes"); status != 1 || !strings.Contains(said, "not unknown") {
				t.Errorf("%s: second resolve: %d %s", name, status, said)
			}
			if status, out, _ := keys("show", ref); status != 0 || !strings.Contains(out, "found") || !strings.Contains(out, "person: ") ||
				!strings.Contains(out, "X-By: hand") || !strings.Contains(out, "Content-Type: text/x") {
				t.Errorf("%s: show: %d %s", name, status, out)
			}
			if status, _, said := keys("forget", ref); status != exit.Misused || !strings.Contains(said, "POST /act") || !strings.Contains(said, "keep keys forget "+ref+" --yes") {
				t.Errorf("%s: forget that nobody confirmed: %d %s", name, status, said)
			}
			if status, _, said := keys("forget", ref, "--yes", "--seen", "1-1"); status != exit.Failed || !strings.Contains(said, "not as it was shown") {
				t.Errorf("%s: forget of another request: %d %s", name, status, said)
			}
			ask(201, "found") // nothing was changed
			if status, _, said := keys("forget", ref, "--yes"); status != 0 || !strings.Contains(said, "is released") {
				t.Errorf("%s: forget: %d %s", name, status, said)
			}
			ask(502, "outcome-unknown") // it ran again
			if status, _, said := keys("show", "key_36aagtdmsnzqbd7rejge7z5zdv"); status != exit.NotFound || !strings.Contains(said, "no idempotency key") {
				t.Errorf("%s: show of a key that is not there: %d %s", name, status, said)
			}
		}
		if status, out, said := keepIn(t, dir, "keys", "--json", "--all", "--admin", p.admin); status != 0 || strings.Count(out, `"reference"`) != 3 {
			t.Errorf("--all: %d %s%s", status, out, said)
		}
		status, out, _ := keepIn(t, dir, "keys", "--json", "--limit", "2", "--admin", p.admin)
		if status != 0 || strings.Count(out, `"reference"`) != 2 {
			t.Errorf("--limit 2: %d %s", status, out)
		}
		p.kill()
		if status, _, said := keepIn(t, dir, "keys", "--admin", p.admin); status != exit.Unreachable || !strings.Contains(said, "no proxy answers") {
			t.Errorf("without a proxy: %d %s", status, said)
		}
		if status, _, said := keepIn(t, dir, "keys", "import", "keep.toml", "--admin", p.admin); status != exit.Misused {
			t.Errorf("import through the admin API: %d %s", status, said)
		}
	})
}

// Rows of platform_idempotency_keys become records that the proxy replays.
func TestImportedKeysAreReplayed(t *testing.T) {
	t.Parallel()
	onBothStores(t, func(t *testing.T, db string) {
		up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(500) }))
		defer up.Close()
		p := startProxy(t, db, up.URL, "[[proxy.routes]]\ncaller = 'header:X-User-Id'")
		rows := filepath.Join(t.TempDir(), "rows.jsonl")
		text := `{"key":"done","user_id":"u","endpoint":"/act","status":"completed","response_status":201,"response_body":{"id":1.10},"created_at":"2026-11-01T00:00:00Z"}
{"key":"lost","user_id":"u","endpoint":"/act","status":"in_progress","created_at":"2026-11-01T00:00:00Z"}
`
		if err := os.WriteFile(rows, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{"2 added, 0 known", "0 added, 2 known"} {
			if status, _, said := keepIn(t, t.TempDir(), "keys", "import", rows, "--ttl", "876000h", "--db", db); status != 0 || !strings.Contains(said, want) {
				t.Errorf("import: %d %s, want %s", status, said, want)
			}
		}
		for k, want := range map[string]struct {
			status int
			word   string
		}{"done": {201, `{"id":1.10}`}, "lost": {409, "outcome-unknown"}} {
			r, err := http.NewRequest("POST", p.url+"/act", strings.NewReader("any"))
			if err != nil {
				t.Fatal(err)
			}
			r.Header.Set("X-User-Id", "u")
			r.Header["x-idempotency-key"] = []string{k}
			resp, err := newTransport(t).RoundTrip(r)
			if err != nil {
				t.Fatal(err)
			}
			var body bytes.Buffer
			_, _ = body.ReadFrom(resp.Body)
			resp.Body.Close()
			if resp.StatusCode != want.status || !strings.Contains(body.String(), want.word) {
				t.Errorf("%s: %d %s, want %d %s", k, resp.StatusCode, &body, want.status, want.word)
			}
		}
	})
}

// The admin socket needs no token and is for its owner alone; an address needs one.
func TestKeysByTheAdminSocket(t *testing.T) {
	t.Parallel()
	up := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }))
	defer up.Close()
	dir := t.TempDir()
	socket := filepath.Join(dir, "admin.sock")
	p := startProxy(t, filepath.Join(dir, "keys.db"), up.URL, "admin_socket = '"+socket+"'")
	try(newTransport(t), p.url, "k")
	if info, err := os.Stat(socket); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the socket: %v, %v", info, err)
	}
	if status, out, said := keepIn(t, dir, "keys", "--json", "--admin", "unix:"+socket); status != 0 || strings.Count(out, `"reference"`) != 1 {
		t.Errorf("by the socket: %d %s%s", status, out, said)
	}
	if err := os.WriteFile(filepath.Join(dir, "keep.toml"), []byte("db = 'nothing.db'\n[proxy]\nadmin_socket = 'admin.sock'\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if status, out, said := keepIn(t, dir, "keys", "--json"); status != 0 || strings.Count(out, `"reference"`) != 1 {
		t.Errorf("by keep.toml: %d %s%s", status, out, said)
	}
	resp, err := http.Get(p.admin + "/api/v1/keys")
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusUnauthorized {
		t.Errorf("without a token: %d", resp.StatusCode)
	}
}

// Proxies that start at once on a new file wait for the one that makes it.
func TestProxiesStartAtOnce(t *testing.T) {
	t.Parallel()
	db := filepath.Join(t.TempDir(), "new.db")
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() { startProxy(t, db, "http://127.0.0.1:1", "") })
	}
	wg.Wait()
}

// A proxy does not work on a copy of its records from before: what they have, it would pass on again.
func TestProxyOnAnOlderCopy(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "keep.db")
	var older []byte
	for range 2 {
		var err error
		if older, err = os.ReadFile(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
		_, end, err := openKeys(t.Context(), path, false)
		if err != nil {
			t.Fatal(err)
		}
		if err := end(); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(path, older, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err := openKeys(t.Context(), path, false); !errors.Is(err, keep.ErrOlderCopy) {
		t.Errorf("an older copy: %v", err)
	}
}

// A command that looks at keys makes nothing where there are none, and says what to do where there is no server.
func TestKeysOfNoPostgres(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	ref := "key_36aagtdmsnzqbd7rejge7z5zdv"
	for _, args := range [][]string{{"keys"}, {"keys", "show", ref}, {"keys", "resolve", ref, "happened"}, {"keys", "forget", ref, "--yes"}} {
		var out, said bytes.Buffer
		if status := run(t.Context(), append(args, "--db", url), &out, &said); status != exit.Unreachable || !strings.Contains(said.String(), "start keep proxy") {
			t.Errorf("%s: %d %s%s", args, status, &out, &said)
		}
	}
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	var made bool
	if err := conn.QueryRow(t.Context(), `SELECT to_regclass('idempotency_key') IS NOT NULL`).Scan(&made); err != nil || made {
		t.Errorf("a table was made: %v, %v", made, err)
	}
	var out, said bytes.Buffer
	status := run(t.Context(), []string{"keys", "--db", "postgres://u:secret@127.0.0.1:1/x"}, &out, &said)
	if text := said.String(); status != exit.Unreachable || !strings.Contains(text, "postgres://u@127.0.0.1:1/x") || !strings.Contains(text, "--db") || strings.Contains(text, "secret") || strings.Contains(text, "migrate") {
		t.Errorf("without a server: %d %s", status, text)
	}
}

// A proxy whose configuration is wrong says all that is wrong with its routes, and makes no database.
func TestProxyWithWrongRoutes(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	config := "db = '" + filepath.Join(dir, "keys.db") + "'\n[proxy]\nupstream = 'http://127.0.0.1:1'\n[[proxy.routes]]\npath = '/a'\ncaller = 'nobody'\n[[proxy.routes]]\npath = '/b'\npolicy = 'perhaps'\n"
	if err := os.WriteFile(filepath.Join(dir, "keep.toml"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	var out, said bytes.Buffer
	status := run(t.Context(), []string{"proxy", "--config", filepath.Join(dir, "keep.toml")}, &out, &said)
	if status != exit.Misused || !strings.Contains(said.String(), `caller "nobody"`) || !strings.Contains(said.String(), `policy "perhaps"`) {
		t.Errorf("%d %s", status, &said)
	}
	if left, err := filepath.Glob(filepath.Join(dir, "keys.db*")); err != nil || len(left) > 0 {
		t.Errorf("left behind: %s, %v", left, err)
	}
}

// A proxy outlives its terminal, as keep serve does, and says that it reads keep.toml at its start alone.
func TestProxyHangup(t *testing.T) {
	t.Parallel()
	did := new(counter)
	up := httptest.NewServer(did)
	defer up.Close()
	p := startProxy(t, filepath.Join(t.TempDir(), "keys.db"), up.URL, "")
	p.signal(t, syscall.SIGHUP)
	if status, body := try(newTransport(t), p.url, "k"); status != 201 {
		t.Errorf("after SIGHUP: %d %s", status, body)
	}
	p.signal(t, syscall.SIGTERM)
	if said := <-p.said; !strings.Contains(said, "SIGHUP") {
		t.Errorf("it said: %s", said)
	}
	if err := p.cmd.Wait(); err != nil {
		t.Errorf("the proxy ended with %v", err)
	}
}

//go:build unix

package main

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/keep-run/keep/api"
	"github.com/keep-run/keep/cmd/keep/internal/exit"
)

// reloadScript reads from a service each time that it is asked to.
const reloadScript = `export default Keep.workflow({
  name: "reader", topics: {},
  producers: { async read(ctx) { ctx.log("read", (await ctx.svc.read({})).v); } },
});`

const reloadConfig = `[connections.svc]
connector = "http"
base_url  = "URL"
headers   = { Authorization = "Bearer ${secret:svc}" }
[connections.svc.tools.read]
effect = "get"
method = "GET"
path   = "/v1"
`

// serveIn runs keep serve on the project in a directory until the test ends.
func serveIn(t *testing.T, dir string, args ...string) *listener {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	said := newListener()
	var wg sync.WaitGroup
	var status int
	wg.Go(func() { status = run(ctx, append([]string{"serve", dir}, args...), io.Discard, said) })
	t.Cleanup(func() {
		cancel()
		wg.Wait()
		if status != exit.Done {
			t.Errorf("serve ended with status %d", status)
		}
	})
	return said
}

// serveProcessIn runs keep serve on the project in a directory, as a process of its own,
// until the test ends.
func serveProcessIn(t *testing.T, dir string, args ...string) (*listener, *os.Process) {
	t.Helper()
	said := newListener()
	cmd := exec.Command(buildKeep(t), append([]string{"serve", dir}, args...)...)
	cmd.Stderr = said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Error(err)
		}
		if err := cmd.Wait(); err != nil {
			t.Errorf("serve ended with %v", err)
		}
	})
	return said, cmd.Process
}

// A running host takes a change of keep.toml or of a secret, whole or not at all, when the
// files change and at SIGHUP, and says what it did.
func TestReload(t *testing.T) {
	buildKeep(t) // before the cache of go build is another one
	t.Setenv("XDG_CACHE_HOME", cacheHome(t))
	requests := make(chan string, 100)
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests <- r.URL.Path + " " + r.Header.Get("Authorization")
		w.Header().Set("Content-Type", "application/json")
		io.WriteString(w, `{"v": 1}`)
	}))
	defer service.Close()
	dir := shortDir(t)
	write := func(name, text string) {
		t.Helper()
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file+".new", []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(file+".new", file); err != nil {
			t.Fatal(err)
		}
	}
	settings := strings.Replace(reloadConfig, "URL", service.URL, 1)
	write("keep.toml", settings)
	write("reader.js", reloadScript)
	write(".secrets/svc", "one")
	said, process := serveProcessIn(t, dir, "--listen", "127.0.0.1:0")
	hangup := func() {
		t.Helper()
		if err := process.Signal(syscall.SIGHUP); err != nil {
			t.Fatal(err)
		}
	}
	said.wait(t, "Serving 1 workflow")
	t.Chdir(dir)
	wants := func(want string) {
		t.Helper()
		for { // the run before it may not have ended yet
			var said strings.Builder
			status := run(t.Context(), []string{"trigger", "reader"}, io.Discard, &said)
			if status == exit.Done {
				break
			}
			if !strings.Contains(said.String(), "unfinished run") {
				t.Fatalf("trigger: status %d\n%s", status, said.String())
			}
		}
		for {
			select {
			case got := <-requests:
				if got == want {
					return
				}
			case <-t.Context().Done():
				t.Fatalf("the service never got %q", want)
			}
		}
	}
	refused := func() string {
		t.Helper()
		var s api.Status
		if err := json.Unmarshal([]byte(outputOf(t, "status", "--json")), &s); err != nil || s.Config == nil {
			t.Fatalf("keep status has no config: %v", err)
		}
		if s.Config.Refused == nil {
			return ""
		}
		return s.Config.Refused.Reason
	}
	wants("/v1 Bearer one")
	hangup()
	said.wait(t, "configuration taken")
	write(".secrets/svc", "two")
	said.wait(t, "configuration taken")
	wants("/v1 Bearer two")

	write("keep.toml", strings.Replace(settings, "/v1", "/v2", 1))
	said.wait(t, "configuration taken")
	wants("/v2 Bearer two")
	if why := refused(); why != "" {
		t.Errorf("refused: %s", why)
	}

	// Of a change with a mistake nothing is taken: neither the new path nor the new secret.
	write("keep.toml", strings.NewReplacer(`effect = "get"`, `effect = "gte"`, "/v1", "/v3", "secret:svc", "secret:new").Replace(settings))
	said.wait(t, "configuration refused")
	hangup()
	said.wait(t, "configuration refused")
	if why := refused(); !strings.Contains(why, "keep.toml:6:") {
		t.Errorf("status says %q, want the line", why)
	}
	if text := outputOf(t, "status"); !strings.Contains(text, "Configuration: 1\n  refused, and what was before is in force: ") || !strings.Contains(text, "keep.toml:6:") {
		t.Errorf("keep status says nothing of it:\n%s", text)
	}
	if status := run(t.Context(), []string{"status", "--exit-code"}, io.Discard, io.Discard); status != exit.Failed {
		t.Errorf("keep status --exit-code: %d, want %d", status, exit.Failed)
	}
	wants("/v2 Bearer two")

	write("keep.toml", "[policy]\nbreaker = { failures = 3 }\n"+settings)
	said.wait(t, "configuration taken")
	write("keep.toml", "[policy]\noutage = { after = 9 }\n"+settings)
	said.wait(t, "a change of [policy] needs a restart")
	write("keep.toml", "db = \"other.db\"\n"+settings)
	said.wait(t, "a change of db needs a restart")
	write("keep.toml", settings)
	said.wait(t, "configuration taken")
	wants("/v1 Bearer two")
	if why := refused(); why != "" {
		t.Errorf("still refused: %s", why)
	}
}

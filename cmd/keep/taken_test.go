//go:build unix

package main

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/keep-run/keep/api"
	"github.com/keep-run/keep/cmd/keep/internal/exit"
)

// TestConfigTakesNoToolThatIsCalled renames a connection, and takes it away, under a running host: what a version in
// force calls stays, under the name by which it calls it.
func TestConfigTakesNoToolThatIsCalled(t *testing.T) {
	buildKeep(t) // before the cache of go build is another one
	t.Setenv("XDG_CACHE_HOME", cacheHome(t))
	requests := make(chan string, 100)
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests <- r.URL.Path
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
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	settings := strings.Replace(reloadConfig, "URL", service.URL, 1) + "[grants.reader]\ntools = [\"svc.*\"]\n"
	renamed := strings.NewReplacer("connections.svc", "connections.api", "svc.*", "api.*").Replace(settings)
	said := strings.Replace(renamed, "connector =", "was = \"svc\"\nconnector =", 1)
	write("keep.toml", settings)
	write("reader.js", reloadScript)
	write(".secrets/svc", "one")
	serve, _ := serveProcessIn(t, dir, "--listen", "127.0.0.1:0")
	serve.wait(t, "Serving 1 workflow")
	t.Chdir(dir)
	works := func(path string) {
		t.Helper()
		for {
			var said bytes.Buffer
			if status := run(t.Context(), []string{"trigger", "reader"}, io.Discard, &said); status == exit.Done {
				break
			} else if !strings.Contains(said.String(), "unfinished run") {
				t.Fatalf("trigger: status %d\n%s", status, said.String())
			}
		}
		for got := ""; got != path; {
			select {
			case got = <-requests:
			case <-t.Context().Done():
				t.Fatalf("the service never got %q", path)
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

	write("keep.toml", renamed)
	serve.wait(t, "configuration refused")
	for _, want := range []string{"workflow reader", "svc.read", `was = "svc"`} {
		if got := refused(); !strings.Contains(got, want) {
			t.Errorf("refused is %q, want %q in it", got, want)
		}
	}
	works("/v1")

	// With was the version in force continues, and one that knows the new name can be deployed.
	write("keep.toml", strings.Replace(said, "/v1", "/v2", 1))
	serve.wait(t, "configuration taken")
	works("/v2")
	if got := outputOf(t, "check", "."); !strings.Contains(got, "svc.read is called api.read today") {
		t.Errorf("check says nothing of the new name:\n%s", got)
	}
	write("keep.toml", strings.Replace(renamed, "/v1", "/v2", 1))
	serve.wait(t, "configuration refused")
	write("keep.toml", strings.Replace(said, "/v1", "/v3", 1))
	serve.wait(t, "configuration taken")

	// A tool may go once nobody calls it, which the host notices itself.
	write("keep.toml", strings.Replace(strings.Replace(said, "tools.read", "tools.see", 1), "/v1", "/v4", 1))
	serve.wait(t, "configuration refused")
	if got := refused(); !strings.Contains(got, "that tool") {
		t.Errorf("refused is %q, want the tool", got)
	}
	write("reader.js", strings.Replace(reloadScript, `ctx.log("read", (await ctx.svc.read({})).v);`, `ctx.log("nothing");`, 1))
	if status := run(t.Context(), []string{"deploy", "reader.js"}, io.Discard, io.Discard); status != exit.Done {
		t.Fatalf("deploy: status %d", status)
	}
	serve.wait(t, "configuration taken")
	if got := refused(); got != "" {
		t.Errorf("still refused: %s", got)
	}
}

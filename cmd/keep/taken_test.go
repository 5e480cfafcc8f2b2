//go:build unix

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

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

	// A script that goes by what was refused is told so, and not only that there is no such connection.
	write("next.js", strings.Replace(reloadScript, "ctx.svc", "ctx.api", 1))
	var why bytes.Buffer
	if status := run(t.Context(), []string{"deploy", "next.js"}, io.Discard, &why); status != exit.Misused || !strings.Contains(why.String(), `there is no connection "api"`) ||
		!strings.Contains(why.String(), "keep.toml as it is now is refused") || !strings.Contains(why.String(), "svc.read, which is gone") {
		t.Errorf("deploy of what calls a connection that was refused: status %d\n%s", status, why.String())
	}
	if err := os.Remove(filepath.Join(dir, "next.js")); err != nil {
		t.Fatal(err)
	}

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

// TestServeDoesNotStartWithoutATool starts a host whose keep.toml lacks a connection that a version in force calls: that is
// refused as a running host refuses it, unless the workflow is paused.
func TestServeDoesNotStartWithoutATool(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", cacheHome(t))
	dir := shortDir(t)
	t.Chdir(dir)
	write := func(name, text string) {
		t.Helper()
		file := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o700), os.WriteFile(file, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	write("keep.toml", strings.Replace(reloadConfig, "URL", "http://127.0.0.1:1", 1))
	write("reader.js", reloadScript)
	write(".secrets/svc", "one")
	outputOf(t, "deploy", "reader.js")
	write("keep.toml", strings.NewReplacer("URL", "http://127.0.0.1:1", "connections.svc", "connections.api").Replace(reloadConfig))
	if err := os.Remove("reader.js"); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second) // one that is not refused serves on
	defer cancel()
	var said bytes.Buffer
	if status := run(ctx, []string{"serve", "--listen", "off"}, io.Discard, &said); status != exit.Misused {
		t.Errorf("serve ended with status %d", status)
	}
	for _, want := range []string{"workflow reader", "svc.read, which is gone", `was = "svc"`, "keep pause reader"} {
		if !strings.Contains(said.String(), want) {
			t.Errorf("serve says nothing of %q:\n%s", want, said.String())
		}
	}
	outputOf(t, "pause", "reader")
	write("quiet.js", `export default Keep.workflow({ name: "quiet", topics: {}, producers: { async q() {} } });`)
	serve, _ := serveProcessIn(t, dir, "--listen", "off")
	serve.wait(t, "Serving 2 workflows")
}

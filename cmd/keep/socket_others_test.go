//go:build unix

package main

import (
	"bytes"
	"encoding/json"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/keep-run/keep/cmd/keep/internal/daemon"
	"github.com/keep-run/keep/cmd/keep/internal/exit"
)

// A socket that others can open may be of somebody else, who takes the place of the host: nothing is sent to it.
func TestSocketOfOthersGetsNothing(t *testing.T) {
	dir := shortDir(t)
	t.Chdir(dir)
	put(t, dir, "keep.toml", "db = \"keep.db\"\n")
	put(t, dir, "keep.db", "")
	file := filepath.Join(dir, "keep.db")
	l, err := net.Listen("unix", file+".sock")
	noError(t, err)
	noError(t, os.Chmod(file+".sock", 0o666))
	var asked atomic.Int64
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		if r.URL.Path == daemon.IdentityPath {
			_ = json.NewEncoder(w).Encode(daemon.Identity{Version: "1", DB: file, PID: 1})
		}
	}))
	s.Listener.Close()
	s.Listener = l
	s.Start()
	defer s.Close()
	var out, talk bytes.Buffer
	if status := run(t.Context(), []string{"api", "POST", "/workflows/w/pause", `{"note": "private"}`}, &out, &talk); status != exit.Unreachable || asked.Load() != 0 {
		t.Errorf("status %d, want %d; %d requests, want none\n%s%s", status, exit.Unreachable, asked.Load(), out.String(), talk.String())
	}
}

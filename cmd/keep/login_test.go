package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/keep-run/keep/cmd/keep/internal/config"
	"github.com/keep-run/keep/cmd/keep/internal/daemon"
	"github.com/keep-run/keep/cmd/keep/internal/exit"
)

// A link to log in leads to where a browser on this machine finds the host.
func TestBaseOf(t *testing.T) {
	for _, tt := range []struct {
		server config.Server
		want   string
	}{
		{config.Server{}, "http://" + daemon.DefaultListen},
		{config.Server{Listen: "127.0.0.1:9"}, "http://127.0.0.1:9"},
		{config.Server{Listen: ":9"}, "http://localhost:9"},
		{config.Server{Listen: "0.0.0.0:9", TLSCert: "c"}, "https://localhost:9"},
		{config.Server{Listen: "[::]:9"}, "http://localhost:9"},
		{config.Server{Listen: ":9", URL: "https://keep.example.com"}, "https://keep.example.com"},
	} {
		if got := baseOf(tt.server); got != tt.want {
			t.Errorf("%+v: %s, want %s", tt.server, got, tt.want)
		}
	}
}

// There is no link to pages that the configuration turns off.
func TestNoLinkWhereListenIsOff(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "keep.toml"), []byte("[server]\nlisten = \"off\"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Chdir(dir)
	var out, talk bytes.Buffer
	a := newApp(&out, &talk)
	root := a.root()
	root.SetArgs([]string{"login"})
	cmd, err := root.ExecuteContextC(t.Context())
	if status := a.finish(cmd, err); status != exit.Failed || out.Len() > 0 || !strings.Contains(talk.String(), "nobody serves the pages") {
		t.Errorf("keep login: status %d, %s%s", status, out.String(), talk.String())
	}
}

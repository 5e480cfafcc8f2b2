package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/keep-run/keep/cmd/keep/internal/exit"
)

// Ctrl-C at the question of keep prove ends it at once, and nothing is sent.
func TestProveQuestionEndsByCtrlC(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	put(t, dir, "keep.toml", "[connections.out]\nconnector = \"log\"\npath = \"out.log\"\n")
	cmd := exec.CommandContext(t.Context(), buildKeep(t), "prove", "out.write", "--params", `{"text":"{n}"}`)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "TERM=xterm", "XDG_CACHE_HOME="+cacheHome(t))
	s := onScreen(t, cmd)
	s.sees("Write yes: ")
	s.types("\x03")
	s.sees("nothing was sent")
	if status := s.ends(); status != exit.Failed {
		t.Errorf("status %d, want %d", status, exit.Failed)
	}
	if _, err := os.Stat(filepath.Join(dir, "out.log")); err == nil {
		t.Error("something was sent")
	}
}

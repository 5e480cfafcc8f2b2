package main

import (
	"os/exec"
	"strings"
	"testing"
)

// What somebody wrote does not move the cursor of who reads an answer of the API.
func TestAPIOnAScreen(t *testing.T) {
	d := newServing(t)
	d.start()
	d.keep("pause", "w", "--note", "a\u009b2J\u202eb")
	cmd := exec.CommandContext(t.Context(), d.bin, "api", "GET", "/workflows/w")
	cmd.Dir, cmd.Env = d.dir, d.env
	s := onScreen(t, cmd)
	s.sees(`"intent"`)
	if status := s.ends(); status != 0 || strings.ContainsAny(s.shown.String(), "\u009b\u202e") || !strings.Contains(s.shown.String(), `\u202e`) {
		t.Errorf("status %d, the screen shows %q", status, s.shown.String())
	}
}

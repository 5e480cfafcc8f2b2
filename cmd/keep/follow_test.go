//go:build unix

package main

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/keep-run/keep/cmd/keep/internal/exit"
)

// A list that is followed prints what is there and then what comes, one object a line, beside
// a host and without one, and ends well when it is interrupted.
func TestFollow(t *testing.T) {
	bin := buildKeep(t) // before the cache of go build is another one
	t.Setenv("XDG_CACHE_HOME", cacheHome(t))
	dir := shortDir(t)
	for _, args := range [][]string{{"init", dir}, {"run", dir}} {
		if status := run(t.Context(), args, io.Discard, t.Output()); status != exit.Done {
			t.Fatalf("keep %v: status %d", args, status)
		}
	}
	t.Chdir(dir)
	look := func(name string, served bool) {
		out := newListener()
		cmd := exec.Command(bin, "events", "--follow", "--json", "--limit", "3")
		cmd.Stdout, cmd.Stderr = out, t.Output()
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := cmd.Process.Signal(os.Interrupt); err != nil {
				t.Error(err)
			}
			if err := cmd.Wait(); err != nil {
				t.Errorf("interrupted, it ends with %v", err)
			}
		}()
		out.wait(t, `"message_id":"hello.txt"`)
		if err := os.WriteFile(filepath.Join("inbox", name), []byte("new"), 0o644); err != nil {
			t.Fatal(err)
		}
		args := []string{"run", "."}
		if served {
			args = []string{"trigger", "journal", "look"}
		}
		if status := run(t.Context(), args, io.Discard, t.Output()); status != exit.Done {
			t.Fatalf("keep %v: status %d", args, status)
		}
		out.wait(t, `"message_id":"`+name+`"`)
		out.wait(t, "\n")
		out.mu.Lock()
		defer out.mu.Unlock()
		for line := range bytes.Lines(out.said) {
			if !json.Valid(line) {
				t.Errorf("a line is no object: %s", line)
			}
		}
	}
	look("alone.txt", false)
	said, _ := serveProcessIn(t, dir, "--listen", "off")
	said.wait(t, "Serving 1 workflow")
	look("served.txt", true)
}

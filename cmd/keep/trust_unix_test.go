//go:build unix

package main

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/keep-run/keep/cmd/keep/internal/config"
	"github.com/keep-run/keep/cmd/keep/internal/exit"
	"github.com/keep-run/keep/cmd/keep/internal/trust"
)

// A keep.toml that was found, and that somebody else may have written, is refused with
// the command that allows it.
func TestTrust(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", cacheHome(t))
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	root := t.TempDir()
	if err := os.Chmod(root, 0o755); err != nil {
		t.Fatal(err)
	}
	below := filepath.Join(root, "below")
	if status := run(t.Context(), []string{"init", below}, io.Discard, io.Discard); status != exit.Done {
		t.Fatalf("init: status %d", status)
	}
	file := filepath.Join(root, config.Name)
	if err := os.Rename(filepath.Join(below, config.Name), file); err != nil {
		t.Fatal(err)
	}
	check := func(want int) string {
		t.Helper()
		var messages bytes.Buffer
		if status := run(t.Context(), []string{"check", below}, io.Discard, &messages); status != want {
			t.Errorf("keep check: status %d, want %d\n%s", status, want, messages.String())
		}
		return messages.String()
	}
	refused := func(why string) {
		t.Helper()
		if said := check(exit.Misused); !strings.Contains(said, why) || !strings.Contains(said, "keep trust "+root) {
			t.Errorf("keep check says %q, want %q and the command that allows it", said, why)
		}
	}
	chmod := func(name string, mode os.FileMode) {
		t.Helper()
		if err := os.Chmod(name, mode); err != nil {
			t.Fatal(err)
		}
	}
	check(exit.Done) // its own
	chmod(file, 0o666)
	refused("everybody may write " + file)
	t.Chdir(below)
	var said bytes.Buffer
	if status := run(t.Context(), []string{"status", "--db", filepath.Join(root, "keep.db")}, io.Discard, &said); status != exit.Misused || strings.Contains(said.String(), "With --db FILE") {
		t.Errorf("keep status --db: status %d, and it says what does not help: %s", status, said.String())
	}
	chmod(file, 0o664)
	chmod(root, 0o775)
	check(exit.Done) // the group of files is this user's own
	if os.Geteuid() == 0 {
		for _, name := range []string{file, root} {
			if err := os.Chown(name, -1, 12345); err != nil {
				t.Fatal(err)
			}
			refused("the group 12345 may write " + name)
			if err := os.Chown(name, -1, 0); err != nil {
				t.Fatal(err)
			}
		}
	}
	chmod(file, 0o644)
	chmod(root, 0o1777)
	refused("everybody may write " + root)
	t.Setenv("KEEP_TRUST", root)
	check(exit.Done)
	t.Setenv("KEEP_TRUST", "")
	if os.Geteuid() == 0 {
		chmod(root, 0o755)
		if err := os.Chown(file, 12345, -1); err != nil {
			t.Fatal(err)
		}
		refused("belongs to another user (uid 12345)")
	}
	if status := run(t.Context(), []string{"trust", root}, io.Discard, io.Discard); status != exit.Done {
		t.Errorf("keep trust: status %d", status)
	}
	check(exit.Done)
	if status := run(t.Context(), []string{"--config", file, "check", below}, io.Discard, io.Discard); status != exit.Done {
		t.Errorf("keep --config: status %d", status)
	}
}

// The list has a directory on each line: one with blanks is trusted, and nothing that is a part of it, and one that would be two lines is refused.
// The command that is shown takes it as one.
func TestTrustInBlanks(t *testing.T) {
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	for name, refused := range map[string]bool{"a b": false, "a\u00a0b": false, "a\u2028b": false, "it's": false, "a\rb": true, "a\nb": true, "a\r": true} {
		dir := filepath.Join(t.TempDir(), name)
		file := filepath.Join(dir, config.Name)
		for _, err := range []error{os.Mkdir(dir, 0o700), os.WriteFile(file, nil, 0o600), os.Chmod(file, 0o666)} {
			if err != nil {
				t.Fatal(err)
			}
		}
		command := "keep trust '" + strings.ReplaceAll(dir, "'", `'\''`) + "'"
		if err := trust.Check(file); err == nil || !strings.HasSuffix(err.Error(), command) {
			t.Errorf("%q: %v, want the command %s", dir, err, command)
		}
		_, err := trust.Add(dir)
		if (err != nil) != refused || (trust.Check(file) != nil) != refused {
			t.Errorf("%q is allowed: %v, and trusted: %v, want it to be refused: %t", dir, err, trust.Check(file), refused)
		}
	}
	all, err := trust.List()
	if err != nil || len(all) != 4 {
		t.Errorf("the list has %q (%v), want the four that were allowed", all, err)
	}
}

// A keep.toml in or above a directory of KEEP_CEILING is not looked at from below.
func TestCeiling(t *testing.T) {
	root := t.TempDir()
	if err := os.WriteFile(filepath.Join(root, config.Name), []byte("broken"), 0o600); err != nil {
		t.Fatal(err)
	}
	below := filepath.Join(root, "below")
	if err := os.Mkdir(below, 0o700); err != nil {
		t.Fatal(err)
	}
	if config.Find(below) == "" {
		t.Error("the keep.toml above was not found")
	}
	t.Setenv(config.Ceiling, root)
	if got := config.Find(below); got != "" {
		t.Errorf("Find = %q, beyond the ceiling", got)
	}
	if config.Find(root) == "" {
		t.Error("the keep.toml in the directory itself was not found")
	}
}

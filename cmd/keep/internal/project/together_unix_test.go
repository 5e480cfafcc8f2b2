//go:build unix

package project_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/keep-run/keep/cmd/keep/internal/project"
	"github.com/keep-run/keep/cmd/keep/internal/trust"
)

// What another user left in a directory that all may write, such as /tmp, replaces no script of this one. Law: permitted.
func TestEditOfAnotherUser(t *testing.T) {
	s := newScripts(t)
	s.save(".keep-pending.json", `[{"name": "a.js", "text": "theirs"}]`)
	pending := filepath.Join(s.dir, ".keep-pending.json")
	if err := os.Chown(pending, 54321, -1); err != nil {
		t.Skipf("a file cannot be given to another user: %v", err)
	}
	err := project.FinishWrites(s.dir)
	if _, refused := errors.AsType[*trust.Error](err); !refused {
		t.Errorf("FinishWrites: %v", err)
	}
	if text, err := os.ReadFile(filepath.Join(s.dir, "a.js")); err != nil || string(text) != "a" {
		t.Errorf("the script is %q, %v", text, err)
	}
}

// A file that is replaced keeps its mode, and until then nobody else reads its new text. Law: permitted.
func TestWriteTogetherKeepsModes(t *testing.T) {
	s := newScripts(t)
	modes := map[string]os.FileMode{"a.js": 0o600, "lib/b.js": 0o777} // one that no umask leaves
	for name, mode := range modes {
		if err := os.Chmod(filepath.Join(s.dir, name), mode); err != nil {
			t.Fatal(err)
		}
	}
	mode := func(name string) os.FileMode {
		t.Helper()
		info, err := os.Stat(filepath.Join(s.dir, name))
		if err != nil {
			t.Fatal(err)
		}
		return info.Mode().Perm()
	}
	err := project.WriteTogether(s.dir, s.edit, func() error {
		if got := mode(".keep-pending.json"); got&0o077 != 0 {
			t.Errorf("others may read what is to be written: %v", got)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	s.has("A B C")
	for name, want := range modes {
		if got := mode(name); got != want {
			t.Errorf("%s has the mode %v, want %v", name, got, want)
		}
	}
}

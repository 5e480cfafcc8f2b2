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

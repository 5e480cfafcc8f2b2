//go:build unix

package project_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/keep-run/keep/cmd/keep/internal/project"
)

// Scripts in a directory that cannot be read are not left out without a word; what is no directory has none.
func TestUnreadableDirectory(t *testing.T) {
	dir := t.TempDir()
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
	open := func() (*project.Project, error) {
		t.Helper()
		return (&project.Flags{Config: filepath.Join(dir, "keep.toml")}).OpenProject(dir)
	}
	write("keep.toml", `workflows = ["*/*.js"]`)
	write("a/one.js", "export default 1")
	if err := os.Symlink("nowhere", filepath.Join(dir, "dangling")); err != nil {
		t.Fatal(err)
	}
	if p, err := open(); err != nil || strings.Join(p.Files(), " ") != "a/one.js" {
		t.Fatalf("files of %+v, %v", p, err)
	}
	// A link to itself cannot be read by root, either.
	if err := os.Symlink("b", filepath.Join(dir, "b")); err != nil {
		t.Fatal(err)
	}
	if _, err := open(); err == nil || !strings.Contains(err.Error(), `workflows: "*/*.js"`) || !strings.Contains(err.Error(), "b: ") {
		t.Errorf("a directory that cannot be read is left out: %v", err)
	}
	// So it is if the file in it has a name without wildcards; a name that nothing has is none.
	for pattern, unread := range map[string]bool{"b/one.js": true, "b/*.js": true, "a/two.js": false, "c/one.js": false, "a/one.js/x.js": false} {
		write("keep.toml", fmt.Sprintf("workflows = [\"a/*.js\", %q]", pattern))
		if _, err := open(); (err != nil) != unread || unread && !strings.Contains(err.Error(), fmt.Sprintf("workflows: %q", pattern)) {
			t.Errorf("%s: %v", pattern, err)
		}
	}
}

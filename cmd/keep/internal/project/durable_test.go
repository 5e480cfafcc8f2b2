package project

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// A directory that an edit makes is on disk before the list of what is to be written is forgotten: after a power loss the
// files in it would be gone otherwise.
func TestMadeDirectoriesAreDurable(t *testing.T) {
	dir := t.TempDir()
	var synced []string // while the files are still to be written
	onSync = func(name string) {
		if _, err := os.Stat(filepath.Join(dir, pendingName)); err == nil {
			synced = append(synced, name)
		}
	}
	defer func() { onSync = func(string) {} }()
	files := []File{{Name: "lib/more/c.js", Text: "c"}}
	if err := WriteTogether(dir, files, func() error { return nil }); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{".", "lib", "lib/more"} {
		if !slices.Contains(synced, want) {
			t.Errorf("the names in %q are not on disk before the list is forgotten; those in %q are", want, synced)
		}
	}
}

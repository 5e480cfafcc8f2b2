//go:build unix

package trust

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// A keep.toml that is a link is in two directories: packs and secrets are looked for where the link is. Law: permitted.
func TestLinkInASharedDirectory(t *testing.T) {
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	own, shared := t.TempDir(), t.TempDir()
	file, link := filepath.Join(own, "keep.toml"), filepath.Join(shared, "keep.toml")
	for _, err := range []error{os.Chmod(own, 0o700), os.WriteFile(file, nil, 0o600), os.Symlink(file, link), os.Chmod(shared, 0o700)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := Check(link); err != nil {
		t.Errorf("a link in a directory of the user: %v", err)
	}
	if err := os.Chmod(shared, 0o1777); err != nil {
		t.Fatal(err)
	}
	if e, refused := errors.AsType[*Error](Check(link)); !refused || filepath.Base(filepath.Dir(e.File)) != filepath.Base(shared) {
		t.Errorf("a link in a directory of all: %v", e)
	}
	t.Setenv(Variable, shared)
	if err := Check(link); err != nil {
		t.Errorf("a link in a directory that is trusted: %v", err)
	}
}

// Packs and pairings say where secrets are sent: one that others may write, or put there, is refused as the file is.
func TestPacksOfOthers(t *testing.T) {
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	for _, library := range []string{"packs", "pairings"} {
		dir := t.TempDir()
		file, below := filepath.Join(dir, "keep.toml"), filepath.Join(dir, library)
		pack := filepath.Join(below, "crm.toml")
		for _, err := range []error{os.WriteFile(file, nil, 0o600), os.Mkdir(below, 0o700), os.WriteFile(pack, nil, 0o600)} {
			if err != nil {
				t.Fatal(err)
			}
		}
		refused := func(name string, mode os.FileMode) {
			t.Helper()
			if err := Check(file); err != nil {
				t.Errorf("its own: %v", err)
			}
			if err := os.Chmod(name, mode); err != nil {
				t.Fatal(err)
			}
			if err := Check(file); err == nil || !strings.Contains(err.Error(), "everybody may write "+name) || !strings.HasSuffix(err.Error(), "keep trust "+dir) {
				t.Errorf("everybody may write %s: %v", name, err)
			}
			t.Setenv(Variable, dir)
			if err := Check(file); err != nil {
				t.Errorf("one that is allowed: %v", err)
			}
			t.Setenv(Variable, "")
			if err := os.Chmod(name, mode&^0o022); err != nil {
				t.Fatal(err)
			}
		}
		refused(below, 0o777)
		refused(pack, 0o666)
	}
}

// What is allowed counts, also if the list was written by hand, and what cannot count is refused.
func TestAdd(t *testing.T) {
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	t.Setenv("HOME", t.TempDir())
	name, err := file()
	a, b := t.TempDir(), t.TempDir()
	if err := errors.Join(err, os.MkdirAll(filepath.Dir(name), 0o700), os.WriteFile(name, []byte(a), 0o600)); err != nil {
		t.Fatal(err)
	}
	got, err := Add(b)
	if err != nil {
		t.Fatal(err)
	}
	if all, err := List(); err != nil || !slices.Equal(all, []string{a, got}) {
		t.Errorf("the list has %q, %v, want %q and %q", all, err, a, got)
	}
	if dir, err := Add(name); err == nil {
		t.Errorf("a file is trusted: %s", dir)
	}
	if dir, err := Add(filepath.Join(b, "none")); err == nil || !strings.Contains(err.Error(), "there is no directory") {
		t.Errorf("what is not there is trusted: %s, %v", dir, err)
	}
}

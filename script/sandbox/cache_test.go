package sandbox_test

import (
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/keep-run/keep/internal/ceiling"
	"github.com/keep-run/keep/script/sandbox"
)

// A cache that is damaged, or that cannot be used at all, must not keep the
// scripts from running.
func TestDamagedCacheIsReplaced(t *testing.T) {
	ceiling.Need(t) // it compiles the engine four times
	dir := t.TempDir()
	open := func(t *testing.T, dir string) {
		t.Helper()
		rt, err := sandbox.Open(context.Background(), sandbox.Config{CacheDir: dir})
		if err != nil {
			t.Fatalf("Open: %v", err)
		}
		defer rt.Close()
		if got := eval(t, rt, "return 1 + 1"); got != "2" {
			t.Errorf("1 + 1 = %s, want 2", got)
		}
	}
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	open(t, file) // not a directory
	open(t, dir)
	for name, damage := range map[string]func([]byte) []byte{
		"cut":       func(b []byte) []byte { return b[:len(b)/2] },
		"last byte": func(b []byte) []byte { b[len(b)-1] ^= 0xff; return b },
	} {
		n := 0
		err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			b, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			n++
			return os.WriteFile(path, damage(b), 0o600)
		})
		if err != nil || n == 0 {
			t.Fatalf("%s: %d files damaged, %v", name, n, err)
		}
		t.Run(name, func(t *testing.T) { open(t, dir) })
	}
}

package seal_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/keep-run/keep/host/account/seal"
)

// A copy of the old key that a killed process left goes when the key is replaced, whatever characters the name of the
// directory has; a young one may be about to be used.
func TestReplaceLeavesNoOldKey(t *testing.T) {
	for _, name := range []string{"project", "project [2]", "project [2", `a*b?`} {
		dir := filepath.Join(t.TempDir(), name)
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Skipf("no directory can be called %q here: %v", name, err)
		}
		old, young := filepath.Join(dir, ".keep.key-1"), filepath.Join(dir, ".keep.key-2")
		for _, file := range []string{old, young} {
			if err := os.WriteFile(file, nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		now := time.Now()
		if err := os.Chtimes(old, now, now.Add(-time.Hour)); err != nil {
			t.Fatal(err)
		}
		r := seal.Ring{Path: filepath.Join(dir, "keep.key")}
		if _, err := r.Make(); err != nil {
			t.Fatal(err)
		}
		k, err := r.Next()
		if err != nil {
			t.Fatal(err)
		}
		if err := r.Replace(k, now); err != nil {
			t.Errorf("in %q: %v", name, err)
		}
		if _, err := os.Lstat(old); !os.IsNotExist(err) {
			t.Errorf("in %q the old copy is there still: %v", name, err)
		}
		if _, err := os.Lstat(young); err != nil {
			t.Errorf("in %q the young one: %v", name, err)
		}
	}
}

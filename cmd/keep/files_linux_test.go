package main

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// mknod makes a device like /dev/null.
func mknod(path string) error { return syscall.Mknod(path, syscall.S_IFCHR|0o600, 1<<8|3) }

// bindMount mounts the file of the database at another path, which root may.
func bindMount(t *testing.T, w *crashWorld) string {
	other := filepath.Join(t.TempDir(), "other.db")
	noError(t, os.WriteFile(other, nil, 0o600))
	if err := syscall.Mount(filepath.Join(w.dir, "keep.db"), other, "", syscall.MS_BIND, ""); err != nil {
		t.Skipf("mount: %v", err)
	}
	t.Cleanup(func() { _ = syscall.Unmount(other, syscall.MNT_DETACH) })
	return other
}

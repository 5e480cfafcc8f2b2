package proxy

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"
)

// What is no socket is not replaced by one: a name that is wrong by a letter may be that of the database.
func TestSocketReplacesNoFile(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		t.Skip("Windows has no such sockets")
	}
	file := filepath.Join(t.TempDir(), "keep.db")
	if err := os.WriteFile(file, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	if l, err := bindSocket(t.Context(), file); err == nil {
		t.Errorf("it listens at %s", l.Addr())
	}
	if text, err := os.ReadFile(file); err != nil || string(text) != "mine" {
		t.Errorf("the file has %q, %v", text, err)
	}
}

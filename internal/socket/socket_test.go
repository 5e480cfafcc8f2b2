package socket_test

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/keep-run/keep/internal/socket"
)

// What is no socket is not replaced by one: a name that is wrong by a letter may be that of the database.
func TestListenReplacesNoFile(t *testing.T) {
	file := place(t)
	if err := os.WriteFile(file, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	if l, err := socket.Listen(t.Context(), file); err == nil {
		t.Errorf("it listens at %s", l.Addr())
	}
	if text, err := os.ReadFile(file); err != nil || string(text) != "mine" {
		t.Errorf("the file has %q, %v", text, err)
	}
}

// A socket is its owner's alone, replaces one that was left, and goes with the listener, closed twice or not.
func TestListen(t *testing.T) {
	path := place(t)
	left, err := socket.Listen(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	l, err := socket.Listen(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Lstat(path); err != nil || info.Mode() != fs.ModeSocket|0o600 {
		t.Errorf("the socket is %v, %v", info.Mode(), err)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	if err := left.Close(); err != nil {
		t.Errorf("closing one whose file is gone: %v", err)
	}
	entries, err := os.ReadDir(filepath.Dir(path))
	if err != nil || len(entries) > 0 {
		t.Errorf("the directory has %v, %v", entries, err)
	}
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the socket is still there: %v", err)
	}
}

// A listener whose socket was replaced takes its own away, and not that of another process: commands would find no host where one runs.
func TestCloseLeavesTheSocketOfAnother(t *testing.T) {
	path := place(t)
	first, err := socket.Listen(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	second, err := socket.Listen(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	defer second.Close()
	if err := first.Close(); err != nil {
		t.Error(err)
	}
	conn, err := net.Dial("unix", path)
	if err != nil {
		t.Fatalf("the socket of the second is gone: %v", err)
	}
	conn.Close()
}

// place returns where a socket may be.
func place(t *testing.T) string {
	if runtime.GOOS == "windows" {
		t.Skip("Windows has no such sockets")
	}
	return filepath.Join(t.TempDir(), "s")
}

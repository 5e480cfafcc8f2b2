//go:build unix

package regular_test

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"syscall"
	"testing"

	"github.com/keep-run/keep/internal/regular"
)

func TestOpen(t *testing.T) {
	t.Chdir(t.TempDir()) // the name of a socket is short
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(os.WriteFile("file", []byte("text"), 0o600))
	must(os.Symlink("file", "link"))
	must(os.Mkdir("directory", 0o700))
	must(syscall.Mkfifo("fifo", 0o600))
	must(os.Symlink("fifo", "link to fifo"))
	must(os.Symlink("nothing", "dangling"))
	l, err := net.Listen("unix", "socket")
	must(err)
	defer l.Close()
	root, err := os.OpenRoot(".")
	must(err)
	defer root.Close()
	for name, want := range map[string]error{
		"file": nil, "link": nil, "directory": regular.ErrDirectory, "fifo": regular.ErrSpecial, "link to fifo": regular.ErrSpecial,
		"socket": regular.ErrSpecial, "dangling": regular.ErrDangling, "missing": fs.ErrNotExist,
	} {
		for kind, open := range map[string]func() (*os.File, error){
			"Open": func() (*os.File, error) { return regular.Open(name) }, "OpenIn": func() (*os.File, error) { return regular.OpenIn(root, name) },
		} {
			f, err := open()
			if !errors.Is(err, want) || err == nil != (f != nil) {
				t.Errorf("%s of %s: %v, want %v", kind, name, err, want)
			}
			if f != nil {
				f.Close()
			}
		}
	}
	if _, err := regular.Open(os.DevNull); !errors.Is(err, regular.ErrSpecial) {
		t.Errorf("a device: %v", err)
	}
	for limit, want := range map[int64]error{4: nil, 3: regular.ErrLarge} {
		if text, err := regular.Read("file", limit); !errors.Is(err, want) || want == nil && string(text) != "text" {
			t.Errorf("Read with %d bytes: %q, %v, want %v", limit, text, err, want)
		}
	}
}

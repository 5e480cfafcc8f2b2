package files_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector"
	"github.com/keep-run/keep/connector/files"
)

// Law nothing-lost: a list that cannot read a directory says so. Without its files, who continues behind them would pass over them
// when it can be read again. A list that asks for none of them does not need it.
func TestListOfADirectoryThatCannotBeRead(t *testing.T) {
	root := t.TempDir()
	plant(t, root, map[string]string{"a.txt": "", "b/b.txt": "", "c.txt": ""})
	for dir, mode := range map[string]os.FileMode{filepath.Dir(root): 0o755, root: 0o755, filepath.Join(root, "b"): 0} {
		if err := os.Chmod(dir, mode); err != nil {
			t.Fatal(err)
		}
	}
	list := tool(t, open(t, files.Config{Root: root}), "list").(connector.Reader)
	got := make(map[string]string)
	done := make(chan error)
	go func() { // its thread may do what it likes, and ends with it
		runtime.LockOSThread()
		defer close(done)
		if os.Geteuid() == 0 { // who may read everything
			if _, _, errno := syscall.RawSyscall(syscall.SYS_SETFSUID, 65534, 0, 0); errno != 0 {
				done <- errno
				return
			}
		}
		for _, params := range []string{`{}`, `{"prefix":"b/"}`, `{"glob":"*/*.txt"}`, `{"glob":"*.txt"}`, `{"prefix":"c"}`} {
			raw, err := list.Read(t.Context(), json.RawMessage(params))
			got[params] = string(raw)
			if err != nil {
				got[params] = string(class(err)) + " " + err.Error()
			}
		}
	}()
	if err := <-done; err != nil {
		t.Skip("this process cannot be anybody else: ", err)
	}
	for params, text := range got {
		if needed := params != `{"glob":"*.txt"}` && params != `{"prefix":"c"}`; needed != strings.HasPrefix(text, string(keep.ClassPermission)+" ") || needed && !strings.Contains(text, "b") {
			t.Errorf("list %s: %s", params, text)
		}
	}
}

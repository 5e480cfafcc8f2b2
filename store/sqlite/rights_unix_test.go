//go:build unix

package sqlite_test

import (
	"bytes"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/keep-run/keep/store/sqlite"
)

// rightsEnv names the directory for the part of the test that runs without rights.
const rightsEnv = "KEEP_SQLITE_RIGHTS_DIR"

// A file or a directory that may not be written is refused with its path, and
// nothing in it changes. Root may write everywhere, so root runs the part that
// opens as somebody else.
func TestOpenWithoutTheRightToWrite(t *testing.T) {
	if dir := os.Getenv(rightsEnv); dir != "" {
		openWithoutRights(t, dir)
		return
	}
	dir, err := os.MkdirTemp("", "keep-rights-")
	must(t, err)
	t.Cleanup(func() {
		os.Chmod(dir, 0o700)
		os.RemoveAll(dir)
	})
	must(t, openDB(t, filepath.Join(dir, "keep.db"), sqlite.Config{Host: true}).Close())
	must(t, os.Chmod(filepath.Join(dir, "keep.db"), 0o444))
	bin := filepath.Join(dir, "test")
	copyFile(t, os.Args[0], bin)
	must(t, os.Chmod(dir, 0o555))
	if os.Geteuid() != 0 {
		openWithoutRights(t, dir)
		return
	}
	cmd := exec.CommandContext(t.Context(), bin, "-test.run=^"+t.Name()+"$", "-test.v")
	cmd.Dir, cmd.Env = dir, append(os.Environ(), rightsEnv+"="+dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	out, err := cmd.CombinedOutput()
	t.Logf("as nobody:\n%s", out)
	if err != nil || !bytes.Contains(out, []byte("--- PASS")) {
		t.Errorf("as nobody: %v", err)
	}
}

func openWithoutRights(t *testing.T, dir string) {
	for _, name := range []string{"keep.db", "new.db"} {
		path := filepath.Join(dir, name)
		before, _ := os.ReadFile(path)
		for _, cfg := range []sqlite.Config{{Host: true}, {}, {ReadOnly: true}} {
			err := sqlite.New(path, cfg).Open(t.Context())
			if err == nil || !strings.Contains(err.Error(), path) {
				t.Errorf("Open(%s) of %+v = %v, want an error with the path", name, cfg, err)
			}
			if code := regexp.MustCompile(`readonly database|unable to open database`); code.MatchString(err.Error()) && !strings.Contains(err.Error(), "folder") {
				t.Errorf("Open(%s) of %+v = %v, which does not say what to do", name, cfg, err)
			}
			t.Logf("%s: %v", name, err)
		}
		if after, _ := os.ReadFile(path); !bytes.Equal(before, after) {
			t.Errorf("%s has changed", name)
		}
	}
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	in, err := os.Open(from)
	must(t, err)
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY, 0o755)
	must(t, err)
	_, err = io.Copy(out, in)
	must(t, err)
	must(t, out.Close())
}

//go:build unix

package sqlite

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"testing/synctest"

	"github.com/keep-run/keep"
)

// A host was killed while it started a program, which has all that the host had open until it begins. The next host
// waits for that, and for no living one.
func TestLockOutlivesAKilledHost(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "keep.db")
	was, err := lockHost(path)
	if err != nil {
		t.Fatal(err)
	}
	signature{pid: os.Getpid()}.write(path)
	if _, err := lockHost(path); !errors.Is(err, keep.ErrLocked) {
		t.Errorf("of a living host: %v, want that it is locked", err)
	}
	dead := exec.Command("true")
	if err := dead.Run(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path+".lock", []byte(strconv.Itoa(dead.Process.Pid)+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		next := make(chan error, 1)
		go func() {
			lock, err := lockHost(path)
			if err == nil {
				err = lock.Close()
			}
			next <- err
		}()
		synctest.Wait() // the next host was refused, and waits
		if err := was.Close(); err != nil {
			t.Error(err)
		}
		if err := <-next; err != nil {
			t.Errorf("after a dead host: %v", err)
		}
	})
}

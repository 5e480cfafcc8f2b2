package sqlite

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"syscall"
	"time"

	"github.com/gofrs/flock"

	"github.com/keep-run/keep"
)

// A hostLock says: this process runs the workflows. It goes with the process.
//
// It is two locks. One is of a file beside the database, which also says who holds it. The
// other is of the database itself: the same file may have another name, by a hard link or a
// mount, and another file beside that. SQLite's own locks are not touched by it, but closing
// any descriptor of the file drops those of this process: so it is closed after the
// connections are.
type hostLock struct {
	path   string // of the database
	beside *flock.Flock
	file   *os.File // nil: not bound yet
}

// lockHost takes the lock of the file beside a database.
func lockHost(path string) (*hostLock, error) {
	lock := flock.New(path+".lock", flock.SetPermissions(0o600))
	var ok bool
	var err error
	outlive(path, afterDeath, func() bool {
		ok, err = lock.TryLock()
		return err != nil || ok
	})
	if err != nil {
		return nil, fmt.Errorf("lock: %w", err)
	}
	if !ok {
		holder := "it did not say which process it is"
		if pid := readSignature(path).pid; pid != 0 {
			holder = "process " + strconv.Itoa(pid)
		}
		return nil, fmt.Errorf("%w: %s; it works on what this file knows of: let it, or stop it (another file would do all of that again)", keep.ErrLocked, holder)
	}
	return &hostLock{path: path, beside: lock}, nil
}

// afterDeath is how long a lock may outlive the process that had it: a program that it was about to start has all that
// it had open, until that program begins.
const afterDeath = 5 * time.Second

// outlive calls take until it has the lock or cannot have it: once, and again for a while if who has it is dead.
func outlive(path string, most time.Duration, take func() (over bool)) {
	tick := time.NewTicker(afterDeath / 100)
	defer tick.Stop()
	for range most / (afterDeath / 100) {
		if take() || !diedWith(path) {
			return
		}
		<-tick.C
	}
}

// diedWith reports whether the process that says it has the lock is known to be dead.
func diedWith(path string) bool {
	pid := readSignature(path).pid
	if pid == 0 {
		return false
	}
	p, err := os.FindProcess(pid)
	return err == nil && errors.Is(p.Signal(syscall.Signal(0)), os.ErrProcessDone)
}

// bind takes the lock of the database itself, when there is one.
func (l *hostLock) bind(path string) error {
	if l.file != nil {
		return nil
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	outlive(path, afterDeath/10, func() bool {
		err = lockFile(f)
		return !errors.Is(err, keep.ErrLocked)
	})
	if err != nil {
		return errors.Join(err, openFiles.close(f))
	}
	l.file = f
	return nil
}

// errOtherName is returned when a host has the file open by another name.
var errOtherName = fmt.Errorf("%w: by another name of this file, such as a hard link or a mount; stop that host", keep.ErrLocked)

// checkName refuses a database that a host has open by another name. SQLite keeps the log
// and its locks beside the name: by this one it would see neither.
func checkName(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	locked := fileLocked(f)
	if err := openFiles.close(f); err != nil || !locked {
		return err
	}
	// A host has the lock beside the name that it goes by, too.
	beside := flock.New(path+".lock", flock.SetPermissions(0o600))
	free, err := beside.TryLock()
	if err == nil && free {
		return errors.Join(errOtherName, beside.Close())
	}
	return nil
}

// Close gives the lock up. Call it after the connections are closed; twice is fine.
func (l *hostLock) Close() error {
	var err error
	if l.file != nil {
		err = errors.Join(unlockFile(l.file), openFiles.close(l.file))
		l.file = nil
	}
	return errors.Join(err, l.beside.Close())
}

// beside are the suffixes of the files that stand beside a database.
var beside = []string{".lock", "-journal", "-wal", "-shm"}

// leftOf returns the file that says that there was a database at path: the lock of a host,
// or a log that is not empty. Empty: there was none.
func leftOf(path string) (string, error) {
	for _, suffix := range []string{".lock", "-wal"} {
		info, err := os.Stat(path + suffix)
		switch {
		case errors.Is(err, fs.ErrNotExist):
		case err != nil:
			return "", err
		case info.Size() > 0:
			return path + suffix, nil
		}
	}
	return "", nil
}

// Gone returns keep.ErrGone if there was a database at path, and is none any more.
func Gone(path string) error {
	path, err := realPath(path)
	if err != nil {
		return err
	}
	info, err := os.Stat(path)
	if err == nil && info.Size() > 0 {
		return nil
	}
	left, leftErr := leftOf(path)
	if leftErr != nil || left == "" {
		return leftErr
	}
	what := "is gone"
	if err == nil {
		what = "is empty"
	}
	return fmt.Errorf("%w: there was a database, as %s says, and %s %s; put it back, or begin anew with --new: "+
		"then all that it knew is done again", keep.ErrGone, left, path, what)
}

// regular refuses a database, and files beside it, that are not regular files: a host
// would wait without end at a FIFO, and write to a device.
func regular(path string) error {
	for _, suffix := range append([]string{"", ".copying"}, beside...) {
		info, err := os.Stat(path + suffix)
		switch {
		case errors.Is(err, fs.ErrNotExist):
		case err != nil:
			return err
		case info.IsDir():
			return fmt.Errorf("%s is a directory; name a file", path+suffix)
		case !info.Mode().IsRegular():
			return fmt.Errorf("%s is %s, and no regular file; name another file", path+suffix, kindOf(info.Mode()))
		}
	}
	return nil
}

// kindOf names what a file is that is not regular.
func kindOf(mode fs.FileMode) string {
	switch {
	case mode&fs.ModeNamedPipe != 0:
		return "a FIFO"
	case mode&fs.ModeSocket != 0:
		return "a socket"
	case mode&fs.ModeDevice != 0:
		return "a device"
	}
	return "something else"
}

package sqlite

import (
	"errors"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// lockAt is the byte that a host locks: "KEEP", far behind SQLite's own and any data.
const lockAt = applicationID << 32

// lockFile locks a database for as long as f is open. The lock belongs to f, not to the
// process, so a second host in this process is refused as well. On a file system without
// such locks the file must have one name.
func lockFile(f *os.File) error {
	err := unix.FcntlFlock(f.Fd(), unix.F_OFD_SETLK, &unix.Flock_t{Type: unix.F_WRLCK, Whence: io.SeekStart, Start: lockAt, Len: 1})
	switch {
	case err == nil:
		return nil
	case errors.Is(err, unix.EAGAIN), errors.Is(err, unix.EACCES):
		return errOtherName
	}
	return oneName(f)
}

// unlockFile gives the lock of f up. Closing f is not enough: a child that was forked and has
// not begun its program yet holds f open, too.
func unlockFile(f *os.File) error {
	err := unix.FcntlFlock(f.Fd(), unix.F_OFD_SETLK, &unix.Flock_t{Type: unix.F_UNLCK, Whence: io.SeekStart, Start: lockAt, Len: 1})
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOLCK) || errors.Is(err, unix.EOPNOTSUPP) {
		return nil // there was no lock: see lockFile
	}
	return err
}

// fileLocked reports whether a host has the database open, by whatever name.
func fileLocked(f *os.File) bool {
	lock := unix.Flock_t{Type: unix.F_WRLCK, Whence: io.SeekStart, Start: lockAt, Len: 1}
	err := unix.FcntlFlock(f.Fd(), unix.F_OFD_GETLK, &lock)
	return err == nil && lock.Type != unix.F_UNLCK
}

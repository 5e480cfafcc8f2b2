package sqlite

import (
	"errors"
	"os"

	"golang.org/x/sys/windows"
)

// lockFile locks a byte of a database far behind any data, for as long as f is open.
func lockFile(f *os.File) error {
	at := &windows.Overlapped{OffsetHigh: applicationID}
	err := windows.LockFileEx(windows.Handle(f.Fd()), windows.LOCKFILE_EXCLUSIVE_LOCK|windows.LOCKFILE_FAIL_IMMEDIATELY, 0, 1, 0, at)
	if errors.Is(err, windows.ERROR_LOCK_VIOLATION) {
		return errOtherName
	}
	return err
}

// unlockFile does nothing: closing f gives up what lockFile took.
func unlockFile(*os.File) error { return nil }

// fileLocked reports whether a host has the database open by another name, as far as this
// system tells.
func fileLocked(*os.File) bool { return false }

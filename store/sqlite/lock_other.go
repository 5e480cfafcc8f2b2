//go:build unix && !linux

package sqlite

import "os"

// lockFile refuses a database with several names: this system has no lock that would not
// disturb SQLite's.
func lockFile(f *os.File) error { return oneName(f) }

// unlockFile does nothing: closing f gives up what lockFile took.
func unlockFile(*os.File) error { return nil }

// fileLocked reports whether a host has the database open by another name, as far as this
// system tells.
func fileLocked(*os.File) bool { return false }

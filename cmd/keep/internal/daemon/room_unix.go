//go:build linux || darwin

package daemon

import "golang.org/x/sys/unix"

// freeSpace returns how many bytes this user may still write to the disk of a directory, if
// that is known.
func freeSpace(dir string) (int64, bool) {
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err != nil {
		return 0, false
	}
	return int64(fs.Bavail) * int64(fs.Bsize), true
}

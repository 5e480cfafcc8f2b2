//go:build unix

package sandbox

import "golang.org/x/sys/unix"

// reserve takes address space that cannot be touched yet and costs nothing,
// not even under strict overcommit.
func reserve(n int) ([]byte, error) {
	return unix.Mmap(-1, 0, n, unix.PROT_NONE, unix.MAP_PRIVATE|unix.MAP_ANON)
}

// commit makes b, a prefix of a reservation, usable. Its pages are zero at
// first and become real when they are written.
func commit(b []byte) error {
	return unix.Mprotect(b, unix.PROT_READ|unix.PROT_WRITE)
}

// release undoes reserve. Nothing could handle a failure, and the only
// possible one is a bug: a range that was never reserved.
func release(b []byte) {
	if err := unix.Munmap(b); err != nil {
		panic("sandbox: munmap: " + err.Error())
	}
}

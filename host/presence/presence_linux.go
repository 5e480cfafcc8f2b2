package presence

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/keep-run/keep"
)

// local are the magic numbers of file systems on which flock holds between all processes
// that see the file, which are those of one kernel.
var local = []int64{
	0xef53,     // ext2, ext3, ext4
	0x58465342, // xfs
	0x9123683e, // btrfs
	0xf2f52010, // f2fs
	0x2fc12fc1, // zfs
	0x01021994, // tmpfs
	0x794c7630, // overlayfs
}

// suffix is that of the name of a file that is locked.
const suffix = ".host"

// forgotten is how long the file of a process that has ended is kept for the next host of
// its database, from when that was found out first.
const forgotten = 24 * time.Hour

// Modes of a file that says of a process that it lives, or was found to have ended.
const (
	announced = 0o600
	found     = 0o400
)

// Open returns a directory, which it makes if there is none. The error is ErrNoProof if
// what is there proves nothing.
func Open(path string) (*Directory, error) {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNoProof, err)
	}
	if err := os.MkdirAll(path, 0o700); err != nil {
		return nil, err
	}
	var st unix.Stat_t
	var fs unix.Statfs_t
	if err := errors.Join(unix.Lstat(path, &st), unix.Statfs(path, &fs)); err != nil {
		return nil, fmt.Errorf("look at %s: %w", path, err)
	}
	switch {
	case st.Mode&unix.S_IFMT != unix.S_IFDIR, int(st.Uid) != os.Geteuid(), st.Mode&0o022 != 0:
		return nil, fmt.Errorf("%w: %s must be a directory of this user that nobody else may write to", ErrNoProof, path)
	case !slices.Contains(local, int64(fs.Type)):
		return nil, fmt.Errorf("%w: %s is on a file system (%#x) that other machines may share", ErrNoProof, path, fs.Type)
	}
	return &Directory{path: path, boot: strings.TrimSpace(string(boot)), mine: make(map[keep.HostID]bool)}, nil
}

// file returns the name of the file of a host.
func (d *Directory) file(id keep.HostID) string { return filepath.Join(d.path, string(id)+suffix) }

// Announce locks the file of a host of this process until the process ends. Nothing
// unlocks it before: what the process began may not have ended with its host.
func (d *Directory) Announce(id keep.HostID) error {
	if strings.ContainsAny(string(id), "/\x00") || id == "" {
		return fmt.Errorf("host %q cannot be the name of a file", id)
	}
	temp := filepath.Join(d.path, "."+string(id))
	fd, err := unix.Open(temp, unix.O_RDWR|unix.O_CREAT|unix.O_EXCL|unix.O_CLOEXEC|unix.O_NOFOLLOW, announced)
	if err != nil {
		return fmt.Errorf("announce host %s in %s: %w", id, d.path, err)
	}
	// It gets its name when it is locked and says what it is, so nobody finds it before.
	err = unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB)
	if err == nil {
		var says string
		if says, err = d.identity(fd); err == nil {
			_, err = unix.Write(fd, []byte(says))
		}
	}
	if err == nil {
		err = unix.Rename(temp, d.file(id))
	}
	if err != nil {
		return errors.Join(fmt.Errorf("announce host %s in %s: %w", id, d.path, err), unix.Unlink(temp), unix.Close(fd))
	}
	d.mine[id] = true
	return nil // fd stays open, and is no *os.File that could be collected
}

// identity says which file fd is, and of which boot.
func (d *Directory) identity(fd int) (string, error) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return "", err
	}
	return fmt.Sprintf("%s %d %d\n", d.boot, st.Dev, st.Ino), nil
}

// Ended returns the hosts whose processes have provably ended, on this machine and since
// it was booted.
func (d *Directory) Ended() (ids []keep.HostID) {
	entries, err := os.ReadDir(d.path)
	if err != nil {
		return nil
	}
	for _, e := range entries {
		name, is := strings.CutSuffix(e.Name(), suffix)
		if id := keep.HostID(name); is && !d.mine[id] && d.ended(id) {
			ids = append(ids, id)
		}
	}
	return ids
}

// ended reports whether the process of a host has ended. A file of which that was found out long ago is removed.
func (d *Directory) ended(id keep.HostID) bool {
	fd, err := unix.Open(d.file(id), unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	if unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB) != nil {
		return false
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return false
	}
	if st.Mode&0o777 != found { // its time is that of the announcement, and the host may have worked for weeks
		now := unix.NsecToTimeval(time.Now().UnixNano())
		if unix.Futimes(fd, []unix.Timeval{now, now}) == nil {
			_ = unix.Fchmod(fd, found)
		}
	} else if time.Since(time.Unix(st.Mtim.Unix())) > forgotten {
		_ = unix.Unlink(d.file(id))
		return false
	}
	want, err := d.identity(fd)
	if err != nil {
		return false
	}
	says := make([]byte, len(want)+1)
	n, err := unix.Read(fd, says)
	return err == nil && string(says[:max(n, 0)]) == want
}

// Forget removes the file of a host whose leases were given back.
func (d *Directory) Forget(id keep.HostID) { _ = unix.Unlink(d.file(id)) }

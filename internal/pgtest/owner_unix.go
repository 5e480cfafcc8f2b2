//go:build unix

package pgtest

import (
	"errors"
	"os"
	"os/exec"
	"os/user"
	"strconv"
	"syscall"
)

// An owner is the user as whom the server runs; nil is that of this process.
type owner struct{ uid, gid uint32 }

// serverOwner returns an ordinary user if this process is root, as which Postgres
// refuses to run.
func serverOwner() (*owner, error) {
	if os.Getuid() != 0 {
		return nil, nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, _ := strconv.ParseUint(u.Uid, 10, 32)
		gid, _ := strconv.ParseUint(u.Gid, 10, 32)
		return &owner{uint32(uid), uint32(gid)}, nil
	}
	return nil, errors.New("root must not run Postgres, and there is no user postgres or nobody")
}

// give makes a directory the owner's.
func (o *owner) give(dir string) error {
	if o == nil {
		return nil
	}
	return os.Chown(dir, int(o.uid), int(o.gid))
}

// run lets a command be the owner's.
func (o *owner) run(cmd *exec.Cmd) {
	if o != nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: o.uid, Gid: o.gid}}
	}
}

//go:build unix

package notify

import (
	"os/exec"
	"syscall"
)

// ownGroup puts a program into a process group of its own, which is killed as a
// whole: what it started does not outlive it.
func ownGroup(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
}

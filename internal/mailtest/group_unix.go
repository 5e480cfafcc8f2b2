//go:build unix

package mailtest

import (
	"os/exec"
	"syscall"
)

// group puts a program and what it starts into a process group.
func group(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

// killGroup ends all of a group.
func killGroup(cmd *exec.Cmd) { syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }

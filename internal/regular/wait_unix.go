//go:build unix

package regular

import "syscall"

// noWait makes opening a named pipe return at once, whatever is at its other end.
const noWait = syscall.O_NONBLOCK | syscall.O_NOCTTY

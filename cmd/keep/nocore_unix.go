//go:build unix

package main

import "golang.org/x/sys/unix"

// withoutCores has the system write no memory of this process and its children to a file,
// where keys and tokens would be in it. On Linux a limit of one byte also keeps it from
// programs that collect such files, which a limit of none does not (core(5)). That it cannot
// be lowered is no reason not to work.
func withoutCores() {
	var limit unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_CORE, &limit) == nil {
		limit.Max = min(limit.Max, coreLimit)
		limit.Cur = limit.Max
		_ = unix.Setrlimit(unix.RLIMIT_CORE, &limit)
	}
}

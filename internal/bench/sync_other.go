//go:build !linux

package main

import (
	"os"
	"time"
)

func datasync(f *os.File) error { return f.Sync() }

// cpuTime is not measured here; figures that need it are zero.
func cpuTime() time.Duration { return 0 }

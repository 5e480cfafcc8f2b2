//go:build unix && !linux

package main

import (
	"errors"
	"testing"
)

func mknod(string) error { return errors.ErrUnsupported }

func bindMount(t *testing.T, _ *crashWorld) string {
	t.Skip("there are no bind mounts")
	return ""
}

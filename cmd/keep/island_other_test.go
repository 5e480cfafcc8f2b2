//go:build unix && !linux

package main

import "os/exec"

// An island is a network namespace, which only Linux has.
type island struct{}

func (*island) database() string { return "" }

func (*island) service() string { return "" }

func (*island) command(string, ...string) *exec.Cmd { return nil }

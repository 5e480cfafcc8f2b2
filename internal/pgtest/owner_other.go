//go:build !unix

package pgtest

import "os/exec"

// An owner is the user as whom the server runs: here always that of this process.
type owner struct{}

func serverOwner() (*owner, error) { return nil, nil }

func (*owner) give(string) error { return nil }

func (*owner) run(*exec.Cmd) {}

//go:build !unix

package mailtest

import "os/exec"

func group(*exec.Cmd) {}

func killGroup(*exec.Cmd) {}

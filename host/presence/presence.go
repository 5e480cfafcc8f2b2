package presence

import (
	"errors"

	"github.com/keep-run/keep"
)

// ErrNoProof is returned where no process can prove that another one has ended.
var ErrNoProof = errors.New("this place proves nothing about processes that have ended")

// A Directory is where the hosts of one machine lock files. Create one with Open.
type Directory struct {
	path string
	boot string
	mine map[keep.HostID]bool // locked by this process
}

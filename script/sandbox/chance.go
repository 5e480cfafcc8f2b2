package sandbox

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	randv2 "math/rand/v2"
)

// A chance is where the random numbers of a phase come from: a seed, so that a phase can be
// gone through again. A nil chance is the system's.
type chance struct{ *randv2.ChaCha8 }

// newChance returns the chance of a seed; nil if that is empty.
func newChance(seed []byte) *chance {
	if len(seed) == 0 {
		return nil
	}
	return &chance{randv2.NewChaCha8(sha256.Sum256(seed))}
}

// read fills b. Neither source fails.
func (c *chance) read(b []byte) {
	if c == nil {
		rand.Read(b)
		return
	}
	_, _ = c.Read(b)
}

func (c *chance) uint32() uint32 {
	if c == nil {
		return randv2.Uint32()
	}
	var b [4]byte
	c.read(b[:])
	return binary.LittleEndian.Uint32(b[:])
}

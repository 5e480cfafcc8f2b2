package sqlite

import (
	"encoding/binary"
	"errors"
	"math/bits"
)

// Rows that have a word are kept bucket by bucket; the schema says how.
const (
	wordBits   = 12
	wordBucket = 1 << wordBits
)

// A rowSet is some rows of a bucket.
type rowSet [wordBucket / 64]uint64

func (s *rowSet) add(n int64)      { s[n%wordBucket/64] |= 1 << (n % 64) }
func (s *rowSet) drop(n int64)     { s[n%wordBucket/64] &^= 1 << (n % 64) }
func (s *rowSet) has(n int64) bool { return s[n%wordBucket/64]&(1<<(n%64)) != 0 }

// and leaves what other has, too.
func (s *rowSet) and(other *rowSet) {
	for i := range s {
		s[i] &= other[i]
	}
}

// count returns how many rows s has.
func (s *rowSet) count() (n int) {
	for _, w := range s {
		n += bits.OnesCount64(w)
	}
	return n
}

// numbers returns the rows of s in a bucket, newest first.
func (s *rowSet) numbers(bucket int64) (list []int64) {
	for i := len(s) - 1; i >= 0; i-- {
		for w := s[i]; w != 0; {
			top := bits.Len64(w) - 1
			list = append(list, bucket*wordBucket+int64(i)*64+int64(top))
			w &^= 1 << top
		}
	}
	return list
}

// encode returns s as it is stored, and nil if it is empty.
func (s *rowSet) encode() []byte {
	n := s.count()
	if 2*n >= len(s)*8 {
		out := make([]byte, 0, len(s)*8)
		for _, w := range s {
			out = binary.LittleEndian.AppendUint64(out, w)
		}
		return out
	}
	var out []byte
	for _, v := range s.numbers(0) {
		out = binary.LittleEndian.AppendUint16(out, uint16(v))
	}
	return out
}

// errRowSet is returned for a set that no encode made.
var errRowSet = errors.New("the index of titles is damaged; open the file with a host after DELETE FROM title_word and UPDATE title_index SET upto = 0")

// join adds the rows of a stored set.
func (s *rowSet) join(stored []byte) error {
	switch {
	case len(stored) == len(s)*8:
		for i := range s {
			s[i] |= binary.LittleEndian.Uint64(stored[8*i:])
		}
		return nil
	case len(stored)%2 != 0 || len(stored) > len(s)*8:
		return errRowSet
	}
	for ; len(stored) > 0; stored = stored[2:] {
		s.add(int64(binary.LittleEndian.Uint16(stored)))
	}
	return nil
}

package keep

import (
	"strings"
	"time"
)

// A RunID names one execution attempt of a handler. It is issued by the host
// and unique for the life of the database; ids made later sort later.
type RunID string

// An InputID names an external thing that a user recognises.
type InputID string

// An EscalationID names a question to a person.
type EscalationID string

// A MutationKey is the primary key of the ledger. Scripts never compute one;
// see package ledger for how it is derived.
type MutationKey string

// crockford is the base-32 alphabet of ids: it sorts like the numbers that it
// encodes and has no letters that people confuse.
const crockford = "0123456789abcdefghjkmnpqrstvwxyz"

// MayBeInID reports whether a text may be a part of what follows the prefix of an id that [NewID] made.
func MayBeInID(part string) bool { return len(part) <= 26 && strings.Trim(part, crockford) == "" }

// NewID returns an id that starts with prefix and an underscore, followed by 26
// characters: 48 bits of at in milliseconds, then 80 bits of entropy. Ids are
// time-ordered so that inserts append to an index; scattered keys halved the
// throughput of SQLite.
func NewID(prefix string, at time.Time, entropy [10]byte) string {
	var b strings.Builder
	b.Grow(len(prefix) + 27)
	b.WriteString(prefix)
	b.WriteByte('_')
	ms := uint64(at.UnixMilli())
	for shift := 45; shift >= 0; shift -= 5 {
		b.WriteByte(crockford[ms>>shift&31])
	}
	// 80 bits are sixteen characters: two groups of 40 bits.
	for group := 0; group < 10; group += 5 {
		var v uint64
		for _, c := range entropy[group : group+5] {
			v = v<<8 | uint64(c)
		}
		for shift := 35; shift >= 0; shift -= 5 {
			b.WriteByte(crockford[v>>shift&31])
		}
	}
	return b.String()
}

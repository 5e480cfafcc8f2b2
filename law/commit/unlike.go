package commit

import (
	"slices"

	"github.com/keep-run/keep"
)

// unlike refuses a call that somebody else made, or may have. The next commit of a group is
// judged by the rivals that this one adds, too.
func (d *decision) unlike(c keep.Unlike) error {
	for _, tool := range c.Tools {
		k := IdentityKey{tool, string(c.Identity), c.Subkey}
		known := d.Rivals.Get(k)
		for _, rival := range known {
			if rival != c.Key && !slices.Contains(c.Except, rival) {
				return &keep.RivalError{Key: c.Key, Rival: rival}
			}
		}
		d.Rivals.Put(k, known)
	}
	return nil
}

// noteRival adds a rival to those of an identity, if it was asked for. None is taken out: the
// commit may still be refused, and its record then is as it was. Who is refused for a rival that
// is none any more looks again.
func (d *decision) noteRival(m keep.Mutation) {
	k := IdentityKey{m.Tool, string(m.Identity), m.Subkey}
	if m.State.Rivals() && d.Rivals.Has(k) {
		d.AddRival(k, m.Key)
	}
}

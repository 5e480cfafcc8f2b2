package commit

import (
	"slices"

	"github.com/keep-run/keep"
)

// unlike refuses a call that somebody else made, or may have. The records of an identity
// that was asked for are kept up to date, since the next commit of a group is judged by
// what this one does, too.
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

// noteRival keeps the rivals of an identity up to date, if it was asked for.
func (d *decision) noteRival(m keep.Mutation) {
	k := IdentityKey{m.Tool, string(m.Identity), m.Subkey}
	if d.Rivals.find(k) < 0 {
		return
	}
	others := slices.DeleteFunc(slices.Clone(d.Rivals.Get(k)), func(key keep.MutationKey) bool { return key == m.Key })
	if m.State.Rivals() {
		others = append(others, m.Key)
	}
	d.Rivals.Put(k, others)
}

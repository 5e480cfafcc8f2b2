package simtest

import (
	"slices"

	"github.com/keep-run/keep"
)

// A cheat is a lie that the contracts of stores and services exclude. The oracle
// must notice each of them: one that does not would not notice a bug of Keep's
// with the same consequence.
type cheat string

const (
	forgetsKeys   cheat = "a level A service forgets its keys"
	actsTwice     cheat = "a service acts twice on one call"
	refusesFalse  cheat = "a service says no, and does it"
	claimsFalse   cheat = "a service says yes, and does not do it"
	findsFalse    cheat = "a lookup finds what is not there"
	dropsPublish  cheat = "the store loses an event of a commit"
	dropsFinish   cheat = "the store forgets that events are consumed"
	dropsCommit   cheat = "the store says that a commit is durable, and it is not"
	repeatsEffect cheat = "a service does late what it did before"
	neverReturns  cheat = "a connector never returns"

	servesOldGrant cheat = "the store answers with a grant that was replaced"
)

// cheats returns every cheat.
func cheats() []cheat {
	return []cheat{forgetsKeys, actsTwice, refusesFalse, claimsFalse, findsFalse, dropsPublish, dropsFinish, dropsCommit, repeatsEffect, neverReturns, servesOldGrant}
}

// does reports whether the world cheats this way, this time.
func (w *world) does(c cheat) bool { return w.cheat == c && !w.calm && w.chance(0.3) }

// tampered returns what a store that cheats makes of a commit.
func (w *world) tampered(c keep.Commit) keep.Commit {
	if w.cheat == "" {
		return c
	}
	c.Changes = slices.DeleteFunc(slices.Clone(c.Changes), func(change keep.Change) bool {
		switch change.(type) {
		case keep.Publish:
			return w.does(dropsPublish)
		case keep.Finish:
			return w.does(dropsFinish)
		}
		return false
	})
	return c
}

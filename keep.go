// Package keep is the vocabulary of Keep, a host for automations that must not
// do things twice. It holds the nouns of the product, what makes each of them
// valid, and the durable changes that a store can be asked to make. It does no
// IO, reads no clock and decides nothing: the law is in ledger, lifecycle,
// schedule and policy, and engine performs it.
//
// Read the files in this order: workflow.go (what an author declares), event.go
// (what arrives), run.go (what is done about it), mutation.go (what is changed
// outside), escalation.go (what a person is asked), commit.go (what becomes
// durable together), lease.go (which host does it), failure.go (how things go
// wrong).
//
// Times are UTC and have millisecond precision, since that is what every store
// keeps. The zero time means "not set".
package keep

// A Violation is a broken law that a store's Check found. A healthy store has
// none: one is a bug of Keep or a damaged file, never a mistake of a user.
type Violation struct {
	Law    string // name of the law, as docs/ARCHITECTURE.md has it
	Record string // what breaks it, such as "run run_01"
	Why    string
}

// Error names the law, the record and what is wrong with it.
func (v *Violation) Error() string { return v.Law + ": " + v.Record + ": " + v.Why }

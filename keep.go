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

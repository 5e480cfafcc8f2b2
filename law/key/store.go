package key

import (
	"context"
	"errors"
)

// A Filter selects records. Zero fields select everything.
type Filter struct {
	State  State
	Key    string // as the client sent it
	Caller string // the hash that records hold
}

// ErrTxEnded is returned by a Tx that its handler has committed or rolled back itself:
// which of the two, and so whether what it wrote is there, is not known.
var ErrTxEnded = errors.New("the handler ended the transaction of its key itself; it must leave that to the guard")

// A Tx is a transaction of a store's database that a handler works in. Nothing
// of it is visible until Commit.
type Tx interface {
	// Handle returns what the handler works with, such as a *sql.Tx.
	Handle() any

	// Write is the store's Write, as a part of the transaction. It is ErrTxEnded if the
	// handler has ended that.
	Write(ctx context.Context, r Record) error

	// Commit makes the handler's writes and the record durable together. After
	// an error nobody knows whether it did: the record tells.
	Commit(ctx context.Context) error

	// Rollback undoes everything. After Commit it does nothing.
	Rollback() error
}

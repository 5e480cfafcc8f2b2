package idempotency

import (
	"context"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/law/key"
)

// A Store keeps records. It decides nothing: what a record may become is in
// package key. Package idempotencytest holds what an implementation must do.
//
// Everything is compare-and-set on Record.Rev, so that two processes on one
// database agree on who is first.
type Store interface {
	// Read returns the record of an id, or the zero Record if there is none.
	// It sees every Write that returned before.
	Read(ctx context.Context, id key.ID) (key.Record, error)

	// ReadAlias returns the record that has an alias and is not over at now, or the
	// zero Record. It may leave out the answer.
	ReadAlias(ctx context.Context, alias key.ID, now time.Time) (key.Record, error)

	// Write stores r durably, in place of the one with r.Rev, and counts Rev
	// up. With Rev 0 there must be none, and with any Rev none of r.Former that is
	// not over at r.UpdatedAt. If r is in progress, no other record that is not over
	// has its alias. If another caller was first nothing is stored and the error is
	// keep.ErrStale. After any other error nobody knows whether r is stored: read it.
	Write(ctx context.Context, r key.Record) error

	// Sweep deletes at most limit records that are over at now, and returns how
	// many it deleted. It never deletes one whose outcome is open.
	Sweep(ctx context.Context, now time.Time, limit int) (int, error)

	// List returns a page of the records that f selects, newest first, without
	// their headers and bodies, and the cursor of the next page; "" if it is
	// the last. A bad cursor is keep.ErrBadCursor.
	List(ctx context.Context, f key.Filter, p keep.Page) ([]key.Record, string, error)
}

// A TxStore can complete a record in a transaction of its database, so that a
// handler's own writes and its key commit together. A Store that is none makes
// [Tx] fail. It has the methods of Store because it is one.
type TxStore interface {
	Store

	// Begin starts such a transaction. It may block the store's other
	// writes until its end; SQLite's does.
	Begin(ctx context.Context) (key.Tx, error)
}

// A Taker finds out in one step whether a key is free and, if so, takes it. A Store
// that is none is read first and then written: that is better where reading is
// next to nothing, as in the same process. It has the methods of Store because it is one.
type Taker interface {
	Store

	// Take stores r, whose Rev is 0, as Write does, and returns the zero Record;
	// or, if there is a record of its id, stores nothing and returns that. It may
	// return keep.ErrStale instead, if the record is gone again or cannot be read. After any other
	// error nobody knows whether r is stored: read it.
	Take(ctx context.Context, r key.Record) (there key.Record, err error)
}

// A Shrinker can give the space of deleted records back to the file system. A
// Store that is none reuses it. It has the methods of Store because it is one.
type Shrinker interface {
	Store

	// Shrink gives back what is free beyond a reserve, in steps that leave room
	// for others between them, and returns how many bytes that were. It ends
	// with ctx.
	Shrink(ctx context.Context) (bytes int64, err error)
}

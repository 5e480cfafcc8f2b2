package web

import (
	"context"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/host/feed"
	"github.com/keep-run/keep/idempotency"
	"github.com/keep-run/keep/law/key"
)

// A Feed tells what changed; *feed.Feed does.
type Feed interface {
	// Last returns the ID of the newest change: what is read after the call has it.
	Last() string
	// Subscribe returns what changes after the change with that ID. If it is not remembered any more, that
	// begins with a Reset.
	Subscribe(ctx context.Context, after string) *feed.Subscription
}

// Keys reads and decides about idempotency keys; *idempotency.Keys does.
type Keys interface {
	// List returns a page of those that match, newest first, and the cursor of the next.
	List(ctx context.Context, f key.Filter, p keep.Page) ([]idempotency.View, string, error)
	// Show returns one with its answer, or keep.ErrNotFound.
	Show(ctx context.Context, reference string) (idempotency.View, error)
	// Resolve records what a person knows about one whose outcome is unknown; of another the error is
	// idempotency.ErrNotUnknown.
	Resolve(ctx context.Context, reference string, res idempotency.Resolution, now time.Time) (idempotency.View, error)
	// ForgetSeen gives a key free, as the person saw it: the next request with it is executed.
	ForgetSeen(ctx context.Context, reference, by, seen string, now time.Time) (idempotency.View, error)
}

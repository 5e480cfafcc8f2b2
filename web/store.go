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
	Last() string
	Subscribe(ctx context.Context, after string) *feed.Subscription
}

// Keys reads and decides about idempotency keys; *idempotency.Keys does.
type Keys interface {
	List(ctx context.Context, f key.Filter, p keep.Page) ([]idempotency.View, string, error)
	Show(ctx context.Context, reference string) (idempotency.View, error)
	Resolve(ctx context.Context, reference string, res idempotency.Resolution, now time.Time) (idempotency.View, error)
	Forget(ctx context.Context, reference, by string, now time.Time) (idempotency.View, error)
}

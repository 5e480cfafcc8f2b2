package web

import (
	"context"
	"errors"
	"time"

	"github.com/keep-run/keep/host/feed"
)

// errBeat ends a wait in which nothing changed.
var errBeat = errors.New("nothing changed")

// nextWithin returns the next changes, or errBeat if there are none for d.
func nextWithin(ctx context.Context, sub *feed.Subscription, d time.Duration) ([]feed.Change, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, d, errBeat)
	defer cancel()
	return sub.Next(ctx)
}

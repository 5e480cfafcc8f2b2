package connector

import (
	"context"
	"time"

	"github.com/keep-run/keep"
)

type recorded struct{}

// WithRecorded returns a context for Reconcile that has the time of a record, by the clock of the records. The host uses it where
// Mutation.CreatedAt is by the clock of this machine instead.
func WithRecorded(ctx context.Context, at time.Time) context.Context {
	return context.WithValue(ctx, recorded{}, at)
}

// Recorded returns the time of the record of m as Mutate got it, for what is sent or was sent with it. How long ago that is,
// CreatedAt of the m that Reconcile gets says.
func Recorded(ctx context.Context, m keep.Mutation) time.Time {
	if at, ok := ctx.Value(recorded{}).(time.Time); ok {
		return at
	}
	return m.CreatedAt
}

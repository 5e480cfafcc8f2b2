package stored

import (
	"time"

	"github.com/keep-run/keep"
)

// refreshes returns the refreshes of an account as they are kept: UTC, in milliseconds.
func refreshes(list []keep.Refresh) []keep.Refresh {
	var out []keep.Refresh
	for _, r := range list {
		r.SentAt, r.EndedAt = r.SentAt.UTC().Truncate(time.Millisecond), r.EndedAt.UTC().Truncate(time.Millisecond)
		out = append(out, r)
	}
	return out
}

// NotDropped says why an account of a name was not deleted, which list has if it is there: it has another revision, or is gone.
func NotDropped(list []keep.Account, name string) error {
	if len(list) == 0 {
		return &keep.NotFoundError{What: "account", ID: name}
	}
	return keep.ErrStale
}

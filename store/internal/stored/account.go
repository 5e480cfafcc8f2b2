package stored

import (
	"encoding/json"
	"time"

	"github.com/keep-run/keep"
)

// JSONList returns a list as JSON; nil stays nil.
func JSONList[T any](list []T) (json.RawMessage, error) {
	if list == nil {
		return nil, nil
	}
	return json.Marshal(list)
}

// ParseList reads what JSONList wrote.
func ParseList[T any](raw []byte) (list []T, err error) {
	if len(raw) > 0 {
		err = json.Unmarshal(raw, &list)
	}
	return list, err
}

// Refreshes returns the refreshes of an account as they are kept: UTC, in milliseconds.
func Refreshes(list []keep.Refresh) []keep.Refresh {
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

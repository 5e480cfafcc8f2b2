package memory

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/law/key"
)

// Keys keeps the records of idempotency keys. It is an idempotency.Store that
// forgets everything with the process. The zero Keys is empty and ready; it is
// safe for concurrent use.
type Keys struct {
	// mu protects the 3 next fields.
	mu      sync.Mutex
	made    int64 // rows made so far; gives every row its place in lists
	rows    map[key.ID]row[key.Record]
	aliases map[key.ID]map[key.ID]bool // alias -> ids of the rows that have it
}

// Read returns the record of an id, or the zero Record.
func (k *Keys) Read(ctx context.Context, id key.ID) (key.Record, error) {
	if err := context.Cause(ctx); err != nil {
		return key.Record{}, err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	return copyRecord(k.rows[id].v), nil
}

// Write stores r in place of the record with its Rev, or returns keep.ErrStale.
func (k *Keys) Write(ctx context.Context, r key.Record) error {
	if err := context.Cause(ctx); err != nil {
		return err
	}
	if err := r.Validate(); err != nil {
		return err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	was, ok := k.rows[r.ID]
	if was.v.Rev != r.Rev {
		return fmt.Errorf("write %s: %w", r.ID, keep.ErrStale)
	}
	if k.taken(r) {
		return fmt.Errorf("write %s: %w", r.ID, keep.ErrStale)
	}
	if !ok {
		k.made++
		was.n = k.made
	}
	if k.rows == nil {
		k.rows, k.aliases = make(map[key.ID]row[key.Record]), make(map[key.ID]map[key.ID]bool)
	}
	r = copyRecord(r)
	k.forgetAlias(was.v)
	if r.Alias != (key.ID{}) {
		if k.aliases[r.Alias] == nil {
			k.aliases[r.Alias] = make(map[key.ID]bool, 1)
		}
		k.aliases[r.Alias][r.ID] = true
	}
	r.Rev++
	k.rows[r.ID] = row[key.Record]{was.n, r}
	return nil
}

// taken reports whether another live record stands for the request of r: one with
// its alias, or the one of version 1 when r takes the key.
func (k *Keys) taken(r key.Record) bool {
	if r.State != key.InProgress {
		return false
	}
	if !key.Free(k.rows[r.Former].v, r.UpdatedAt) {
		return true
	}
	other := k.byAlias(r.Alias, r.UpdatedAt)
	return other.Rev > 0 && other.ID != r.ID
}

// ReadAlias returns the live record of an alias at now, or the zero Record.
func (k *Keys) ReadAlias(ctx context.Context, alias key.ID, now time.Time) (key.Record, error) {
	if err := context.Cause(ctx); err != nil {
		return key.Record{}, err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	return copyRecord(k.byAlias(alias, now)), nil
}

// byAlias returns the live record of an alias; the zero Record if there is none.
func (k *Keys) byAlias(alias key.ID, now time.Time) key.Record {
	for id := range k.aliases[alias] {
		if r := k.rows[id].v; !key.Free(r, now) {
			return r
		}
	}
	return key.Record{}
}

// forgetAlias says that a record has its alias no more.
func (k *Keys) forgetAlias(r key.Record) {
	if delete(k.aliases[r.Alias], r.ID); len(k.aliases[r.Alias]) == 0 {
		delete(k.aliases, r.Alias)
	}
}

// Sweep deletes at most limit records that are over at now.
func (k *Keys) Sweep(ctx context.Context, now time.Time, limit int) (int, error) {
	if err := context.Cause(ctx); err != nil {
		return 0, err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	n := 0
	for id, r := range k.rows {
		if n == limit {
			break
		}
		if r.v.Expired(now) {
			delete(k.rows, id)
			k.forgetAlias(r.v)
			n++
		}
	}
	return n, nil
}

// List returns a page of the records that f selects, newest first, without their
// headers and bodies.
func (k *Keys) List(ctx context.Context, f key.Filter, p keep.Page) ([]key.Record, string, error) {
	if err := context.Cause(ctx); err != nil {
		return nil, "", err
	}
	before := int64(1<<63 - 1)
	if p.After != "" {
		n, err := strconv.ParseInt(p.After, 10, 64)
		if err != nil || n < 1 {
			return nil, "", fmt.Errorf("list keys after %q: %w", p.After, keep.ErrBadCursor)
		}
		before = n
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	var found []row[key.Record]
	for _, r := range k.rows {
		if r.n < before && (f.State == "" || r.v.State == f.State) && (f.Key == "" || r.v.Key == f.Key) &&
			(f.Caller == "" || r.v.Caller == f.Caller) {
			found = append(found, r)
		}
	}
	slices.SortFunc(found, func(a, b row[key.Record]) int { return int(b.n - a.n) })
	cursor := ""
	if len(found) > p.Size() {
		found = found[:p.Size()]
		cursor = strconv.FormatInt(found[len(found)-1].n, 10)
	}
	var list []key.Record
	for _, r := range found {
		r.v.Answer.Header, r.v.Answer.Body = nil, nil
		list = append(list, r.v)
	}
	return list, cursor, nil
}

// copyRecord returns a record that shares nothing with r, with times as every
// store keeps them.
func copyRecord(r key.Record) key.Record {
	r.Former = key.ID{}
	r.Answer.Header, r.Answer.Body = bytes.Clone(r.Answer.Header), bytes.Clone(r.Answer.Body)
	for _, t := range []*time.Time{&r.LeaseUntil, &r.DoubtAt, &r.CreatedAt, &r.UpdatedAt, &r.ExpiresAt} {
		if !t.IsZero() {
			*t = time.UnixMilli(t.UnixMilli()).UTC()
		}
	}
	return r
}

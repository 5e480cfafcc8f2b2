package httpapi

import (
	"context"
	"encoding/json"
	"errors"
	"net/url"
	"slices"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector"
	"github.com/keep-run/keep/connector/internal/match"
)

// Count returns how many effects of mut the lookup shows. It sends nothing again.
func (r *reconciler) Count(ctx context.Context, mut keep.Mutation) (int, error) {
	if r.lookup == nil {
		return 0, errors.ErrUnsupported
	}
	q := questionOfNow(ctx, mut)
	target, err := r.lookup.request(r.service, q)
	if err != nil {
		return 0, r.failf(keep.ClassLogic, "bad-params", "reconcile: %v", err)
	}
	if r.lookup.pages != nil {
		return r.countThrough(ctx, target, q)
	}
	a, seen, err := r.lookAt(ctx, target, nil, q)
	if err != nil {
		return 0, err
	}
	switch answer := r.lookup.judge(a, q); answer.Verdict {
	case connector.Absent, connector.Unwitnessed:
		return 0, nil
	case connector.Happened:
		return r.lookup.countIn(a, q), nil
	default:
		return 0, r.failf(keep.ClassTransient, "no-answer", "%s%s", seen, answer.Detail)
	}
}

// countIn counts the records of an answer that prove the effect.
func (l *lookup) countIn(a answer, mut question) int {
	found, err := a.record()
	if err == nil && l.items != nil {
		found, _ = l.items.Find(found)
	}
	records, listed := match.Elements(found)
	if !listed {
		return 1 // the answer is the one record, and it was recognised
	}
	return l.count(records, mut)
}

// count counts the records of a list that prove the effect.
func (l *lookup) count(records []json.RawMessage, mut question) (n int) {
	for _, record := range records {
		if l.proves(record, true, mut) {
			n++
		}
	}
	return n
}

// countThrough counts in a list that comes in pages.
func (r *reconciler) countThrough(ctx context.Context, target string, mut question) (n int, err error) {
	fetch := func(at string, more url.Values) (answer, json.RawMessage, *keep.Failure) {
		a, seen, err := r.lookAt(ctx, at, more, mut)
		if err != nil {
			return a, nil, asFailure(err)
		}
		body, err := a.record()
		if !a.isJSON() || err != nil || !slices.Contains(r.lookup.applied, a.status) {
			return a, nil, keep.Failf(keep.ClassTransient, "odd-page", "%s, but without a page that can be read", seen)
		}
		return a, body, nil
	}
	read := 0
	f := r.lookup.pages.each(r.service, target, "", fetch, func(_ string, p page) bool {
		read += len(p.items)
		n += r.lookup.count(p.items, mut)
		return read < maxLookupItems
	})
	if f != nil {
		return 0, f
	}
	return n, nil
}

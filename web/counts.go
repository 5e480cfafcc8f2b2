package web

import (
	"context"
	"errors"
	"time"

	"github.com/keep-run/keep"
)

// sum adds up counts.
func sum[S comparable](counts map[S]int) int {
	n := 0
	for _, c := range counts {
		n += c
	}
	return n
}

// countTime is how long a page waits for the number of titles that match. On SQLite
// that is ever enough, nearly; Postgres takes seconds for words that a million titles
// have, and counts them on request.
const countTime = 80 * time.Millisecond

// errCountTime ends a count that takes too long to wait for.
var errCountTime = errors.New("counting takes too long")

// counted returns exact numbers, or nil if a page with a text would have to wait for
// them, unless it is told to.
func counted[S comparable](ctx context.Context, text string, wait bool, count func(context.Context) (map[S]int, error)) (map[S]int, error) {
	if text != "" && !wait {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, countTime, errCountTime)
		defer cancel()
	}
	counts, err := count(ctx)
	if err != nil && errors.Is(context.Cause(ctx), errCountTime) {
		return nil, nil
	}
	return counts, err
}

// inputCounts counts the inputs of each status that match the rest of the filter.
// A page shows exact numbers or none: known is false if they take too long.
func (s *site) inputCounts(ctx context.Context, f inputQuery) (out []inputCount, known bool, err error) {
	every := f.InputFilter
	every.Status = ""
	counts, err := counted(ctx, f.Text, f.Count, func(ctx context.Context) (map[keep.InputStatus]int, error) {
		return s.cfg.Store.CountInputs(ctx, every)
	})
	if err != nil {
		return nil, false, err
	}
	out = []inputCount{{"", sum(counts), "/inputs" + f.Query("")}}
	for _, st := range keep.InputStatuses() {
		out = append(out, inputCount{st, counts[st], "/inputs" + f.Query(st)})
	}
	return out, counts != nil, nil
}

// totals are numbers of the whole database.
type totals struct {
	Inputs    map[keep.InputStatus]int
	Mutations map[keep.MutationState]int
}

// All returns how many there are.
func (t totals) AllInputs() int { return sum(t.Inputs) }

// AllMutations returns how many there are.
func (t totals) AllMutations() int { return sum(t.Mutations) }

// InDoubt returns how many outcomes are not known.
func (t totals) InDoubt() int {
	return t.Mutations[keep.InFlight] + t.Mutations[keep.NeedsReconcile] + t.Mutations[keep.Indeterminate]
}

// Pending returns how many inputs are not finished.
func (t totals) Pending() int { return t.Inputs[keep.InputPending] }

// today is what was new since midnight UTC.
type today struct{ Inputs, Mutations some }

// maxToday bounds what is counted: a page reads no more rows for a number.
const maxToday = 1000

// A some is a number, or that it is more than maxToday.
type some struct {
	N    int
	More bool
}

// String writes the number.
func (s some) String() string {
	if s.More {
		return "over " + number(maxToday)
	}
	return number(s.N)
}

// today counts the newest rows down to midnight.
func (s *site) today(ctx context.Context, now time.Time) (t today, err error) {
	midnight := now.UTC().Truncate(24 * time.Hour)
	p := keep.Page{Limit: maxToday + 1, Bare: true}
	ins, _, err := s.cfg.Store.Inputs(ctx, keep.InputFilter{}, p)
	if err != nil {
		return t, err
	}
	t.Inputs = since(ins, midnight, func(in keep.Input) time.Time { return in.CreatedAt })
	ms, _, err := s.cfg.Store.Mutations(ctx, keep.MutationFilter{}, p)
	t.Mutations = since(ms, midnight, func(m keep.Mutation) time.Time { return m.CreatedAt })
	return t, err
}

// since counts the rows that were made at or after t.
func since[T any](rows []T, t time.Time, made func(T) time.Time) some {
	var out some
	for _, r := range rows {
		if !made(r).Before(t) {
			out.N++
		}
	}
	out.More = out.N > maxToday
	return out
}

func (s *site) totals(ctx context.Context) (t totals, err error) {
	if t.Inputs, err = s.cfg.Store.CountInputs(ctx, keep.InputFilter{}); err != nil {
		return t, err
	}
	t.Mutations, err = s.cfg.Store.CountMutations(ctx, keep.MutationFilter{})
	return t, err
}

package web

import (
	"context"
	"net/url"
	"slices"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/law/lifecycle"
	"github.com/keep-run/keep/view"
)

// sum adds up counts.
func sum[S comparable](counts map[S]int) int {
	n := 0
	for _, c := range counts {
		n += c
	}
	return n
}

// A period is that of a filter, as a form has it.
type period struct{ Since, Until string }

// periodOf reads the period of a filter.
func periodOf(q url.Values) (period, keep.Period, error) {
	p := period{q.Get("since"), q.Get("until")}
	made, err := view.ParsePeriod(p.Since, p.Until, time.Now())
	if err != nil {
		return p, made, refusef("%s", err)
	}
	return p, made, nil
}

// checkFilter refuses a filter of a list that no store could answer.
func checkFilter[S ~string](text string, status S, known []S) error {
	if status != "" && !slices.Contains(known, status) {
		return refusef("there is no status %q", cut(40, string(status)))
	}
	if err := view.CheckText(text); err != nil {
		return refusef("%s", err)
	}
	return nil
}

// inputCounts counts the inputs of each status that match the rest of the filter, and
// reports whether there are more.
func (s *site) inputCounts(ctx context.Context, f inputQuery) (out []inputCount, more bool, err error) {
	every := f.InputFilter
	every.Status = ""
	by, err := s.cfg.Store.CountInputs(ctx, every)
	if err != nil {
		return nil, false, err
	}
	found := view.FoundOf(f.Bounded(), by)
	out = []inputCount{{"", found.Total, "/inputs" + f.Query("")}}
	for _, st := range keep.InputStatuses() {
		out = append(out, inputCount{st, by[st], "/inputs" + f.Query(st)})
	}
	return out, found.More, nil
}

// totals are numbers of the whole database.
type totals struct {
	Inputs    map[keep.InputStatus]int
	Mutations map[keep.MutationState]int
}

// AllInputs returns how many there are.
func (t totals) AllInputs() int { return sum(t.Inputs) }

// AllMutations returns how many there are.
func (t totals) AllMutations() int { return sum(t.Mutations) }

// A stateCount is how many mutations are in a state.
type stateCount struct {
	State keep.MutationState
	N     int
}

// Doubts returns how many outcomes a service, or a person, must tell.
func (t totals) Doubts() []stateCount {
	var out []stateCount
	for _, state := range lifecycle.Doubts() {
		out = append(out, stateCount{state, t.Mutations[state]})
	}
	return out
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
	// One more than is shown tells "exactly" from "more than".
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

package budget

import (
	"slices"
	"time"

	"github.com/keep-run/keep"
)

// An EntryState says what became of what a call took.
type EntryState string

const (
	Spent    EntryState = "spent"    // the call happened, or a person skipped it without knowing
	InDoubt  EntryState = "in_doubt" // it may have happened, or may yet
	Returned EntryState = "returned" // it is known not to have happened
)

// An Entry is what one call counts in a budget.
type Entry struct {
	Mutation keep.MutationKey
	Workflow keep.WorkflowName
	Tool     keep.ToolName
	Target   string
	Amount   keep.Amount
	State    EntryState
	At       time.Time
	Allowed  bool // a person allowed it beside the limit
}

// EntriesOf returns what records count in a budget, in their order.
func (r Rule) EntriesOf(records []keep.Mutation) []Entry {
	names := r.Names()
	var list []Entry
	for _, m := range records {
		for _, s := range m.Spent {
			if slices.Contains(names, s.Budget) {
				list = append(list, Entry{m.Key, m.Workflow, m.Tool, m.Target, s.Amount, stateOf(m.State), m.SpentAt, s.Allowed})
			}
		}
	}
	return list
}

func stateOf(s keep.MutationState) EntryState {
	switch {
	case !s.Spends():
		return Returned
	case s.InDoubt():
		return InDoubt
	}
	return Spent
}

// A Balance is how a budget stands.
type Balance struct {
	Limit   keep.Amount
	Spent   keep.Amount // with what is in doubt
	InDoubt keep.Amount
}

// Left returns how much room there is.
func (b Balance) Left() keep.Amount { return max(b.Limit-b.Spent, 0) }

// Fits reports whether there is room for an amount. A sum that equals the limit is within it.
func (b Balance) Fits(a keep.Amount) bool { return b.Spent.Plus(a) <= b.Limit }

// BalanceOf returns how a budget stands at now with these records, but for that of except.
func (r Rule) BalanceOf(s State, records []keep.Mutation, except keep.MutationKey, now time.Time) Balance {
	b, since := Balance{Limit: r.LimitAt(s, now)}, now.Add(-r.Per)
	for _, m := range records {
		if m.Key == except {
			continue
		}
		n := m.Counts(r.Names(), since)
		if b.Spent = b.Spent.Plus(n); m.State.InDoubt() {
			b.InDoubt = b.InDoubt.Plus(n)
		}
	}
	return b
}

// RoomAt returns when there is room for an amount, if nothing else is spent and no doubt ends
// until then: now, later, or never, which is zero.
func (r Rule) RoomAt(s State, records []keep.Mutation, except keep.MutationKey, amount keep.Amount, now time.Time) time.Time {
	times := []time.Time{now}
	for _, m := range records {
		if m.Counts(r.Names(), now.Add(-r.Per)) > 0 && !m.State.InDoubt() && m.Key != except {
			times = append(times, m.SpentAt.Add(r.Per))
		}
	}
	if up := s.Raise; up != nil && up.Until.After(now) {
		times = append(times, up.Until) // one of before may also lower
	}
	slices.SortFunc(times, time.Time.Compare)
	for _, at := range times {
		if r.BalanceOf(s, records, except, at).Fits(amount) {
			return at
		}
	}
	return time.Time{}
}

// Standing returns how a budget stands at now, of which so much is spent.
func (r Rule) Standing(s State, spent keep.SpentSum, now time.Time) Balance {
	return Balance{Limit: r.LimitAt(s, now), Spent: spent.All, InDoubt: spent.InDoubt}
}

// FindRoom is RoomAt for who knows sums: spent says what is spent after a time. It asks some 40 times.
func (r Rule) FindRoom(s State, amount keep.Amount, now time.Time, spent func(since time.Time) (keep.SpentSum, error)) (time.Time, error) {
	fits := func(at time.Time) (bool, error) {
		sum, err := spent(at.Add(-r.Per))
		return r.Standing(s, sum, at).Fits(amount), err
	}
	from, end := now, now.Add(r.Per+MaxPer) // by then all that is settled has left, also what a clock that is ahead began
	stages := []time.Time{end}
	if up := s.Raise; up != nil && up.Until.After(now) { // another limit holds from then on
		stages = []time.Time{up.Until.Add(-1).Truncate(time.Millisecond), up.Until, end}
	}
	if ok, err := fits(now); ok || err != nil {
		return now, err
	}
	for _, to := range stages {
		if !to.After(from) {
			continue
		}
		ok, err := fits(to)
		switch {
		case err != nil:
			return time.Time{}, err
		case !ok:
			from = to
			continue
		}
		for low := from.Truncate(time.Millisecond); ; { // it does not fit at low
			middle := low.Add(to.Sub(low) / 2).Truncate(time.Millisecond)
			if !middle.After(low) {
				return to, nil
			}
			if ok, err = fits(middle); err != nil {
				return time.Time{}, err
			}
			if ok {
				to = middle
			} else {
				low = middle
			}
		}
	}
	return time.Time{}, nil
}

package keep

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"
)

// An Amount is what a budget counts, in millionths: sums of it are exact.
type Amount int64

// AmountUnit is one.
const AmountUnit Amount = 1_000_000

// MaxAmount is the largest limit of a budget, and the largest amount of one call.
const MaxAmount = 1_000_000_000_000 * AmountUnit

// Plus returns the sum, at most the largest Amount that there is.
func (a Amount) Plus(b Amount) Amount {
	if b > 0 && a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}

// Number returns the amount as JSON has it.
func (a Amount) Number() float64 { return float64(a) / float64(AmountUnit) }

// String writes the amount for people: "1999.5".
func (a Amount) String() string { return strconv.FormatFloat(a.Number(), 'f', -1, 64) }

// A Spent is what a call counts in a budget, and under which limit it was taken.
type Spent struct {
	Budget  string        `json:"budget"`
	Was     []string      `json:"was,omitempty"` // all names that the budget had before
	Amount  Amount        `json:"amount"`
	Limit   Amount        `json:"limit"`             // of what all calls count within Per
	Per     time.Duration `json:"per"`               // the window, which slides
	Allowed bool          `json:"allowed,omitempty"` // a person allowed this call beside the limit
}

// Names returns all names of the budget, that of today first: records have those of their time.
func (s Spent) Names() []string { return append([]string{s.Budget}, s.Was...) }

// A SpentSum is what calls count in a budget together.
type SpentSum struct {
	All     Amount // with what is in doubt
	InDoubt Amount
}

// Counts returns what m counts in a budget, by all its names, at a time after since: what was spent
// later, and what is in doubt however old it is, because that may happen yet. What is known not to
// have happened was given back.
func (m Mutation) Counts(names []string, since time.Time) Amount {
	if !m.State.Spends() || !m.SpentAt.After(since) && !m.State.InDoubt() {
		return 0
	}
	var sum Amount
	for _, s := range m.Spent {
		if slices.Contains(names, s.Budget) {
			sum = sum.Plus(s.Amount)
		}
	}
	return sum
}

// Spends reports whether a call in state s counts in its budgets.
func (s MutationState) Spends() bool { return s != Failed }

// InDoubt reports whether it is not known what became of a call in state s.
func (s MutationState) InDoubt() bool {
	return s == InFlight || s == NeedsReconcile || s == Indeterminate
}

// An OverBudgetError is returned when a commit has a Within, and its call does not fit. It is
// ErrStale: who reads again finds what was spent.
type OverBudgetError struct {
	Key    MutationKey // of the call
	Spent              // what it would count
	Others Amount      // what other calls count
}

// Error names the call, the budget and the numbers.
func (e *OverBudgetError) Error() string {
	return fmt.Sprintf("mutation %s: %s in budget %s, of which %s of %s is spent: %v", e.Key, e.Amount, e.Budget, e.Others, e.Limit, ErrStale)
}

// Is makes it an ErrStale.
func (e *OverBudgetError) Is(target error) bool { return target == ErrStale }

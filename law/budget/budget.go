// Package budget decides what calls count in budgets, and whether there is room for one more
// (law: within-budget).
//
// What a call counts is fixed by the commit that records it, before anything is sent, and stands
// in its record: so what was spent is what the ledger says, and stores keep nothing else but sums of it. What is
// known not to have happened is given back by the same fact. What is in doubt counts as spent,
// however old it is, because it may happen yet; what is settled leaves the window when that
// has passed since its commit.
//
// Amounts are exact to a millionth. What is finer is rounded up, but for the error of a number
// with a fraction.
package budget

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"regexp"
	"slices"
	"sync"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/law/grant"
)

// A Rule is a budget as it is configured.
type Rule struct {
	Name      string
	Was       []string            // all names that it had before, in records
	Tools     []string            // names, or "bank.*" or "*"; none: all, of Workflows
	Workflows []keep.WorkflowName // none: all, of Tools
	Sum       string              // an expression over params; empty: calls are counted
	Limit     keep.Amount
	Per       time.Duration

	number *grant.Number // of Sum
}

// MaxPer is the longest window.
const MaxPer = 366 * 24 * time.Hour

// names are those that a budget may have. They stand in records, commands and addresses.
var names = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[a-zA-Z0-9][a-zA-Z0-9_.-]{0,63}$`) })

// A FieldError says which key of a budget makes no sense, and why.
type FieldError struct {
	Field string // empty: the whole of it
	Err   error
}

// Error says why.
func (e *FieldError) Error() string { return e.Err.Error() }

// Unwrap returns why.
func (e *FieldError) Unwrap() error { return e.Err }

func wrongf(field, format string, args ...any) error {
	return &FieldError{field, fmt.Errorf(format, args...)}
}

// New returns r ready to decide, or a *FieldError.
func New(r Rule) (Rule, error) {
	switch {
	case !names().MatchString(r.Name):
		return r, wrongf("", "%q is no name of a budget: letters, digits, - _ and ., at most 64", r.Name)
	case slices.ContainsFunc(r.Was, func(was string) bool { return !names().MatchString(was) }):
		return r, wrongf("was", "%q: a name that it had before is no name of a budget: letters, digits, - _ and ., at most 64", r.Was)
	case len(r.Tools) == 0 && len(r.Workflows) == 0:
		return r, wrongf("", `it is about no call: say which with tools = ["bank.pay"] or workflows = ["payouts"]; tools = ["*"] is all`)
	case r.Limit < 0 || r.Limit > keep.MaxAmount:
		return r, wrongf("limit", "limit must be from 0 to %s", keep.MaxAmount)
	case r.Per < time.Second || r.Per > MaxPer:
		return r, wrongf("per", "per must be from 1s to %s", MaxPer)
	}
	if r.Sum == "" {
		return r, nil
	}
	var err error
	if r.number, err = grant.CompileNumber(r.Sum); err != nil {
		return r, wrongf("sum", "%q: %w", r.Sum, err)
	}
	return r, nil
}

// Ready returns rules ready to decide, as New makes them, or all that is wrong with them. Two have no
// name in common: what was spent under it counts in one.
func Ready(rules []Rule) ([]Rule, error) {
	var errs []error
	ready, taken := make([]Rule, len(rules)), make(map[string]bool)
	for i, r := range rules {
		var err error
		if ready[i], err = New(r); err != nil {
			errs = append(errs, fmt.Errorf("budget %q: %w", r.Name, err))
		}
		for _, name := range r.Names() {
			if taken[name] {
				errs = append(errs, fmt.Errorf("budget %q: %q is a name of two budgets, or said twice", r.Name, name))
			}
			taken[name] = true
		}
	}
	return ready, errors.Join(errs...)
}

// Mark returns a mark of what the rule says: that of another rule differs. It is stored.
func (r Rule) Mark() string {
	text, _ := json.Marshal([]any{r.Tools, r.Workflows, r.Sum, r.Limit, r.Per}) // nothing in it can fail
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:8])
}

// Names returns all names of the budget, that of today first.
func (r Rule) Names() []string { return append([]string{r.Name}, r.Was...) }

// Kind returns what the budget adds up: "sum" of a number in params, or "count" of calls.
func (r Rule) Kind() string {
	if r.Sum != "" {
		return "sum"
	}
	return "count"
}

// Window returns Per as configuration writes it.
func (r Rule) Window() string {
	for _, u := range []struct {
		name string
		of   time.Duration
	}{{"h", time.Hour}, {"m", time.Minute}, {"s", time.Second}} {
		if r.Per >= u.of && r.Per%u.of == 0 {
			return fmt.Sprintf("%d%s", r.Per/u.of, u.name)
		}
	}
	return r.Per.String()
}

// Covers reports whether the budget is about a call of that tool by that workflow.
func (r Rule) Covers(w keep.WorkflowName, t keep.ToolName) bool {
	if len(r.Workflows) > 0 && !slices.Contains(r.Workflows, w) {
		return false
	}
	return len(r.Tools) == 0 || slices.ContainsFunc(r.Tools, func(name string) bool {
		return name == "*" || keep.GrantedTool{Tool: name}.Matches(t)
	})
}

// AmountOf returns what a call with these params counts. An error means that it is not known, and
// the call must not be made.
func (r Rule) AmountOf(params []byte) (keep.Amount, error) {
	if r.Sum == "" {
		return keep.AmountUnit, nil
	}
	if r.number == nil {
		return 0, errors.New("it cannot be used")
	}
	v, err := r.number.Eval(params)
	if err != nil {
		return 0, err
	}
	switch n := v.(type) {
	case int64:
		return FromInt(n)
	case uint64:
		return FromInt(int64(min(n, math.MaxInt64)))
	case float64:
		return FromFloat(n)
	}
	return 0, fmt.Errorf("it is a %T, and must be a number", v)
}

// FromInt returns a whole number as an amount.
func FromInt(n int64) (keep.Amount, error) {
	if n < 0 || n > int64(keep.MaxAmount/keep.AmountUnit) {
		return 0, fmt.Errorf("%d is not a number from 0 to %s", n, keep.MaxAmount)
	}
	return keep.Amount(n) * keep.AmountUnit, nil
}

// FromFloat returns a number as an amount. It is rounded up: but for what a fraction is
// stored wrong by, no amount counts less than it is.
func FromFloat(f float64) (keep.Amount, error) {
	if !(f >= 0 && f <= keep.MaxAmount.Number()) { // NaN is neither
		return 0, fmt.Errorf("%v is not a number from 0 to %s", f, keep.MaxAmount)
	}
	const fault = 1e-3 // of a millionth
	scaled := f * float64(keep.AmountUnit)
	whole := math.Round(scaled)
	if scaled-whole > fault || whole == 0 && f > 0 {
		whole++
	}
	return keep.Amount(whole), nil
}

// A State is what is stored of a budget beside the ledger. Its zero value is that of a budget
// about which nobody was asked.
type State struct {
	Asked   int      `json:"asked,omitempty"`   // questions that were asked about it
	Raise   *Raise   `json:"raise,omitempty"`   // nil: the configured limit holds
	Raising *Raising `json:"raising,omitempty"` // nil: nobody gives it another limit at the moment
}

// A Raising is a question, and the limits with which people are about to answer it. None of them holds before the
// answer of who gave it is recorded.
type Raising struct {
	Question keep.EscalationID `json:"question"`
	Limits   []Raise           `json:"limits"`
}

// maxLimits bounds the limits that are about to be given (law: bounded). Those of processes that died count.
const maxLimits = 50

// With returns s with one more limit with which a question is about to be answered, and the time of that answer: no
// other of the same person has it.
func (s State) With(q keep.EscalationID, up Raise) (State, time.Time) {
	var limits []Raise
	if s.Raising != nil && s.Raising.Question == q {
		limits = s.Raising.Limits[max(0, len(s.Raising.Limits)-maxLimits+1):]
	}
	for slices.ContainsFunc(limits, func(r Raise) bool { return r.By == up.By && r.At.Equal(up.At) }) {
		up.At = up.At.Add(time.Millisecond)
	}
	s.Raising = &Raising{q, append(slices.Clone(limits), up)}
	return s, up.At
}

// Read returns the state that the row of a budget says. find reads a question: an answer that is recorded counts,
// whether the row says so yet or not.
func Read(row keep.Gate, find func(keep.EscalationID) (keep.Escalation, error)) (s State, err error) {
	if len(row.State) > 0 {
		err = json.Unmarshal(row.State, &s)
	}
	if err == nil && s.Raising != nil {
		var q keep.Escalation
		if q, err = find(s.Raising.Question); err == nil && !q.ClosedAt.IsZero() || errors.Is(err, keep.ErrNotFound) {
			s, err = s.answered(q.Decision), nil
		}
	}
	if err != nil {
		return s, fmt.Errorf("state of %s: %w", row.Connection, err)
	}
	return s, nil
}

// answered returns s after the answer to the question of Raising; nil: it ended without one.
func (s State) answered(d *keep.Decision) State {
	if d != nil && d.Action == keep.Raise {
		for _, up := range s.Raising.Limits {
			if up.By == d.By && up.At.Equal(d.At) {
				s.Raise = &up
			}
		}
	}
	s.Raising = nil
	return s
}

// A Raise is the limit that a person gave to a budget.
type Raise struct {
	Limit keep.Amount `json:"limit"`
	Over  keep.Amount `json:"over"`           // the configured limit then: another one ends the raise
	Until time.Time   `json:"until,omitzero"` // zero: it has no end
	By    string      `json:"by"`
	At    time.Time   `json:"at"` // of the answer, too
}

// LimitAt returns the limit that holds at now.
func (r Rule) LimitAt(s State, now time.Time) keep.Amount {
	if up := s.Raise; up != nil && up.Over == r.Limit && (up.Until.IsZero() || now.Before(up.Until)) {
		return up.Limit
	}
	return r.Limit
}

// QuestionID returns the id of the nth question about a budget: of two hosts that ask at once,
// one finds that it was asked.
func QuestionID(name string, n int) keep.EscalationID {
	return keep.EscalationID(fmt.Sprintf("esc_budget_%s_%d", name, n))
}

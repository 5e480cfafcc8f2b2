package simtest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/law/budget"
	"github.com/keep-run/keep/law/ledger"
	"github.com/keep-run/keep/operator"
)

// In every third world calls count in budgets. What they may spend is added up here a second
// time, from the commits that recorded them and not from what those say they count.

// A spending is what a call counts, in all budgets of the world that are about it.
type spending struct {
	workflow keep.WorkflowName
	tool     keep.ToolName
	payload  json.RawMessage
	at       time.Time // when it was recorded last
	state    keep.MutationState
}

// counts reports whether it counts at now, of a window, by a minute less than there is.
func (s spending) counts(now time.Time, per time.Duration) bool {
	return s.state.InDoubt() || s.state.Spends() && s.at.After(now.Add(time.Minute-per))
}

// amount is what a call counts in a budget. Ids are ASCII.
func amount(r budget.Rule, params []byte) keep.Amount {
	if r.Sum == "" {
		return keep.AmountUnit
	}
	var p struct{ ID string }
	_ = json.Unmarshal(params, &p) // without an id it counts nothing
	return keep.Amount(len(p.ID)) * keep.AmountUnit
}

// budget draws what calls may spend. The draws are its own: see orders.
func (w *world) budget() {
	rng := rand.New(rand.NewPCG(w.seed, 9))
	if rng.IntN(3) > 0 {
		return
	}
	per := []time.Duration{5 * time.Minute, 20 * time.Minute, time.Hour}[rng.IntN(3)]
	for _, r := range [][]budget.Rule{
		{{Name: "calls", Tools: []string{"*"}, Limit: keep.Amount(1 + rng.IntN(4))}},
		{{Name: "first", Workflows: []keep.WorkflowName{w.flows[0].name}, Limit: keep.Amount(rng.IntN(3))}},
		{{Name: "letters", Tools: []string{"*"}, Sum: "size(params.id)", Limit: keep.Amount(4 + rng.IntN(12))},
			{Name: "calls", Tools: []string{"*"}, Limit: 3}},
	}[rng.IntN(3)] {
		r.Limit, r.Per = r.Limit*keep.AmountUnit, per
		r, err := budget.New(r)
		if err != nil {
			panic(err) // the plan is wrong
		}
		w.budgets = append(w.budgets, r)
	}
}

// watchSpending looks whether there was room for a call that was just recorded. A sweep by a clock
// that is ahead forgets what counts by the clock that is set back later; Check knows only the rest.
func (w *world) watchSpending(put keep.PutMutation) {
	m := put.Mutation
	s := w.spent[m.Key]
	s.workflow, s.tool, s.payload, s.state = m.Workflow, m.Tool, m.Payload, m.State
	n := slices.IndexFunc(put.Moves, func(v keep.Move) bool { return v.To == keep.InFlight })
	if n >= 0 {
		s.at = put.Moves[n].At
	}
	w.spent[m.Key] = s
	if n < 0 {
		return
	}
	for _, r := range w.budgets {
		if !r.Covers(m.Workflow, m.Tool) {
			continue
		}
		i := slices.IndexFunc(m.Spent, func(v keep.Spent) bool { return v.Budget == r.Name })
		switch {
		case i < 0 || m.Spent[i].Amount != amount(r, m.Payload):
			w.broken("within-budget", "%s counts %+v, and not %s in %s", m.Key, m.Spent, amount(r, m.Payload), r.Name)
			continue
		case m.Spent[i].Allowed:
			w.saw("budget: allowed")
			if !w.allowedBeside(m, m.Spent[i]) {
				w.broken("within-budget", "%s is recorded beside the limit of %s, and nobody allowed it", m.Key, r.Name)
			}
			continue
		}
		limit, sum := max(r.Limit, w.raised[r.Name]), keep.Amount(0)
		for key, other := range w.spent {
			if r.Covers(other.workflow, other.tool) && other.counts(s.at, r.Per) && !w.isSwept(key) {
				sum += amount(r, other.payload)
			}
		}
		if sum > limit {
			w.broken("within-budget", "%s is recorded to be sent, and with it %s is spent of %s, of %s within %s", m.Key, sum, r.Name, limit, r.Per)
		}
	}
}

// isSwept reports whether a clock that was ahead, and is set back, let a record be forgotten.
func (w *world) isSwept(key keep.MutationKey) bool {
	if w.seen["fault: the clock was set back"]+w.seen["fault: the clock was set back under the host"] == 0 {
		return false
	}
	_, err := w.store.Mutation(context.Background(), key)
	if errors.Is(err, keep.ErrNotFound) {
		return true
	}
	w.must("read a record", err)
	return false
}

// allowedBeside reports whether a person allowed this very call, with what it counts.
func (w *world) allowedBeside(m keep.Mutation, s keep.Spent) bool {
	var want []string
	for _, tool := range allNames(m.Tool) { // it may have had another one when the person answered
		want = append(want, ledger.Hash(fmt.Appendf(nil, "%s:%s:%s:%s:%d", m.Key, m.PayloadHash, m.PinHash, tool, s.Amount)))
	}
	qs, _, err := w.store.Escalations(context.Background(), keep.EscalationFilter{Workflow: m.Workflow}, keep.Page{Limit: keep.MaxPage})
	w.must("read questions", err)
	return slices.ContainsFunc(qs, func(q keep.Escalation) bool {
		return q.Kind == keep.AskBudget && q.Budget == s.Budget && slices.Contains(want, q.PayloadHash) && q.Decision != nil && q.Decision.Action == keep.Allow
	})
}

// raise adds another limit to an answer. It may hold even if the answer is lost.
func (w *world) raise(q keep.Escalation, d *keep.Decision) {
	d.Limit = keep.Amount(1+w.below(20)) * keep.AmountUnit
	if w.calm {
		d.Limit = 1_000_000 * keep.AmountUnit
	}
	if !w.calm && w.chance(0.5) {
		d.Until = w.hostTime().Add(w.span(time.Hour))
	}
	w.raised[q.Budget] = max(w.raised[q.Budget], d.Limit)
}

// Spending implements store.Spending.
func (s *store) Spending(ctx context.Context, since time.Time) ([]keep.Mutation, error) {
	if err := s.read(ctx, "spending"); err != nil {
		return nil, err
	}
	return s.Store.Spending(ctx, since)
}

// Spent implements store.Spending.
func (s *store) Spent(ctx context.Context, names []string, since time.Time, except keep.MutationKey) (keep.SpentSum, error) {
	if err := s.read(ctx, "spending"); err != nil {
		return keep.SpentSum{}, err
	}
	return s.Store.Spent(ctx, names, since, except)
}

// stop pauses the workflow of a question, which stays open.
func (w *world) stop(o *operator.Operator, q keep.Escalation) error {
	err := o.Decide(person, q.ID, keep.Decision{Action: keep.Stop, By: "ann", From: "sim"})
	if err == nil && !q.Allows(keep.Stop) {
		w.broken("explained", "%s was taken as an answer to %s, which offers %v", keep.Stop, q.Kind, q.Choices)
	}
	if err == nil {
		w.saw("action: " + string(keep.Stop))
	}
	return err
}

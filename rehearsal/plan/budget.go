package plan

import (
	"fmt"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/law/budget"
)

// A Standing is a budget, and how it stands when a plan is made.
type Standing struct {
	budget.Rule
	Balance budget.Balance
}

// String says in a few words what a call takes.
func (b Budget) String() string {
	switch {
	case b.Error != nil:
		return fmt.Sprintf("budget %s: refused, %s", b.Name, *b.Error)
	case b.Over:
		return fmt.Sprintf("budget %s: %v, and %v of %v is left: a person is asked first", b.Name, b.Amount, b.Left, b.Limit)
	}
	return fmt.Sprintf("budget %s: %v, then %v of %v is left", b.Name, b.Amount, b.Left, b.Limit)
}

// spend says what a call takes of budgets, as the engine does: all of them have room, or it
// takes nothing of any.
func (p *Plan) spend(m *Mutation, budgets []Standing) {
	sent := m.Grant.Allowed
	takes := make(map[string]keep.Amount)
	for _, s := range budgets {
		if !s.Covers(m.Workflow, m.Tool) {
			continue
		}
		balance := s.Balance
		balance.Spent = balance.Spent.Plus(p.taken[s.Name])
		b := Budget{Name: s.Name, Before: balance.Spent.Number(), Limit: balance.Limit.Number(), Left: balance.Left().Number()}
		amount, err := s.AmountOf(m.params)
		switch {
		case err != nil:
			why := fmt.Sprintf("what the call counts (%s) is not known: %v", s.Sum, err)
			b.Error, sent = &why, false
		case !balance.Fits(amount):
			b.Amount, b.Over, sent = amount.Number(), true, false
		default:
			b.Amount = amount.Number()
			takes[s.Name] = amount
			balance.Spent = balance.Spent.Plus(amount)
			b.Left = balance.Left().Number()
		}
		m.Budgets = append(m.Budgets, b)
	}
	if !sent { // it takes nothing, and what is left stays
		for i, b := range m.Budgets {
			if _, would := takes[b.Name]; would {
				m.Budgets[i].Left += b.Amount
			}
		}
		return
	}
	for name, amount := range takes {
		p.taken[name] = p.taken[name].Plus(amount)
	}
}

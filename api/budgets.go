package api

import (
	"context"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/law/budget"
	"github.com/keep-run/keep/view"
)

// A Budget is how much calls may count within a time, and how it stands.
type Budget struct {
	Name      string              `json:"name"`
	Tools     []string            `json:"tools" doc:"names, such as bank.pay, bank.* or *; empty: all"`
	Workflows []keep.WorkflowName `json:"workflows" doc:"empty: all"`
	Kind      string              `json:"kind" enum:"sum,count"`
	Sum       *string             `json:"sum" doc:"what is added up, an expression (CEL) over params; null: calls are counted"`
	Limit     float64             `json:"limit" doc:"that holds now"`
	Per       string              `json:"per" doc:"the window, which slides"`
	Spent     float64             `json:"spent" doc:"with what is in doubt"`
	InDoubt   float64             `json:"in_doubt" doc:"of calls of which it is not known whether they happened"`
	Left      float64             `json:"left"`
	RoomAt    *Time               `json:"room_at" doc:"when something leaves the window; null: there is room, or nothing does"`
	Raise     *Raise              `json:"raise" doc:"by which a person gave another limit; null: the configured one holds"`
}

// A Raise is a limit that a person gave to a budget.
type Raise struct {
	Limit      float64 `json:"limit"`
	Configured float64 `json:"configured" doc:"limit; another one ends the raise"`
	Until      *Time   `json:"until" doc:"null: it has no end"`
	By         string  `json:"by"`
	At         Time    `json:"at"`
}

// A BudgetEntry is what a call counts in a budget.
type BudgetEntry struct {
	Mutation keep.MutationKey  `json:"mutation"`
	Workflow keep.WorkflowName `json:"workflow"`
	Tool     keep.ToolName     `json:"tool"`
	Amount   float64           `json:"amount"`
	State    budget.EntryState `json:"state" enum:"spent,in_doubt,returned"`
	Allowed  bool              `json:"allowed" doc:"by a person, beside the limit"`
	At       Time              `json:"at" doc:"when the call was recorded"`
}

// BudgetDetail is a budget with what counts in it.
type BudgetDetail struct {
	Budget
	Entries []BudgetEntry `json:"entries" doc:"of the window, and what is in doubt; oldest first"`
}

// BudgetOf returns the object of b.
func BudgetOf(b view.Budget) Budget {
	out := Budget{Name: b.Name, Tools: list(b.Tools), Workflows: list(b.Workflows), Kind: b.Kind(), Sum: orNull(b.Sum), Limit: b.Balance.Limit.Number(),
		Per: b.Window(), Spent: b.Balance.Spent.Number(), InDoubt: b.Balance.InDoubt.Number(), Left: b.Balance.Left().Number(), RoomAt: timeOf(b.RoomAt)}
	if up := b.Raise; up != nil {
		out.Raise = &Raise{up.Limit.Number(), up.Over.Number(), timeOf(up.Until), up.By, Time(up.At)}
	}
	return out
}

// BudgetDetailOf returns the object of b with what counts in it.
func BudgetDetailOf(b view.Budget) BudgetDetail {
	return BudgetDetail{BudgetOf(b), each(b.Entries, func(e budget.Entry) BudgetEntry {
		return BudgetEntry{e.Mutation, e.Workflow, e.Tool, e.Amount.Number(), e.State, e.Allowed, Time(e.At)}
	})}
}

// budgets registers what is about budgets.
func (s *Server) budgets() {
	get(s, "/budgets", "list-budgets", "How much calls may count within a time, and how much is spent; sorted by name",
		func(ctx context.Context, _ *struct{}) (Page[Budget], error) {
			all, err := view.ReadBudgets(ctx, s.cfg.Store, s.cfg.Budgets(), s.cfg.Clock())
			return paged(each(all, BudgetOf), "", err)
		})
	get(s, "/budgets/{budget}", "get-budget", "A budget, and what counts in it",
		func(ctx context.Context, in *struct {
			Name string `path:"budget"`
		}) (BudgetDetail, error) {
			for _, r := range s.cfg.Budgets() {
				if r.Name != in.Name {
					continue
				}
				all, err := view.ReadBudgets(ctx, s.cfg.Store, []budget.Rule{r}, s.cfg.Clock())
				if err != nil {
					return BudgetDetail{}, err
				}
				return BudgetDetailOf(all[0]), nil
			}
			return BudgetDetail{}, &keep.NotFoundError{What: "budget", ID: in.Name}
		})
}

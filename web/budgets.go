package web

import (
	"net/http"
	"strings"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/host/feed"
	"github.com/keep-run/keep/law/budget"
	"github.com/keep-run/keep/view"
)

// budgetsData is how budgets stand.
type budgetsData struct{ Budgets []budgetCard }

// A budgetCard is a budget with its gauge.
type budgetCard struct {
	view.Budget
	Question keep.EscalationID // that is open about it; empty: none
	Of       string            // which calls
}

// Percent returns how much of the limit is spent, at most 100.
func (b budgetCard) Percent() int {
	if b.Balance.Limit <= 0 {
		return 100
	}
	return int(min(100, b.Balance.Spent.Number()/b.Balance.Limit.Number()*100))
}

// shownEntries bounds the calls of a budget that the page shows.
const shownEntries = 20

// Older is how many calls the page does not show.
func (b budgetCard) Older() int { return max(len(b.Entries)-shownEntries, 0) }

// Newest returns the entries that the page shows, newest first.
func (b budgetCard) Newest() []budget.Entry {
	var out []budget.Entry
	for i := len(b.Entries) - 1; i >= 0 && len(out) < shownEntries; i-- {
		out = append(out, b.Entries[i])
	}
	return out
}

// budgets shows what is left of each budget. One that is spent has a question, and the page leads to it.
func (s *site) budgets(r *http.Request) (page, error) {
	p := page{Title: "Budgets", Section: "connections", Watch: []feed.Kind{feed.Mutation, feed.Escalation}}
	var d budgetsData
	if s.cfg.Budgets != nil {
		all, err := view.ReadBudgets(r.Context(), s.cfg.Store, s.cfg.Budgets(), s.cfg.Clock())
		if err != nil {
			return p, err
		}
		open, _, err := s.cfg.Store.Escalations(r.Context(), keep.EscalationFilter{Kind: keep.AskBudget, Open: true}, keep.Page{Limit: keep.MaxPage})
		if err != nil {
			return p, err
		}
		asked := make(map[string]keep.EscalationID)
		for _, q := range open {
			asked[q.Budget] = q.ID
		}
		for _, b := range all {
			d.Budgets = append(d.Budgets, budgetCard{b, asked[b.Name], coveredBy(b.Rule)})
		}
	}
	p.Data = d
	return p, nil
}

// coveredBy says of which calls a budget is.
func coveredBy(r budget.Rule) string {
	what := "calls"
	if r.Sum != "" {
		what = r.Sum
	}
	if len(r.Tools) > 0 {
		what += " of " + strings.Join(r.Tools, ", ")
	}
	for i, w := range r.Workflows {
		what += []string{" by ", ", "}[min(i, 1)] + string(w)
	}
	return what
}

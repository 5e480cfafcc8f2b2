package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/api"
	"github.com/keep-run/keep/cmd/keep/internal/terminal"
)

// budgetsCmd lists budgets and shows what counts in one.
func (a *app) budgetsCmd() *cobra.Command {
	list := func() *cobra.Command {
		cmd := listCmd(a, "", "Budgets: how much calls may spend, and how much is left", listing[api.Budget]{
			header: []string{"BUDGET", "OF", "SPENT", "IN DOUBT", "LEFT", "LIMIT", "PER", "ROOM AT"},
			// Budgets are as many as keep.toml has: they are read whole, and selected here.
			fetch: func(ctx context.Context, c *api.Client, f listFlags, p api.Paging) (api.Page[api.Budget], error) {
				all, err := c.Budgets(ctx)
				var of []api.Budget
				for _, b := range all {
					w := keep.WorkflowName(f.workflow)
					// A budget without workflows is one of all of them.
					if w == "" || len(b.Workflows) == 0 || slices.Contains(b.Workflows, w) {
						of = append(of, b)
					}
				}
				return inMemory(of, p, func(b api.Budget) string { return b.Name }, err)
			},
			row: func(b api.Budget) []string {
				return []string{b.Name, budgetOf(b), amount(b.Spent), amount(b.InDoubt), amount(b.Left), amount(b.Limit), b.Per, a.sinceThen(b.RoomAt)}
			},
		})
		cmd.Long = `Budgets lists the [budgets.NAME] of keep.toml: how much calls may count within a time, and
how much of that is spent. What is in doubt counts as spent. A call for which there is no
room is not sent; a person is asked once (keep inbox), and can raise the limit.`
		return cmd
	}
	show := showCmd(a, "show BUDGET", "Show a budget, and what counts in it", 1,
		func(ctx context.Context, c *api.Client, args []string) (api.BudgetDetail, error) {
			return c.Budget(ctx, args[0])
		},
		func(_ context.Context, _ *api.Client, b api.BudgetDetail) error { return a.printBudget(b) })
	show.ValidArgsFunction = a.byPosition(budgetNames)
	return noun("budgets", list, show)
}

// budgetNames completes the names of budgets, with what each counts.
func budgetNames(ctx context.Context, c *api.Client, _ []string) ([]string, error) {
	all, err := c.Budgets(ctx)
	var out []string
	for _, b := range all {
		out = append(out, described(b.Name, budgetOf(b)))
	}
	return out, err
}

// amount writes a number for people: without an exponent, and with no more digits than it has.
func amount(n float64) string { return strconv.FormatFloat(n, 'f', -1, 64) }

// budgetOf says of which calls a budget is.
func budgetOf(b api.Budget) string {
	what := "calls"
	if b.Sum != nil {
		what = *b.Sum
	}
	if len(b.Tools) > 0 {
		what += " of " + strings.Join(b.Tools, ", ")
	}
	if len(b.Workflows) > 0 {
		names := make([]string, len(b.Workflows))
		for i, w := range b.Workflows {
			names[i] = string(w)
		}
		what += " by " + strings.Join(names, ", ")
	}
	return terminal.Clean(what)
}

// printBudget shows a budget and what counts in it: which calls took the room is what a person
// wants to know before he raises the limit.
func (a *app) printBudget(b api.BudgetDetail) error {
	var s terminal.Sheet
	s.Add("budget", "%s", b.Name)
	s.Add("of", "%s", budgetOf(b.Budget))
	s.Add("limit", "%s within %s", amount(b.Limit), b.Per)
	if up := b.Raise; up != nil {
		until := "without an end"
		if up.Until != nil {
			until = "until " + a.At(*up.Until)
		}
		s.Add("raised", "by %s at %s, %s; keep.toml says %s", terminal.Clean(up.By), a.At(up.At), until, amount(up.Configured))
	}
	s.Add("spent", "%s, of which %s in doubt", amount(b.Spent), amount(b.InDoubt))
	s.Add("left", "%s", amount(b.Left))
	if b.RoomAt != nil {
		s.Add("room", "at %s", a.At(*b.RoomAt))
	}
	if err := s.Print(a.Out, a.OutInk); err != nil || len(b.Entries) == 0 {
		return err
	}
	fmt.Fprintln(a.Out)
	t := terminal.Table{Header: []string{"MUTATION", "WORKFLOW", "TOOL", "AMOUNT", "STATE", "AT"}}
	for _, e := range b.Entries {
		// A call in doubt has an entry as if it had happened.
		state := string(e.State)
		if e.Allowed {
			state += ", allowed"
		}
		t.Add(string(e.Mutation), string(e.Workflow), string(e.Tool), amount(e.Amount), state, a.At(e.At))
	}
	return t.Print(a.Out, a.OutInk)
}

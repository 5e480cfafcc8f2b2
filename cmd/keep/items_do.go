package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/api"
	"github.com/keep-run/keep/engine"
)

// An itemPlan is what a person wants of an item, and what that will cause.
type itemPlan struct {
	Workflow keep.WorkflowName `json:"workflow"`
	ID       string            `json:"id"`
	Title    string            `json:"title"`
	Status   keep.ItemStatus   `json:"status"`
	Attempt  int               `json:"attempt"`
	Action   keep.Action       `json:"action"`
	Outcome  string            `json:"outcome"` // planned, done or refused
	Why      *string           `json:"why"`     // why it is refused

	// Mutations are the calls of the current attempt, oldest first: those that a
	// reprocessed item makes again, and that a skipped one leaves as they are.
	Mutations []api.Mutation `json:"mutations"`
}

// Outcomes of an itemPlan.
const (
	planned = "planned"
	done    = "done"
	refused = "refused"
)

// An itemsDoer does one thing to many items.
type itemsDoer struct {
	a      *app
	action keep.Action
	do     func(e *engine.Engine) func(context.Context, keep.WorkflowName, string, keep.Decision) error

	all    bool
	status string
	yes    bool
	note   string

	planned, done, refused int
}

func (a *app) reprocessCmd() *cobra.Command {
	d := &itemsDoer{a: a, action: keep.Reprocess, do: func(e *engine.Engine) func(context.Context, keep.WorkflowName, string, keep.Decision) error {
		return e.ReprocessItem
	}}
	return d.command("Do finished items again, as a new attempt",
		`Reprocess lets finished items start over as a new attempt, the next time that
their job comes to them. What they did before is then sent again. Without --yes it
only shows what that is: the calls of the current attempt that were applied.`)
}

func (a *app) skipItemsCmd() *cobra.Command {
	d := &itemsDoer{a: a, action: keep.Skip, do: func(e *engine.Engine) func(context.Context, keep.WorkflowName, string, keep.Decision) error {
		return e.SkipItem
	}}
	return d.command("Leave items that are not done",
		`Skip makes jobs pass items over that are not done. What was applied for them
stays as it is. Without --yes it only shows what that means.`)
}

func (d *itemsDoer) command(short, long string) *cobra.Command {
	cmd := &cobra.Command{
		Use: string(d.action) + " WORKFLOW [ID…]", Short: short, Long: long,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return d.run(cmd.Context(), keep.WorkflowName(args[0]), args[1:])
		},
	}
	statuses := words(keep.ItemStatuses())
	fs := cmd.Flags()
	fs.BoolVar(&d.all, "all", false, "all items of the workflow")
	fs.StringVar(&d.status, "status", "", "all items in this `status`: "+strings.Join(statuses, ", "))
	fs.BoolVar(&d.yes, "yes", false, "do it")
	fs.StringVar(&d.note, "note", "", "`text` that is recorded where a question is answered")
	d.a.completeFlag(cmd, "status", fixed(statuses))
	cmd.ValidArgsFunction = d.a.byPosition(workflowNames, itemIDs)
	return cmd
}

func (d *itemsDoer) run(ctx context.Context, w keep.WorkflowName, ids []string) error {
	ways := 0
	for _, given := range []bool{len(ids) > 0, d.all, d.status != ""} {
		if given {
			ways++
		}
	}
	f := listFlags{limit: 1, status: d.status}
	switch {
	case ways != 1:
		return misusef("name the items, or say --all, or --status S")
	case len(d.note) > maxNote:
		return misusef("--note has %d bytes, want at most %d", len(d.note), maxNote)
	}
	if err := f.check(words(keep.ItemStatuses())); err != nil {
		return err
	}
	return d.a.withEngine(ctx, func(db database, e *engine.Engine) error {
		if _, err := api.ShowWorkflow(ctx, db, w); err != nil {
			return err
		}
		out := pagePrinter[itemPlan]{a: d.a, l: d.listing()}
		if err := d.each(ctx, db, w, ids, func(items []keep.Item, last bool) error {
			plans, err := d.page(ctx, db, e, items)
			if err != nil {
				return err
			}
			return out.print(plans, last)
		}); err != nil {
			return err
		}
		return d.summary()
	})
}

// each calls f with the items that were asked for, page by page.
func (d *itemsDoer) each(ctx context.Context, db database, w keep.WorkflowName, ids []string, f func([]keep.Item, bool) error) error {
	if len(ids) > 0 {
		items := make([]keep.Item, 0, len(ids))
		for _, id := range ids { // all of them exist, or nothing is done
			it, err := db.Item(ctx, w, id)
			if err != nil {
				return err
			}
			items = append(items, it)
		}
		return f(items, true)
	}
	for page := (keep.Page{Limit: 1000}); ; {
		items, next, err := db.Items(ctx, keep.ItemFilter{Workflow: w, Status: keep.ItemStatus(d.status)}, page)
		if err != nil {
			return err
		}
		if err := f(items, next == ""); err != nil || next == "" {
			return err
		}
		page.After = next
	}
}

// page plans what is to be done to the items, and does it if that was said.
func (d *itemsDoer) page(ctx context.Context, db database, e *engine.Engine, items []keep.Item) ([]itemPlan, error) {
	plans := make([]itemPlan, 0, len(items))
	for _, it := range items {
		p := itemPlan{Workflow: it.Workflow, ID: it.ID, Title: it.Title, Status: it.Status, Attempt: it.Attempt,
			Action: d.action, Outcome: planned}
		ms, _, err := db.Mutations(ctx, keep.MutationFilter{Workflow: it.Workflow, Item: it.ID}, keep.Page{Limit: keep.MaxPage})
		if err != nil {
			return nil, err
		}
		p.Mutations = []api.Mutation{}
		for i := range ms {
			if m := ms[len(ms)-1-i]; m.Attempt == it.Attempt {
				p.Mutations = append(p.Mutations, api.MutationOf(m))
			}
		}
		err = e.CanDoItem(it, d.action)
		if err == nil && d.yes {
			p.Outcome = done
			err = d.do(e)(ctx, it.Workflow, it.ID, keep.Decision{By: who(), From: "cli", Note: d.note})
		}
		if err != nil {
			if !isRefusal(err) {
				return nil, err
			}
			why := err.Error()
			p.Outcome, p.Why = refused, &why
		}
		d.count(p.Outcome)
		plans = append(plans, p)
	}
	return plans, nil
}

func (d *itemsDoer) count(outcome string) {
	switch outcome {
	case planned:
		d.planned++
	case done:
		d.done++
	default:
		d.refused++
	}
}

// isRefusal reports whether err says that an item is not in the state that the
// action needs: the others can still be done.
func isRefusal(err error) bool {
	if _, ok := errors.AsType[*engine.ItemError](err); ok {
		return true
	}
	if _, ok := errors.AsType[*engine.ActionError](err); ok {
		return true
	}
	return errors.Is(err, keep.ErrStale) || errors.Is(err, keep.ErrDecided)
}

func (d *itemsDoer) listing() listing[itemPlan] {
	return listing[itemPlan]{
		header: []string{"ITEM", "STATUS", "ATTEMPT", "OUTCOME", map[bool]string{true: "SENDS AGAIN", false: "STAYS AS IT IS"}[d.action == keep.Reprocess]},
		row: func(p itemPlan) []string {
			return []string{p.ID, string(p.Status), number(p.Attempt), p.Outcome, d.effect(p)}
		},
	}
}

// effect says on one line what becomes of the calls of an item.
func (d *itemsDoer) effect(p itemPlan) string {
	if p.Why != nil {
		return *p.Why
	}
	var calls []string
	for _, m := range p.Mutations {
		call := fmt.Sprintf("%s on %s", m.Tool, m.Target)
		switch {
		case m.State == keep.Applied:
			calls = append(calls, call+" "+cutTo(string(m.Payload), maxTitle))
		case d.action == keep.Skip:
			calls = append(calls, call+" ("+string(m.State)+")")
		}
	}
	if len(calls) == 0 {
		return "nothing was sent"
	}
	return strings.Join(calls, ", ")
}

// summary says what came of it, and how to go on.
func (d *itemsDoer) summary() error {
	what := "pass over " + plural(d.planned, "item")
	did := "Passed over"
	if d.action == keep.Reprocess {
		what, did = "reprocess "+plural(d.planned, "item"), "Will be done again when the job comes to it"
	}
	switch {
	case d.planned > 0:
		fmt.Fprintf(d.a.err, "Nothing was changed. To %s, say --yes.\n", what)
	case d.done > 0:
		fmt.Fprintf(d.a.err, "%s: %s.\n", did, plural(d.done, "item"))
	}
	if d.refused == 0 {
		return nil
	}
	fmt.Fprintf(d.a.err, "Left as it is: %s.\n", plural(d.refused, "item"))
	if d.planned+d.done == 0 {
		return said(exitFailed)
	}
	return nil
}

package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/api"
	"github.com/keep-run/keep/cmd/keep/internal/exit"
	"github.com/keep-run/keep/cmd/keep/internal/terminal"
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

// Outcomes of an itemPlan. Without --yes nothing is done, and what would be is planned.
const (
	planned = "planned"
	done    = "done"
	refused = "refused"
)

// An itemsDoer does one thing to many items: it reprocesses them, skips them, or undoes a skip. The
// three differ in what they cause and not in how items are named, shown and counted.
type itemsDoer struct {
	a      *app
	action keep.Action

	all    bool
	status string
	yes    bool
	note   string
	asOf   string    // flag, of reprocess
	before time.Time // what changed at or after it is left; zero: all is taken
	begun  time.Time

	planned, done, refused int
}

// reprocessCmd is the one of the three that sends again: done items begin a new attempt, whose
// calls have keys of their own.
func (a *app) reprocessCmd() *cobra.Command {
	d := &itemsDoer{a: a, action: keep.Reprocess}
	return d.command("Do finished items again, as a new attempt",
		`Reprocess lets finished items start over as a new attempt, the next time that
their job comes to them. What they did before is then sent again. Without --yes it
only shows what that is: the calls of the current attempt that were applied.`)
}

// skipItemsCmd sends nothing, and takes nothing back.
func (a *app) skipItemsCmd() *cobra.Command {
	d := &itemsDoer{a: a, action: keep.Skip}
	return d.command("Leave out items that are not done",
		`Skip makes jobs pass over items that are not done. What was applied for them
stays as it is. Without --yes it only shows what that means.`)
}

// command returns the command of one action; its flags are the same for all of them.
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
	fs.StringVar(&d.note, "note", "", noteUsage)
	if d.action == keep.Reprocess {
		fs.StringVar(&d.asOf, "as-of", "", "leave what changed since this `time`, such as 2026-12-24T18:00:00.000Z: what this command did before, and was done since")
	}
	d.a.completeFlag(cmd, "status", fixed(statuses))
	cmd.ValidArgsFunction = d.a.byPosition(workflowNames, itemIDs)
	return cmd
}

// run does the action to the items that were named, or selected by --all or --status: exactly one
// of these. No way to select is no way to mean all.
func (d *itemsDoer) run(ctx context.Context, w keep.WorkflowName, ids []string) error {
	ways := 0
	// Two ways at once would leave open whether both must hold, or one.
	for _, given := range []bool{len(ids) > 0, d.all, d.status != ""} {
		if given {
			ways++
		}
	}
	f := listFlags{limit: 1, status: d.status}
	switch {
	case ways != 1:
		return exit.Misusef("name the items, or say --all, or --status S")
	case len(d.note) > maxNote:
		return exit.Misusef("--note has %d bytes, want at most %d", len(d.note), maxNote)
	}
	if err := f.check(words(keep.ItemStatuses())); err != nil {
		return err
	}
	if d.asOf != "" {
		at, err := time.Parse(time.RFC3339, d.asOf)
		if err != nil {
			return exit.Misusef("--as-of is %q, want a time such as 2026-12-24T18:00:00.000Z", terminal.Clean(d.asOf))
		}
		d.before = at
	}
	return d.a.decide(ctx, func(c *api.Client) error {
		// By the clock that dates what this command does, so that --as-of tells it from what was there.
		if who, err := c.Identity(ctx); err != nil {
			return err
		} else if d.begun = time.Time(who.Now); d.begun.IsZero() { // a host of an older version does not say
			d.begun = d.a.Now().UTC().Truncate(time.Millisecond)
		}
		// With --all a wrong name has no items, and would be taken for nothing to do.
		if _, err := c.Workflow(ctx, w); err != nil {
			return err
		}
		out := pagePrinter[itemPlan]{a: d.a, l: d.listing()}
		if err := d.each(ctx, c, w, ids, func(items []api.Item, last bool) error {
			plans, err := d.page(ctx, c, w, items)
			if err != nil {
				return err
			}
			return out.print(plans, last)
		}); err != nil {
			d.sayInterrupted()
			return err
		}
		return d.summary()
	})
}

// sayInterrupted says how to continue where a part is done: what was done again meanwhile would be taken once more.
func (d *itemsDoer) sayInterrupted() {
	if d.action == keep.Reprocess && d.yes && (d.all || d.status != "") {
		fmt.Fprintf(d.a.Err, "Taken by then: %s, and perhaps some of the next. The same command with --as-of %s continues, and leaves what was done again since.\n",
			terminal.Plural(d.done, "item"), d.shownAt())
	}
}

// shownAt returns the time of which --as-of makes what was shown.
func (d *itemsDoer) shownAt() string {
	at := d.begun
	if !d.before.IsZero() {
		at = d.before
	}
	return at.Format(millis)
}

// each calls f with the items that were asked for, page by page: what is shown and what is done
// needs no more memory than a page. The last call says so, and may have no items.
func (d *itemsDoer) each(ctx context.Context, c *api.Client, w keep.WorkflowName, ids []string, f func([]api.Item, bool) error) error {
	if len(ids) > 0 {
		items, seen := make([]api.Item, 0, len(ids)), make(map[string]bool, len(ids))
		for _, id := range ids { // all of them exist, or nothing is done
			it, err := c.Item(ctx, w, id)
			if err != nil {
				return err
			}
			if !seen[it.ID] { // named twice it is meant once
				seen[it.ID], items = true, append(items, it)
			}
		}
		for len(items) > pageSize {
			if err := f(items[:pageSize], false); err != nil {
				return err
			}
			items = items[pageSize:]
		}
		return f(items, true)
	}
	for p := (api.Paging{Limit: pageSize}); ; {
		page, err := c.Items(ctx, api.ItemQuery{Workflow: w, Status: keep.ItemStatus(d.status)}, p)
		if err != nil {
			return err
		}
		if err := f(page.Items, page.Next == nil); err != nil || page.Next == nil {
			return err
		}
		p.Cursor = *page.Next
	}
}

// page plans what is to be done to the items, and does it if that was said. The calls are read
// before, since they are those of the attempt that ends with it. Each item is refused or done
// alone.
func (d *itemsDoer) page(ctx context.Context, c *api.Client, w keep.WorkflowName, items []api.Item) ([]itemPlan, error) {
	plans := make([]itemPlan, 0, len(items))
	in := api.ItemsRequest{Note: d.note, Preview: !d.yes, Confirm: d.yes}
	var asked []int // of plans
	for i, it := range items {
		p, err := d.plan(ctx, c, it)
		if err != nil {
			return nil, err
		}
		if plans = append(plans, p); p.Why != nil {
			continue
		}
		in.IDs, asked = append(in.IDs, it.ID), append(asked, i)
		if d.yes {
			in.Attempts = append(in.Attempts, it.Attempt) // that which is shown, and no later one
		}
	}
	if len(asked) > 0 {
		// With Preview the host says what it would refuse, so that both ways have one judge.
		results, err := c.DoItems(ctx, w, d.action, in)
		if err != nil {
			return nil, err
		}
		if len(results) != len(asked) {
			return nil, fmt.Errorf("the host answered about %d items, and was asked about %d", len(results), len(asked))
		}
		for n, res := range results {
			d.became(&plans[asked[n]], res)
		}
	}
	for _, p := range plans {
		d.count(p.Outcome)
	}
	return plans, nil
}

// plan returns what is wanted of an item; Why says that it changed since, and is left.
func (d *itemsDoer) plan(ctx context.Context, c *api.Client, it api.Item) (itemPlan, error) {
	ms, err := mutationsOf(ctx, c, it, true)
	current := slices.DeleteFunc(ms, func(m api.Mutation) bool { return *m.Attempt != it.Attempt })
	p := itemPlan{Workflow: it.Workflow, ID: it.ID, Title: it.Title, Status: it.Status, Attempt: it.Attempt,
		Action: d.action, Mutations: append([]api.Mutation{}, current...)}
	if at := time.Time(it.UpdatedAt); !d.before.IsZero() && !at.Before(d.before) {
		why := "it changed since, at " + at.UTC().Format(millis)
		p.Outcome, p.Why = refused, &why
	}
	return p, err
}

// became records what the host said of an item.
func (d *itemsDoer) became(p *itemPlan, res api.ItemDone) {
	switch {
	case !res.Done:
		p.Outcome, p.Why = refused, res.Refused
	case d.yes:
		p.Outcome = done
	default:
		p.Outcome = planned
	}
}

// millis is how the API writes times.
const millis = "2006-01-02T15:04:05.000Z07:00"

// count is for the summary; a page is printed and forgotten.
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

// listing is the table of plans. Its last column says what the person has to weigh before --yes.
func (d *itemsDoer) listing() listing[itemPlan] {
	return listing[itemPlan]{
		header: []string{"ITEM", "STATUS", "ATTEMPT", "OUTCOME", map[bool]string{true: "SENDS AGAIN", false: "STAYS AS IT IS"}[d.action == keep.Reprocess]},
		row: func(p itemPlan) []string {
			return []string{p.ID, string(p.Status), terminal.Number(p.Attempt), p.Outcome, d.effect(p)}
		},
	}
}

// effect says on one line what becomes of the calls of an item. Of a new attempt it names the
// calls that were applied before: those happen a second time.
func (d *itemsDoer) effect(p itemPlan) string {
	if p.Why != nil {
		return *p.Why
	}
	var calls []string
	for _, m := range p.Mutations {
		call := fmt.Sprintf("%s on %s", m.Tool, m.Target)
		switch {
		case m.State == keep.Applied:
			calls = append(calls, call+" "+terminal.CutTo(string(m.Payload), terminal.MaxTitle))
		case d.action != keep.Reprocess:
			calls = append(calls, call+" ("+string(m.State)+")")
		}
	}
	if len(calls) == 0 {
		return "nothing was sent"
	}
	return strings.Join(calls, ", ")
}

// summary says what came of it, and how to continue.
func (d *itemsDoer) summary() error {
	what := "pass over " + terminal.Plural(d.planned, "item")
	did := "Passed over"
	switch d.action {
	case keep.Unskip:
		what, did = "undo the skip of "+terminal.Plural(d.planned, "item"), "Will be handled again, in the same attempt, when the job comes to it"
	case keep.Reprocess:
		what, did = "reprocess "+terminal.Plural(d.planned, "item"), "Will be done again when the job comes to it"
	}
	switch {
	case d.planned > 0 && d.action == keep.Reprocess:
		fmt.Fprintf(d.a.Err, "Nothing was changed. To %s, say --yes; with --as-of %s what changes meanwhile is left.\n", what, d.shownAt())
	case d.planned > 0:
		fmt.Fprintf(d.a.Err, "Nothing was changed. To %s, say --yes.\n", what)
	case d.done > 0:
		fmt.Fprintf(d.a.Err, "%s: %s.\n", did, terminal.Plural(d.done, "item"))
	}
	if d.refused == 0 {
		return nil
	}
	fmt.Fprintf(d.a.Err, "Left as it is: %s.\n", terminal.Plural(d.refused, "item"))
	// Some that were refused among many are said, and no failure; all of them are.
	if d.planned+d.done == 0 {
		return exit.With(exit.Failed)
	}
	return nil
}

package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/api"
	"github.com/keep-run/keep/cmd/keep/internal/shell"
	"github.com/keep-run/keep/cmd/keep/internal/terminal"
	"github.com/keep-run/keep/host/feed"
	"github.com/keep-run/keep/view"
)

// itemsCmd lists the units of work of jobs, which outlive the runs that work on them.
func (a *app) itemsCmd() *cobra.Command {
	list := func() *cobra.Command {
		return listCmd(a, "", "Items: the units of work of jobs", listing[api.Item]{
			header:   []string{"WORKFLOW", "ITEM", "STATUS", "ATTEMPT", "MUTATIONS", "UPDATED", "TITLE"},
			statuses: words(keep.ItemStatuses()),
			fetch: func(ctx context.Context, c *api.Client, f listFlags, p api.Paging) (api.Page[api.Item], error) {
				return c.Items(ctx, api.ItemQuery{Workflow: keep.WorkflowName(f.workflow), Status: keep.ItemStatus(f.status), Made: f.made(), Text: f.text}, p)
			},
			words: "titles and ids",
			key:   func(it api.Item) string { return string(it.Workflow) + " " + it.ID }, kinds: []feed.Kind{feed.Item, feed.Mutation},
			row: func(it api.Item) []string {
				return []string{string(it.Workflow), it.ID, string(it.Status), terminal.Number(it.Attempt), terminal.Number(len(it.Mutations)),
					a.At(it.UpdatedAt), terminal.CutTo(terminal.Clean(it.Title), terminal.MaxTitle)}
			},
		})
	}
	show := showCmd(a, "show [WORKFLOW] ID", "Show one item with its mutations", 2, shownItem, a.printItem)
	show.Long = "Show prints everything about an item. Its ID is enough if nothing else has it. Six or more characters\nthat it begins or ends with stand for it; last is the newest, of a workflow or of all."
	show.Args = placedOrAlone(2)
	show.ValidArgsFunction = a.byPosition(workflowNames, itemIDs)
	return noun("items", list, show, a.reprocessCmd(), a.skipItemsCmd(), a.unskipItemsCmd())
}

// shownItem reads the item that the arguments name. Scripts choose the ids of items, so one may be
// called last: then that one is meant.
func shownItem(ctx context.Context, c *api.Client, args []string) (api.Item, error) {
	newest := func(w keep.WorkflowName) (api.Item, error) {
		page, err := c.Items(ctx, api.ItemQuery{Workflow: w}, api.Paging{Limit: 1})
		it, err := firstOf("item", page, err)
		if err != nil {
			return it, err
		}
		return c.Item(ctx, it.Workflow, it.ID)
	}
	if len(args) == 1 {
		return orNewest(args[0], func() (it api.Item, err error) {
			w, err := byIDAlone(ctx, c, view.IsItem, args[0])
			if err != nil {
				return it, err
			}
			return c.Item(ctx, w.Workflow, w.ID)
		}, func() (api.Item, error) { return newest("") })
	}
	w := keep.WorkflowName(args[0])
	return orNewest(args[1], func() (api.Item, error) {
		return byName(ctx, c, w, "", args[1], func(id string) (api.Item, error) { return c.Item(ctx, w, id) })
	}, func() (api.Item, error) { return newest(w) })
}

// itemIDs completes the items of the workflow named before.
func itemIDs(ctx context.Context, c *api.Client, args []string) ([]string, error) {
	items, err := c.Items(ctx, api.ItemQuery{Workflow: keep.WorkflowName(args[0])}, recent)
	return eachOf(items.Items, func(it api.Item) string { return described(it.ID, string(it.Status)+" "+it.Title) }), err
}

// printItem shows an item with the mutations of all its attempts.
func (a *app) printItem(ctx context.Context, c *api.Client, it api.Item) error {
	var s terminal.Sheet
	s.Add("item", "%s", terminal.Clean(it.ID))
	s.Add("title", "%s", terminal.Clean(it.Title))
	s.Add("workflow", "%s", it.Workflow)
	s.Add("status", "%s, attempt %d", it.Status, it.Attempt)
	s.Add("updated", "%s", a.At(it.UpdatedAt))
	a.addActs(&s, it.History)
	ms, err := mutationsOf(ctx, c, it, false)
	if err != nil {
		return err
	}
	// Nothing else says so: such an item waits for a job that will not come to it.
	behind, err := isLeftBehind(ctx, c, it, ms)
	if err != nil {
		return err
	}
	if behind {
		s.Add("left behind", "every job has run to its end since, and none came to this item;\nif none will, leave it: keep items skip %s %s", it.Workflow, terminal.Clean(shell.Word(it.ID)))
	}
	attempts := make(map[int][]string)
	for _, m := range ms {
		attempts[*m.Attempt] = append(attempts[*m.Attempt], fmt.Sprintf("%s %s, %s (%s)", m.Tool, terminal.Clean(m.Target), m.State, m.Key))
	}
	if len(attempts[it.Attempt]) == 0 {
		// The current attempt is always shown, since the calls before it mean nothing to it.
		attempts[it.Attempt] = []string{"no calls"}
	}
	for _, n := range slices.Backward(slices.Sorted(maps.Keys(attempts))) {
		s.Add(fmt.Sprintf("attempt %d", n), "%s", strings.Join(attempts[n], "\n"))
	}
	return s.Print(a.Out, a.OutInk)
}

// mutationsOf returns the mutations of an item, of all its attempts, oldest first;
// as many as an item shows. With full they have their payloads.
func mutationsOf(ctx context.Context, c *api.Client, it api.Item, full bool) ([]api.Mutation, error) {
	if len(it.Mutations) == 0 {
		return nil, nil
	}
	ms, err := c.Mutations(ctx, api.MutationQuery{Workflow: it.Workflow, Item: it.ID}, api.Paging{Limit: pageSize, Full: full})
	slices.Reverse(ms.Items)
	return ms.Items, err
}

package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/api"
	"github.com/spf13/cobra"
)

func (a *app) itemsCmd() *cobra.Command {
	list := func() *cobra.Command {
		return listCmd(a, "", "Items: the units of work of jobs", listing[api.Item]{
			header:   []string{"WORKFLOW", "ITEM", "STATUS", "ATTEMPT", "MUTATIONS", "UPDATED", "TITLE"},
			statuses: words(keep.ItemStatuses()),
			fetch: func(ctx context.Context, db database, f listFlags, p keep.Page) ([]api.Item, string, error) {
				return api.ListItems(ctx, db, keep.ItemFilter{
					Workflow: keep.WorkflowName(f.workflow), Status: keep.ItemStatus(f.status),
				}, p)
			},
			row: func(it api.Item) []string {
				return []string{string(it.Workflow), it.ID, string(it.Status), number(it.Attempt), number(len(it.Mutations)),
					a.at(it.UpdatedAt), cutTo(clean(it.Title), maxTitle)}
			},
		})
	}
	show := showCmd(a, "show WORKFLOW ID", "Show one item with its mutations", 2,
		func(ctx context.Context, db database, args []string) (api.Item, error) {
			return api.ShowItem(ctx, db, keep.WorkflowName(args[0]), args[1])
		}, a.printItem)
	show.ValidArgsFunction = a.byPosition(workflowNames, itemIDs)
	return noun("items", list, show, a.reprocessCmd(), a.skipItemsCmd())
}

// itemIDs completes the items of the workflow named before.
func itemIDs(ctx context.Context, db database, args []string) ([]string, error) {
	items, _, err := db.Items(ctx, keep.ItemFilter{Workflow: keep.WorkflowName(args[0])}, recent)
	var out []string
	for _, it := range items {
		out = append(out, described(it.ID, string(it.Status)+" "+it.Title))
	}
	return out, err
}

// printItem shows an item with the mutations of all its attempts.
func (a *app) printItem(ctx context.Context, db database, it api.Item) error {
	var s sheet
	s.add("item", "%s", clean(it.ID))
	s.add("title", "%s", clean(it.Title))
	s.add("workflow", "%s", it.Workflow)
	s.add("status", "%s, attempt %d", it.Status, it.Attempt)
	s.add("updated", "%s", a.at(it.UpdatedAt))
	item, err := db.Item(ctx, it.Workflow, it.ID)
	if err != nil {
		return err
	}
	behind, err := isLeftBehind(ctx, db, item)
	if err != nil {
		return err
	}
	if behind {
		s.add("left behind", "every job has run to its end since, and none came to this item;\nif none will, leave it: keep items skip %s %s", it.Workflow, clean(it.ID))
	}
	attempts := make(map[int][]string)
	for _, key := range slices.Backward(it.Mutations) { // oldest first
		m, err := db.Mutation(ctx, key)
		if err != nil {
			return err
		}
		attempts[m.Attempt] = append(attempts[m.Attempt], fmt.Sprintf("%s %s, %s (%s)", m.Tool, clean(m.Target), m.State, m.Key))
	}
	if len(attempts[it.Attempt]) == 0 {
		attempts[it.Attempt] = []string{"no calls"}
	}
	for _, n := range slices.Backward(slices.Sorted(maps.Keys(attempts))) {
		s.add(fmt.Sprintf("attempt %d", n), "%s", strings.Join(attempts[n], "\n"))
	}
	return s.print(a.out, a.outInk)
}

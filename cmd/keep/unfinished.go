package main

import (
	"context"
	"fmt"
	"slices"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/api"
	"github.com/keep-run/keep/lifecycle"
	"github.com/keep-run/keep/sqlite"
)

// maxCounted is how many unfinished items are counted of each status.
const maxCounted = 1000

// warnOfItems says which items a new version finds unfinished. Which ids its
// script will use is not known before it runs. What is known is that without a
// job nothing comes to an item any more.
func (a *app) warnOfItems(ctx context.Context, db *sqlite.DB, w keep.WorkflowName, def keep.Definition) error {
	var waiting []keep.ItemStatus
	n := 0
	for _, status := range []keep.ItemStatus{keep.ItemProcessing, keep.ItemFailed, keep.ItemAttention} {
		items, _, err := db.Items(ctx, keep.ItemFilter{Workflow: w, Status: status}, keep.Page{Limit: maxCounted})
		if err != nil {
			return err
		}
		if n += len(items); len(items) > 0 {
			waiting = append(waiting, status)
		}
	}
	if n == 0 {
		return nil
	}
	why := "an item whose id the new version does not use stays as it is"
	if !slices.ContainsFunc(def.Handlers, func(h keep.Handler) bool { return h.Kind == keep.Job }) {
		why = "the new version has no job that could come to them"
	}
	fmt.Fprintf(a.err, "Workflow %s has %s that %s not done: %s.\n", w, plural(n, "item"), map[bool]string{true: "is", false: "are"}[n == 1], why)
	for _, s := range waiting {
		fmt.Fprintf(a.err, "  keep items --workflow %s --status %s     lists them\n", w, s)
		fmt.Fprintf(a.err, "  keep items skip %s --status %s           leaves them\n", w, s)
	}
	return nil
}

// isLeftBehind reports whether an item is not done although every job of its
// workflow has run to its end since the item last moved: none came to it. A job
// that had would have finished it, or would not have come to its end; unless it
// is blocked, and was passed over.
func isLeftBehind(ctx context.Context, db *sqlite.DB, it keep.Item) (bool, error) {
	if it.Status != keep.ItemFailed && it.Status != keep.ItemProcessing {
		return false, nil
	}
	ms, _, err := db.Mutations(ctx, keep.MutationFilter{Workflow: it.Workflow, Item: it.ID}, keep.Page{Limit: keep.MaxPage})
	if err != nil {
		return false, err
	}
	if slices.ContainsFunc(ms, func(m keep.Mutation) bool { return lifecycle.Unknown(m.State) }) {
		return false, nil
	}
	w, err := api.ShowWorkflow(ctx, db, it.Workflow)
	if err != nil {
		return false, err
	}
	for _, h := range w.Handlers {
		if h.Kind != keep.Job {
			continue
		}
		if h.LastRun == nil {
			return false, nil
		}
		r, err := db.Run(ctx, *h.LastRun)
		if err != nil || r.Status != keep.StatusCommitted || !r.CreatedAt.After(it.UpdatedAt) {
			return false, err
		}
	}
	return true, nil
}

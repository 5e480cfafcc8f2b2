package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/api"
	"github.com/keep-run/keep/cmd/keep/internal/project"
	"github.com/keep-run/keep/cmd/keep/internal/shell"
	"github.com/keep-run/keep/cmd/keep/internal/terminal"
	"github.com/keep-run/keep/law/lifecycle"
	"github.com/keep-run/keep/script/workflow"
)

// maxCounted is how many unfinished items are counted of each status, in one page. With more the
// number is too small, and the advice the same.
const maxCounted = 1000

// warnOfItems says which items a new version finds unfinished. Which ids its
// script will use is not known before it runs. What is known is that without a
// job nothing comes to an item any more.
func (a *app) warnOfItems(ctx context.Context, c *api.Client, s project.Script) error {
	w, def := s.Name, s.Definition
	var waiting []keep.ItemStatus
	n := 0
	// Of those that are done or skipped, no version has anything left to do.
	for _, status := range []keep.ItemStatus{keep.ItemProcessing, keep.ItemFailed, keep.ItemAttention} {
		items, err := c.Items(ctx, api.ItemQuery{Workflow: w, Status: status}, api.Paging{Limit: maxCounted})
		if err != nil {
			return err
		}
		if n += len(items.Items); len(items.Items) > 0 {
			waiting = append(waiting, status)
		}
	}
	if err := a.warnOfOrphans(ctx, c, s); err != nil || n == 0 {
		return err
	}
	why := "an item whose id the new version does not use stays as it is"
	if !slices.ContainsFunc(def.Handlers, func(h keep.Handler) bool { return h.Kind == keep.Job }) {
		why = "the new version has no job that could come to them"
	}
	fmt.Fprintf(a.Err, "Workflow %s has %s that %s not done: %s.\n", w, terminal.Plural(n, "item"), map[bool]string{true: "is", false: "are"}[n == 1], why)
	for _, status := range waiting {
		fmt.Fprintf(a.Err, "  keep items --workflow %s --status %s     lists them\n", w, status)
		fmt.Fprintf(a.Err, "  keep items skip %s --status %s           leaves them\n", w, status)
	}
	return nil
}

// warnOfOrder says which order keys unfinished runs keep, whatever the new version makes
// of their events: if its key function gives them others, later events do not wait.
func (a *app) warnOfOrder(ctx context.Context, c *api.Client, s project.Script) error {
	page, err := c.Runs(ctx, api.RunQuery{Workflow: s.Name, Open: true}, api.Paging{Limit: maxCounted})
	if err != nil {
		return err
	}
	keys := make(map[keep.HandlerName][]string)
	for _, r := range page.Items {
		if r.OrderKey != nil {
			keys[r.Handler] = append(keys[r.Handler], strconv.Quote(*r.OrderKey))
		}
	}
	for _, h := range s.Definition.Handlers {
		of := keys[h.Name]
		if len(of) == 0 {
			continue
		}
		n := len(of)
		if n > 5 { // the clipped slice keeps append from writing over the rest
			of = append(of[:5:5], fmt.Sprintf("and %d more", n-5))
		}
		fmt.Fprintf(a.Err, "Unfinished runs of %s keep the order keys with which they began: %s. ", h.Name, terminal.Clean(strings.Join(of, ", ")))
		switch h.Order {
		case keep.OrderKey:
			fmt.Fprintln(a.Err, "Events to which the new version gives another key do not wait for them.")
		case keep.OrderNone:
			fmt.Fprintln(a.Err, "Later events do not wait for them.")
		default:
			fmt.Fprintln(a.Err, "The whole workflow waits for them now.")
		}
	}
	return nil
}

// warnOfOrphans lists items whose ids the new version does not make, if its text
// tells which ones it makes. What was done under an old id would be done again
// under a new one: that is worth a look before the first run.
func (a *app) warnOfOrphans(ctx context.Context, c *api.Client, s project.Script) error {
	// What is computed may be any id: then a warning would be a guess.
	patterns, known := workflow.ItemPatterns(s.Bundle.Code)
	if !known {
		return nil
	}
	page, err := c.Items(ctx, api.ItemQuery{Workflow: s.Name}, api.Paging{Limit: maxCounted})
	if err != nil {
		return err
	}
	all := len(page.Items)
	items := slices.DeleteFunc(page.Items, func(it api.Item) bool {
		// Stored ids of later jobs have the job in front; patterns are of what the script says.
		id := saidID(s.Definition, it.ID)
		return slices.ContainsFunc(patterns, func(p workflow.ItemPattern) bool { return p.Matches(id) })
	})
	if len(items) == 0 {
		return nil
	}
	fmt.Fprintf(a.Err, "Workflow %s: %d of its newest %s have ids that the new version does not make (it makes %s).\n"+
		"If it comes to the same things under other ids, it does them again.\n", s.Name, len(items), terminal.Plural(all, "item"), joinPatterns(patterns))
	const shown = 10
	var left []string
	for i, it := range items {
		if i < shown {
			fmt.Fprintf(a.Err, "  %s  %s\n", terminal.Clean(it.ID), it.Status)
		}
		if it.Status != keep.ItemDone && it.Status != keep.ItemSkipped && len(left) < shown {
			left = append(left, terminal.Clean(shell.Word(it.ID)))
		}
	}
	if len(items) > shown {
		fmt.Fprintf(a.Err, "  … and %d more: keep items --workflow %s\n", len(items)-shown, s.Name)
	}
	if len(left) > 0 {
		fmt.Fprintf(a.Err, "  keep items skip %s %s           leaves those that are not done\n", s.Name, strings.Join(left, " "))
	}
	return nil
}

// saidID returns the id that a script gives to an item that is stored as stored.
func saidID(def keep.Definition, stored string) string {
	for _, h := range def.Handlers {
		if id, ok := keep.CutItemID(h.ItemsOf(), stored); ok && h.Kind == keep.Job {
			return id
		}
	}
	return stored
}

// joinPatterns names forms of ids on one line.
func joinPatterns(ps []workflow.ItemPattern) string {
	words := make([]string, len(ps))
	for i, p := range ps {
		words[i] = terminal.Clean(string(p))
	}
	return strings.Join(words, ", ")
}

// isLeftBehind reports whether an item is not done although every job of its
// workflow has run to its end since the item last moved: none came to it. A job
// that had would have finished it, or would not have come to its end; unless it
// is blocked, and was passed over.
func isLeftBehind(ctx context.Context, c *api.Client, it api.Item, ms []api.Mutation) (bool, error) {
	if it.Status != keep.ItemFailed && it.Status != keep.ItemProcessing {
		return false, nil
	}
	if slices.ContainsFunc(ms, func(m api.Mutation) bool { return lifecycle.Unknown(m.State) }) {
		return false, nil
	}
	w, err := c.Workflow(ctx, it.Workflow)
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
		r, err := c.Run(ctx, *h.LastRun)
		if err != nil || r.Status != keep.StatusCommitted || !time.Time(r.CreatedAt).After(time.Time(it.UpdatedAt)) {
			return false, err
		}
	}
	return true, nil
}

package simtest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/operator"
)

// In every third world people skip items and have them done again, between any two steps. The
// draw is its own, so that the other worlds are those of before.
func (w *world) skips() bool { return rand.New(rand.NewPCG(w.seed, 46)).IntN(3) == 0 }

// leaveItem skips an item, or has it done again.
func (w *world) leaveItem(o *operator.Operator, f *flow, id string) (string, error) {
	if w.chance(0.4) {
		err := o.ReprocessItem(person, f.name, id, keep.Decision{By: "ann", From: "sim"})
		return "reprocess item " + id, w.left("reprocessed", err)
	}
	err := o.SkipItem(person, f.name, id, keep.Decision{By: "ann", From: "sim"})
	return "skip item " + id, w.left("skipped", err)
}

// left notes what became of an item that a person wanted left, or done again.
func (w *world) left(what string, err error) error {
	_, refused := errors.AsType[*operator.ItemError](err)
	switch {
	case err == nil:
		w.saw("item: " + what)
	case refused:
		w.saw("item: not " + what)
	}
	return err
}

// skipBeside is somebody who skips an item at the last moment, and may want it done again: a call
// of it is decided, and is about to be recorded.
func (w *world) skipBeside(ctx context.Context, c keep.Commit) {
	n := slices.IndexFunc(c.Changes, func(change keep.Change) bool {
		put, ok := change.(keep.PutMutation)
		return ok && put.Mutation.State == keep.InFlight && put.Mutation.Item != ""
	})
	if n < 0 || !w.skipping || ctx.Value(byPerson{}) != nil || !w.maybe(0.1) {
		return
	}
	id := c.Changes[n].(keep.PutMutation).Mutation.Item
	flow := slices.IndexFunc(w.flows, func(f *flow) bool { return f.name == c.Workflow })
	for range 1 + w.below(2) {
		what, err := w.leaveItem(w.newCommand("beside ").operator, w.flows[flow], id)
		w.note(fmt.Sprintf("person: at the last moment: %s: %v", what, err))
		w.saw("item: left at the last moment")
	}
}

// watchItem looks whether an item that was just written, or of which a call was just recorded,
// is at work in the attempt of each call of it that may still happen.
func (w *world) watchItem(name keep.WorkflowName, id string) {
	it, err := w.store.Item(person, name, id)
	w.must("read the item of a call", err)
	ms, _, err := w.store.Mutations(person, keep.MutationFilter{Workflow: name, Item: id}, keep.Page{Limit: keep.MaxPage})
	w.must("read the calls of an item", err)
	for _, m := range ms {
		if m.State.Rivals() && m.State != keep.Applied && (m.Attempt != it.Attempt || it.Over()) {
			w.broken("once", "%s is %s, and its item %s is %s in attempt %d, not %d", m.Key, m.State, id, it.Status, it.Attempt, m.Attempt)
		}
	}
}

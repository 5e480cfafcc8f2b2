package simtest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/operator"
)

// In every fourth world people cancel runs and let them continue now, publish events, set checkpoints back and
// skip inputs together, between any two steps. The draw is its own, so that the other worlds are those of before; this one
// leaves out those that have a test of their own.
func (w *world) intervenes() bool { return rand.New(rand.NewPCG(w.seed, 63)).IntN(4) == 0 }

// intervene is one of these things.
func (w *world) intervene(o *operator.Operator, f *flow) (string, error) {
	switch n := w.below(10); {
	case n < 7:
		return w.doRun(o, f)
	case n < 8:
		return w.publishByHand(o, f)
	case n < 9:
		h := f.sources[w.below(len(f.sources))].producer
		err := o.ResetCheckpoint(person, f.name, h, keep.Decision{By: "ann", From: "sim"})
		if err == nil {
			w.saw("checkpoint: reset")
		}
		return "reset the checkpoint of " + string(h), err
	default:
		return w.skipTogether(o, f)
	}
}

// doRun cancels a run that is not over, or lets it continue now.
func (w *world) doRun(o *operator.Operator, f *flow) (string, error) {
	open, err := w.store.OpenRuns(person, f.name)
	if err != nil || len(open) == 0 {
		return "cancel nothing", err
	}
	r := open[w.below(len(open))]
	action := keep.Retry
	if w.chance(0.5) {
		action = keep.Cancel
	}
	what := fmt.Sprintf("%s run of %s", action, r.Handler)
	_, err = o.DoRun(person, r.ID, keep.Decision{Action: action, By: "ann", From: "sim"}, w.chance(0.1))
	if _, refused := errors.AsType[*operator.RunError](err); refused {
		w.saw(fmt.Sprintf("run: no %s", action))
		return what, err
	}
	if err == nil {
		w.saw(fmt.Sprintf("run: %s", action))
	}
	return what, err
}

// doRunBeside is somebody who does it at the last moment: a commit of the workflow is about to be made.
func (w *world) doRunBeside(ctx context.Context, c keep.Commit) {
	if !w.intervening || ctx.Value(byPerson{}) != nil || !w.maybe(0.02) {
		return
	}
	for _, f := range w.flows {
		if f.name == c.Workflow {
			what, err := w.doRun(w.newCommand("beside ").operator, f)
			w.note(fmt.Sprintf("person: at the last moment: %s: %v", what, err))
			w.saw("run: changed at the last moment")
		}
	}
}

// watchCancelled notes the runs that a commit cancels, and looks that none of their calls can happen any more.
func (w *world) watchCancelled(c keep.Commit) {
	for _, change := range c.Changes {
		put, ok := change.(keep.PutRun)
		if !ok || put.Run.Status != keep.StatusAborted {
			continue
		}
		ms, _, err := w.store.Mutations(person, keep.MutationFilter{Run: put.Run.ID}, keep.Page{Limit: keep.MaxPage})
		w.must("read the calls of a run", err)
		for _, m := range ms {
			if m.State.Rivals() && m.State != keep.Applied {
				w.broken("doubt-is-not-failure", "run %s ended before its call, and %s is %s", put.Run.ID, m.Key, m.State)
			}
		}
	}
}

// publishByHand publishes an event that no producer made, or one that is there.
func (w *world) publishByHand(o *operator.Operator, f *flow) (string, error) {
	s := f.sources[w.below(len(f.sources))]
	id := keep.MessageID(fmt.Sprintf("h%d", w.below(20)))
	_, created, err := o.Publish(person, operator.Publication{Workflow: f.name, Topic: s.topic, MessageID: id,
		Payload: json.RawMessage(`{"n":1}`), By: keep.PersonPublisher("ann")})
	switch {
	case err == nil && created:
		w.saw("publish: created")
	case err == nil:
		w.saw("publish: there before")
	}
	return fmt.Sprintf("publish %s %s", s.topic, id), err
}

// skipTogether skips some inputs.
func (w *world) skipTogether(o *operator.Operator, f *flow) (string, error) {
	list, _, err := w.store.Inputs(person, keep.InputFilter{Workflow: f.name}, keep.Page{Limit: 30})
	if err != nil || len(list) == 0 {
		return "skip no inputs", err
	}
	var ids []keep.InputID
	for _, in := range list {
		if w.chance(0.2) {
			ids = append(ids, in.ID)
		}
	}
	done, err := o.SkipInputs(person, f.name, ids, keep.Decision{})
	if done.Inputs+done.Late > 0 {
		w.saw("skip: inputs together")
	}
	return fmt.Sprintf("skip %d inputs", len(ids)), err
}

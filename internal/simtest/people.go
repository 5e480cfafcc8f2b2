package simtest

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/law/account"
	"github.com/keep-run/keep/law/lifecycle"
	"github.com/keep-run/keep/operator"
)

// person is the context of what people do.
var person = context.WithValue(context.Background(), byPerson{}, true)

// people do things while a process runs: through it, or beside it with commands
// of their own, which the process notices a little later.
func (p *process) people() {
	w := p.w
	p.turn("people")
	for p.sleep(p.ctx, w.span(2*w.rates.bustle), "people") {
		if w.chance(0.5) {
			p.act(p.operator)
			continue
		}
		p.act(w.newCommand(p.name + "beside ").operator)
		if w.group != nil {
			continue // the host of the workflow is notified
		}
		p.sleep(p.ctx, w.span(time.Second), "people")
		p.engine.Reload()
	}
}

// act is one thing that a person does.
func (p *process) act(o *operator.Operator) {
	w := p.w
	f := w.flows[w.below(len(w.flows))]
	w.result.Acts++
	clear(w.resting) // a person may want a call before its time
	var err error
	var what string
	if w.edited && w.chance(0.2) {
		w.note("person: " + p.edit())
		return
	}
	if w.users && w.chance(0.15) {
		w.note("person: " + p.replaceSecret())
		return
	}
	if w.skipping && f.job != nil && w.chance(0.2) {
		what, err = w.leaveItem(o, f, f.job.items[w.below(len(f.job.items))].id)
		w.note(fmt.Sprintf("person: %s: %v", what, err))
		return
	}
	if w.intervening && w.chance(0.2) {
		what, err = w.intervene(o, f)
		w.note(fmt.Sprintf("person: %s: %v", what, err))
		return
	}
	switch n := w.below(22); {
	case w.granted && w.chance(0.1):
		what, err = w.consent(o, f)
	case (w.budgets != nil || w.policy.Breaker.Failures > 0) && w.chance(0.2):
		what, err = w.settleWaiting(o)
	case n < 10:
		what, err = w.decide(o)
	case n < 12:
		b := behaviour{}
		if w.chance(0.4) {
			b = w.newBug()
		}
		what = fmt.Sprintf("deploy %s %+v", f.name, b)
		err = w.deploy(o, f, b)
	case n < 14:
		on := w.chance(0.3)
		what = fmt.Sprintf("pause %s %t", f.name, on)
		if on {
			err = o.Pause(person, f.name, keep.Decision{By: "ann", From: "sim", Note: "as a person wished"})
		} else {
			err = o.Resume(person, f.name, keep.Decision{By: "ann", From: "sim"})
		}
	case n < 16:
		what, err = w.request(o, f)
	case n >= 20:
		what, err = w.sweep(o)
	case n < 18 && f.job != nil:
		what = "change an item"
		f.job.items[w.below(len(f.job.items))].rev++
	default:
		what, err = w.skip(o, f)
	}
	w.note(fmt.Sprintf("person: %s: %v", what, err))
}

// request asks for a run now.
func (w *world) request(o *operator.Operator, f *flow) (string, error) {
	h := f.sources[w.below(len(f.sources))].producer
	if f.job != nil && w.chance(0.5) {
		h = w.settings.job(keep.Handler{Name: f.job.name}).Name
	}
	return "run now " + string(h), o.Trigger(person, f.name, h, keep.Decision{By: "ann", From: "sim"})
}

// skip leaves an event, or an input, that is there or not.
func (w *world) skip(o *operator.Operator, f *flow) (string, error) {
	events, _, err := w.store.Events(person, keep.EventFilter{Workflow: f.name}, keep.Page{Limit: 30})
	if err != nil || len(events) == 0 || w.chance(0.6) {
		return "skip nothing", err
	}
	if w.chance(0.4) {
		return w.unskip(o, f, events)
	}
	if w.chance(0.4) {
		return w.redo(o, f, events)
	}
	ev := events[w.below(len(events))]
	if i := slices.IndexFunc(events, func(ev keep.Event) bool { return ev.Status == keep.EventPending && ev.ReservedBy != "" }); i >= 0 && w.chance(0.3) {
		ev = events[i] // a run has it, which is ended if it has made no call
	}
	if len(ev.CausedBy) > 0 && w.chance(0.3) {
		in := ev.CausedBy[w.below(len(ev.CausedBy))]
		_, err = o.SkipInput(person, f.name, in, keep.Decision{})
		return fmt.Sprintf("skip an input of %s %s", ev.Topic, ev.MessageID), err
	}
	res, err := o.SkipEvents(person, f.name, ev.Topic, []keep.MessageID{ev.MessageID}, keep.Decision{})
	for kind, n := range map[string]int{"skipped": res.Skipped, "aborted": len(res.Aborted), "too late": res.TooLate, "finished": res.Finished} {
		if n > 0 {
			w.saw("skip: " + kind)
		}
	}
	return fmt.Sprintf("skip event %s %s", ev.Topic, ev.MessageID), err
}

// unskip undoes a skip, as far as there is one.
func (w *world) unskip(o *operator.Operator, f *flow, events []keep.Event) (string, error) {
	items, _, err := w.store.Items(person, keep.ItemFilter{Workflow: f.name, Status: keep.ItemSkipped}, keep.Page{Limit: 30})
	if err != nil {
		return "unskip nothing", err
	}
	if len(items) > 0 && w.chance(0.5) {
		it := items[w.below(len(items))]
		err := o.UnskipItem(person, f.name, it.ID, keep.Decision{By: "ann", From: "sim"})
		return "unskip item " + it.ID, w.undone("item", err)
	}
	open, err := w.store.OpenRuns(person, f.name)
	if err != nil {
		return "unskip nothing", err
	}
	for _, ev := range events {
		if ev.Status != keep.EventSkipped || w.chance(0.5) {
			continue
		}
		for _, r := range open {
			w.overtook[r.Chain] = true
		}
		if len(ev.CausedBy) > 0 && w.chance(0.5) {
			_, err := o.UnskipInput(person, f.name, ev.CausedBy[0], keep.Decision{})
			return fmt.Sprintf("unskip the input of %s %s", ev.Topic, ev.MessageID), w.undone("input", err)
		}
		_, err := o.UnskipEvents(person, f.name, ev.Topic, []keep.MessageID{ev.MessageID}, keep.Decision{})
		return fmt.Sprintf("unskip event %s %s", ev.Topic, ev.MessageID), w.undone("event", err)
	}
	return "unskip nothing", nil
}

// redo has an event done again, or the input of one, as far as there is one: what was
// shown, or what was shown before something else was done.
func (w *world) redo(o *operator.Operator, f *flow, events []keep.Event) (string, error) {
	open, err := w.store.OpenRuns(person, f.name)
	if err != nil {
		return "redo nothing", err
	}
	for _, ev := range events {
		if ev.Status == keep.EventPending && w.chance(0.9) || w.chance(0.5) || ev.Attempt() > 4 {
			continue
		}
		r := operator.RedoRequest{Workflow: f.name, Topic: ev.Topic, IDs: []keep.MessageID{ev.MessageID}}
		what := fmt.Sprintf("redo event %s %s", ev.Topic, ev.MessageID)
		if len(ev.CausedBy) > 0 && w.chance(0.2) {
			r.Input, what = ev.CausedBy[0], fmt.Sprintf("redo the input of %s %s", ev.Topic, ev.MessageID)
		}
		p, err := o.PlanRedo(person, r)
		if err != nil {
			return what, err
		}
		for _, r := range open {
			w.overtook[r.Chain] = true
		}
		r.Mark = p.Mark
		if _, err = o.Redo(person, r, keep.Decision{By: "ann", From: "sim"}); err == nil {
			w.saw("redo: done")
			if w.chance(0.5) { // a second press of the same button
				if _, again := o.Redo(person, r, keep.Decision{By: "ann", From: "sim"}); again == nil {
					w.broken("once", "%s was done twice for one look", what)
				}
			}
		} else if _, refused := errors.AsType[*operator.RedoError](err); refused {
			w.saw("redo: refused")
		}
		return what, err
	}
	return "redo nothing", nil
}

// undone notes what became of undoing a skip. A refusal is said without the id of an input, which no seed decides.
func (w *world) undone(what string, err error) error {
	refusal, kept := errors.AsType[*operator.UnskipError](err)
	_, item := errors.AsType[*operator.ItemError](err)
	switch {
	case err == nil:
		w.saw("unskip: " + what)
	case kept || item:
		w.saw("unskip: " + what + " kept")
	}
	if kept {
		return errors.New(refusal.Why)
	}
	return err
}

// inbox returns the questions, newest first. Those of several workflows that were
// asked within a millisecond come in the order of their names: stores may list them in
// any (see package store), and people would decide otherwise on one than on another.
func (w *world) inbox(open bool) ([]keep.Escalation, error) {
	qs, _, err := w.store.Escalations(person, keep.EscalationFilter{Open: open}, keep.Page{Limit: keep.MaxPage})
	slices.SortStableFunc(qs, func(a, b keep.Escalation) int {
		return cmp.Or(b.CreatedAt.Compare(a.CreatedAt), cmp.Compare(a.Workflow, b.Workflow))
	})
	return qs, err
}

// decide answers a question of the inbox: mostly with a choice that is offered,
// sometimes with another, sometimes twice.
func (w *world) decide(o *operator.Operator) (string, error) {
	qs, err := w.inbox(w.chance(0.9))
	if err != nil || len(qs) == 0 {
		return "inbox is empty", err
	}
	q := qs[w.below(len(qs))]
	a := keep.Actions()[w.below(len(keep.Actions()))]
	if w.chance(0.9) {
		a = q.Choices[w.below(len(q.Choices))].Action
	}
	if a == keep.DidNotHappen && w.contradicted(q) && !w.chance(w.rates.folly) {
		a = keep.Skip // a person who looks sees the effect
	}
	if a == keep.Happened && !w.contradicted(q) {
		a = keep.Skip // a person who looks sees no effect
	}
	if account.IsUserQuestion(q) && (a == keep.Approve || a == keep.Reject) {
		same := w.sameUser(q)
		w.saw(fmt.Sprintf("user: asked, the same %t", same))
		if !same {
			a = keep.Reject
		}
	}
	err = w.answer(o, q, a)
	if err == nil && a != keep.Stop && w.chance(0.2) {
		if again := w.answer(o, q, a); again == nil {
			w.broken("settled-stays", "question %s was answered twice", q.ID)
		}
	}
	return fmt.Sprintf("%s to %s about %s", a, q.Kind, q.Mutation), err
}

// contradicted reports whether "it didn't happen" would be a wrong answer to q.
func (w *world) contradicted(q keep.Escalation) bool {
	m, err := w.store.Mutation(person, q.Mutation)
	return err == nil && w.truth.contradicts(m.Token)
}

// answer decides, and looks whether the decision should have been taken.
func (w *world) answer(o *operator.Operator, q keep.Escalation, a keep.Action) error {
	if now, err := w.store.Escalation(person, q.ID); a == keep.DidNotHappen && err == nil && now.ClosedAt.IsZero() {
		w.vouched[q.ID] = w.contradicted(q)
	}
	if a == keep.Stop {
		return w.stop(o, q)
	}
	d := keep.Decision{Action: a, By: "ann", From: "sim"}
	if a == keep.Raise {
		w.raise(q, &d)
	}
	if w.calm || w.chance(0.8) { // who looks first says what came of it
		d.Result = json.RawMessage(`{"id":7}`)
	}
	err := o.Decide(person, q.ID, d)
	_, misfit := errors.AsType[*operator.ActionError](err)
	if _, low := errors.AsType[*operator.LimitError](err); low && a == keep.Raise {
		misfit = true
	}
	if _, bare := errors.AsType[*operator.ResultError](err); bare && (a == keep.Happened || a == keep.TreatAsDone) && d.Result == nil {
		misfit = true
	}
	_, waits := errors.AsType[*operator.ItemError](err)
	switch {
	case err == nil && !q.Allows(a):
		w.broken("explained", "%s was taken as an answer to %s, which offers %v", a, q.Kind, q.Choices)
	case err == nil:
		w.saw("action: " + string(a))
		w.taken[q.ID] = a
		w.result.Decisions++
	case waits && w.itemInDoubt(q):
		w.result.Refusals++
	case misfit || errors.Is(err, keep.ErrDecided) || errors.Is(err, keep.ErrStale) || errors.Is(err, errDisk) || errors.Is(err, keep.ErrNotFound) || w.fileGone && errors.Is(err, keep.ErrReplaced):
		w.result.Refusals++
	default:
		w.broken("explained", "%s to %s ended with %v", a, q.Kind, err)
	}
	return err
}

// itemInDoubt reports whether nobody knows yet whether a call of the item happened which q is about: what to do with the item waits for that.
func (w *world) itemInDoubt(q keep.Escalation) bool {
	ms, _, err := w.store.Mutations(person, keep.MutationFilter{Workflow: q.Workflow, Item: q.Item}, keep.Page{Limit: keep.MaxPage})
	return err == nil && q.Item != "" && slices.ContainsFunc(ms, func(m keep.Mutation) bool { return lifecycle.Unknown(m.State) })
}

// noteTreated notes whose effect is not to be looked for, once c is committed: whoever
// decided so may die before he learns of it.
func (w *world) noteTreated(c keep.Commit) {
	for _, change := range c.Changes {
		v, ok := change.(keep.CloseEscalation)
		if !ok || v.Decision == nil || v.Decision.Action != keep.TreatAsDone {
			continue
		}
		q, err := w.store.Escalation(person, v.ID)
		w.must("read a question that was decided", err)
		if q.Item != "" {
			w.treated[string(q.Workflow)+" "+q.Item] = true
			continue
		}
		r, err := w.store.Run(person, q.Run)
		w.must("read the run of a question", err)
		w.treated[string(r.Chain)] = true
	}
}

// honest returns what a person decides who looks first, in a world that is calm.
func (w *world) honest(q keep.Escalation) keep.Action {
	switch {
	case account.IsUserQuestion(q) && !w.sameUser(q):
		return keep.Reject
	case q.Kind == keep.AskUnknownOutcome && w.contradicted(q) && q.Allows(keep.CheckAgain) && w.chance(0.5):
		return keep.CheckAgain
	case q.Kind == keep.AskUnknownOutcome && w.contradicted(q) && w.chance(0.5):
		return keep.Happened
	case q.Kind == keep.AskUnknownOutcome && w.contradicted(q):
		return keep.Skip
	case q.Kind == keep.AskUnknownOutcome:
		return keep.DidNotHappen
	case q.Kind == keep.AskBudget && w.chance(0.7):
		return keep.Raise
	case q.Kind == keep.AskAlreadyDone:
		if rival, err := w.store.Mutation(person, q.Mutation); err == nil && rival.State == keep.Applied && w.chance(0.5) {
			return keep.TreatAsDone
		}
		return keep.DoAgain
	}
	for _, a := range []keep.Action{keep.Approve, keep.Reprocess, keep.Retry} {
		if q.Allows(a) {
			return a
		}
	}
	return q.Choices[0].Action
}

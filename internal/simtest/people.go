package simtest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/engine"
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
			p.act(p.engine)
			continue
		}
		p.act(w.newProcess(p.name+"beside ", false).engine)
		if w.group != nil {
			continue // the host of the workflow hears of it
		}
		p.sleep(p.ctx, w.span(time.Second), "people")
		p.engine.Reload()
	}
}

// act is one thing that a person does.
func (p *process) act(e *engine.Engine) {
	w := p.w
	f := w.flows[w.below(len(w.flows))]
	w.result.Acts++
	clear(w.resting) // a person may want a call before its time
	var err error
	var what string
	switch n := w.below(22); {
	case n < 10:
		what, err = w.decide(e)
	case n < 12:
		b := behaviour{}
		if w.chance(0.4) {
			b = w.newBug()
		}
		what = fmt.Sprintf("deploy %s %+v", f.name, b)
		_, err = e.Deploy(person, f.deployment(b))
	case n < 14:
		on := w.chance(0.3)
		what = fmt.Sprintf("pause %s %t", f.name, on)
		err = e.SetPaused(person, f.name, on)
	case n < 16:
		what, err = w.request(e, f)
	case n >= 20:
		what, err = w.sweep(e)
	case n < 18 && f.job != nil:
		what = "change an item"
		f.job.items[w.below(len(f.job.items))].rev++
	default:
		what, err = w.skip(e, f)
	}
	w.note(fmt.Sprintf("person: %s: %v", what, err))
}

// request asks for a run now.
func (w *world) request(e *engine.Engine, f *flow) (string, error) {
	h := f.sources[w.below(len(f.sources))].producer
	if f.job != nil && w.chance(0.5) {
		h = f.job.name
	}
	return "run now " + string(h), e.Trigger(person, f.name, h)
}

// skip leaves an event, or an input, that is there or not.
func (w *world) skip(e *engine.Engine, f *flow) (string, error) {
	events, _, err := w.store.Events(person, keep.EventFilter{Workflow: f.name}, keep.Page{Limit: 30})
	if err != nil || len(events) == 0 || w.chance(0.7) {
		return "skip nothing", err
	}
	ev := events[w.below(len(events))]
	if len(ev.CausedBy) > 0 && w.chance(0.3) {
		in := ev.CausedBy[w.below(len(ev.CausedBy))]
		_, err = e.SkipInput(person, f.name, in)
		return "skip input " + string(in), err
	}
	res, err := e.SkipEvents(person, f.name, ev.Topic, []keep.MessageID{ev.MessageID})
	for kind, n := range map[string]int{"skipped": res.Skipped, "aborted": len(res.Aborted), "too late": res.TooLate, "finished": res.Finished} {
		if n > 0 {
			w.saw("skip: " + kind)
		}
	}
	return fmt.Sprintf("skip event %s %s", ev.Topic, ev.MessageID), err
}

// decide answers a question of the inbox: mostly with a choice that is offered,
// sometimes with another, sometimes twice.
func (w *world) decide(e *engine.Engine) (string, error) {
	qs, _, err := w.store.Escalations(person, keep.EscalationFilter{Open: w.chance(0.9)}, keep.Page{Limit: keep.MaxPage})
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
	err = w.answer(e, q, a)
	if err == nil && w.chance(0.2) {
		if again := w.answer(e, q, a); again == nil {
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
func (w *world) answer(e *engine.Engine, q keep.Escalation, a keep.Action) error {
	if now, err := w.store.Escalation(person, q.ID); a == keep.DidNotHappen && err == nil && now.ClosedAt.IsZero() {
		w.vouched[q.ID] = w.contradicted(q)
	}
	err := e.Decide(person, q.ID, keep.Decision{Action: a, By: "ann", From: "sim"})
	_, misfit := errors.AsType[*engine.ActionError](err)
	switch {
	case err == nil && !q.Allows(a):
		w.broken("explained", "%s was taken as an answer to %s, which offers %v", a, q.Kind, q.Choices)
	case err == nil:
		w.saw("action: " + string(a))
		w.taken[q.ID] = a
		w.result.Decisions++
	case misfit || errors.Is(err, keep.ErrDecided) || errors.Is(err, keep.ErrStale) || errors.Is(err, errDisk) || errors.Is(err, keep.ErrNotFound):
		w.result.Refusals++
	default:
		w.broken("explained", "%s to %s ended with %v", a, q.Kind, err)
	}
	return err
}

// honest returns what a person decides who looks first, in a world that is calm.
func (w *world) honest(q keep.Escalation) keep.Action {
	switch {
	case q.Kind == keep.AskUnknownOutcome && w.contradicted(q) && q.Allows(keep.CheckAgain) && w.chance(0.5):
		return keep.CheckAgain
	case q.Kind == keep.AskUnknownOutcome && w.contradicted(q):
		return keep.Skip
	case q.Kind == keep.AskUnknownOutcome:
		return keep.DidNotHappen
	}
	for _, a := range []keep.Action{keep.Approve, keep.Reprocess, keep.Retry} {
		if q.Allows(a) {
			return a
		}
	}
	return q.Choices[0].Action
}

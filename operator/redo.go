package operator

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/law/ledger"
	"github.com/keep-run/keep/law/lifecycle"
)

// A RedoRequest names what a person wants done again: events of a topic, or an input, by
// which those of its events are meant that no consumer published.
type RedoRequest struct {
	Workflow keep.WorkflowName
	Topic    keep.TopicName
	IDs      []keep.MessageID
	Input    keep.InputID // empty: events are named

	// Mark is that of the plan that the person saw. Anything else is refused with
	// *RedoError: the redo is for what was shown, once.
	Mark string
}

// A RedoPlan is what a redo will cause.
type RedoPlan struct {
	Events []RedoEvent
	Mark   string // changes with all that the plan says
	Done   bool   // it was done
}

// A RedoEvent is what doing an event again will cause.
type RedoEvent struct {
	keep.Event                    // as it was when it was looked at; without its payload
	Readers    []keep.HandlerName // consumers that will get it
	Calls      []keep.Mutation    // of the attempts before, newest first
	Published  []RedoPublished    // what runs of the attempts before published
	Forgotten  int                // attempts before of which the records were deleted
	Below      []keep.Mutation    // calls of runs that worked on what was published, and so on
	More       bool               // more was published than is looked at
	Refused    string             // why it cannot be done again; empty: it can
}

// A RedoPublished is an event that an attempt before published.
type RedoPublished struct {
	keep.EventRef

	// Made says that the host made its id: the new attempt publishes another event in its
	// place, and what reads it does its work again. An id that the script gave stays one
	// event, so nothing more follows from it.
	Made bool
}

// A RedoError is returned when something cannot be done again. Nothing was changed.
type RedoError struct {
	What string // such as "event m in topic t"
	Why  string
}

// Error names what cannot be done again, and why.
func (e *RedoError) Error() string { return fmt.Sprintf("%s cannot be done again: %s", e.What, e.Why) }

// maxBelow is how many events and calls below an event are looked at.
const maxBelow = 1000

// PlanRedo returns what a redo would cause. It changes nothing.
func (o *Operator) PlanRedo(ctx context.Context, r RedoRequest) (RedoPlan, error) {
	p, _, err := o.planRedo(ctx, r)
	return p, err
}

// planRedo returns the plan of a redo, and what changes besides its events.
func (o *Operator) planRedo(ctx context.Context, r RedoRequest) (RedoPlan, []keep.Change, error) {
	events, more, err := o.redone(ctx, r)
	if err != nil {
		return RedoPlan{}, nil, err
	}
	readers, err := o.readers(ctx, r.Workflow)
	if err != nil {
		return RedoPlan{}, nil, err
	}
	p := RedoPlan{Events: make([]RedoEvent, 0, len(events))}
	below := &below{o: o, caused: make(map[keep.InputID][]keep.Event)}
	for _, ev := range events {
		e := RedoEvent{Event: ev, Readers: readers[ev.Topic]}
		e.Payload = nil
		if err := below.of(ctx, &e); err != nil {
			return RedoPlan{}, nil, err
		}
		switch e.Refused = lifecycle.CanRedo(ev, slices.Concat(e.Calls, e.Below)); {
		case e.Refused != "":
		case len(e.Readers) == 0:
			e.Refused = fmt.Sprintf("no consumer of the current version reads topic %s, so nothing would do it", ev.Topic)
		case e.More:
			e.Refused = fmt.Sprintf("more than %d runs or events are below it, so what it would cause cannot be shown", maxBelow)
		}
		p.Events = append(p.Events, e)
	}
	p.Mark, err = markOf(p.Events)
	return p, more, err
}

// markOf returns a text that is another when the plan of a redo is.
func markOf(events []RedoEvent) (string, error) {
	type seen struct {
		Topic     keep.TopicName
		ID        keep.MessageID
		Attempt   int
		Status    keep.EventStatus
		Chain     keep.RunID
		Readers   []keep.HandlerName
		Calls     []string
		Published []RedoPublished
		Refused   string
	}
	var list []seen
	for _, e := range events {
		s := seen{e.Topic, e.MessageID, e.Attempt(), e.Status, e.ReservedBy, e.Readers, nil, e.Published, e.Refused}
		for _, m := range slices.Concat(e.Calls, e.Below) {
			s.Calls = append(s.Calls, fmt.Sprint(m.Key, m.State, m.Attempts))
		}
		list = append(list, s)
	}
	text, err := json.Marshal(list)
	return ledger.Hash(text)[:32], err
}

// Redo has events done again as new attempts, all of them or none, if the plan is still the
// one that d.By saw. Each is pending in its old place; the attempt before keeps its runs,
// its calls and what it published. Who, when and why is kept with each event, and for an input with that, too.
func (o *Operator) Redo(ctx context.Context, r RedoRequest, d keep.Decision) (RedoPlan, error) {
	return retryStale(ctx, func() (RedoPlan, error) {
		p, more, err := o.planRedo(ctx, r)
		if err != nil {
			return p, err
		}
		for _, e := range p.Events {
			if e.Refused != "" {
				return p, &RedoError{fmt.Sprintf("event %s in topic %s", e.MessageID, e.Topic), e.Refused}
			}
		}
		what := fmt.Sprintf("%d events of workflow %s", len(p.Events), r.Workflow)
		switch {
		case len(p.Events) == 0:
			return p, &RedoError{"input " + string(r.Input), "it has no event that came from outside"}
		case p.Mark != r.Mark:
			return p, &RedoError{what, "what that would cause is not what was shown; look again"}
		}
		now := o.now()
		changes := append(redoChanges(p.Events, d), more...)
		if r.Input != "" {
			changes = append(changes, decidedAbout(aboutInput(keep.Input{Workflow: r.Workflow, ID: r.Input}), keep.DoneAgain, d, now))
		}
		topics := make(map[keep.TopicName]bool)
		for _, e := range p.Events {
			topics[e.Topic] = true
		}
		wake, err := o.lookAgain(ctx, r.Workflow, readers(topics))
		if err != nil {
			return p, err
		}
		if err := o.decided(ctx, r.Workflow, now, append(changes, wake...)...); err != nil {
			return p, err
		}
		p.Done = true
		o.log.InfoContext(ctx, "events redone", "workflow", r.Workflow, "events", len(p.Events), "by", d.By, "from", d.From, "note", d.Note)
		return p, nil
	})
}

// redoChanges returns the changes by which events are done again.
func redoChanges(events []RedoEvent, d keep.Decision) (changes []keep.Change) {
	type group struct {
		topic   keep.TopicName
		chain   keep.RunID
		attempt int
	}
	ids := make(map[group][]keep.MessageID)
	for _, e := range events {
		g := group{e.Topic, e.ReservedBy, e.Attempt()}
		ids[g] = append(ids[g], e.MessageID)
	}
	order := func(a, b group) int {
		return cmp.Or(cmp.Compare(a.topic, b.topic), cmp.Compare(a.chain, b.chain), cmp.Compare(a.attempt, b.attempt))
	}
	for _, g := range slices.SortedFunc(maps.Keys(ids), order) {
		changes = append(changes, keep.RedoEvents{Topic: g.topic, IDs: ids[g], Chain: g.chain, Attempt: g.attempt, By: d.By, From: d.From, Note: d.Note})
	}
	return changes
}

// redone returns the events that a request means, each once, and what else changes with
// them.
func (o *Operator) redone(ctx context.Context, r RedoRequest) ([]keep.Event, []keep.Change, error) {
	if r.Input != "" {
		return o.cameWith(ctx, r)
	}
	events, err := o.named(ctx, r.Workflow, r.Topic, r.IDs, 0)
	return events, nil, err
}

// cameWith returns the events of an input that came from outside. What consumers published
// follows from these, and is published again.
func (o *Operator) cameWith(ctx context.Context, r RedoRequest) (events []keep.Event, changes []keep.Change, err error) {
	in, err := o.store.Input(ctx, r.Input)
	switch {
	case err != nil:
		return nil, nil, err
	case in.Workflow != r.Workflow:
		return nil, nil, &keep.NotFoundError{What: "input", ID: string(r.Input)}
	case in.Status == keep.InputSkipped:
		changes = append(changes, keep.UnskipInput{Input: in.ID})
	}
	all, err := o.causedBy(ctx, r.Workflow, r.Input)
	if err != nil {
		return nil, nil, err
	}
	kinds := make(map[keep.RunID]keep.Kind)
	for _, ev := range all {
		by := ev.CreatedBy.Run()
		if _, known := kinds[by]; !known && by != "" {
			run, err := o.store.Run(ctx, by)
			if isNotFound(err) {
				return nil, nil, &RedoError{"input " + string(r.Input), fmt.Sprintf(
					"run %s, which published event %s in topic %s, was deleted, so nobody knows what came first; redo single events", by, ev.MessageID, ev.Topic)}
			} else if err != nil {
				return nil, nil, err
			}
			kinds[by] = run.Kind
		}
		if kinds[by] != keep.Consumer {
			events = append(events, ev)
		}
	}
	return events, changes, nil
}

// readers returns the consumers of the current version by the topics that they read.
func (o *Operator) readers(ctx context.Context, w keep.WorkflowName) (map[keep.TopicName][]keep.HandlerName, error) {
	def, err := o.definition(ctx, w)
	readers := make(map[keep.TopicName][]keep.HandlerName)
	for _, h := range def.Handlers {
		for _, t := range h.Subscribe {
			readers[t] = append(readers[t], h.Name)
		}
	}
	return readers, err
}

// A below finds what runs that worked on events called and published.
type below struct {
	o      *Operator
	caused map[keep.InputID][]keep.Event // what inputs caused, oldest first
}

// of fills in what the attempts at an event did, and what came of it.
func (b *below) of(ctx context.Context, e *RedoEvent) error {
	runs, calls, err := b.work(ctx, e.Event)
	if err != nil {
		return err
	}
	e.Calls, e.More = calls, len(runs) == maxBelow
	by := make(map[keep.RunID]bool)
	for _, r := range runs {
		by[r.ID] = true
	}
	for _, d := range e.Redone {
		if d.Chain != "" && !slices.ContainsFunc(runs, func(r keep.Run) bool { return r.Chain == d.Chain }) {
			e.Forgotten++
		}
	}
	direct := maps.Clone(by)
	seen := make(map[int64]bool)
	for _, in := range e.CausedBy {
		if _, known := b.caused[in]; !known {
			list, err := b.o.causedBy(ctx, e.Workflow, in)
			if err != nil {
				return err
			}
			slices.SortFunc(list, func(a, b keep.Event) int { return cmp.Compare(a.Seq, b.Seq) })
			b.caused[in] = list
		}
		for _, ev := range b.caused[in] { // what is published comes after that of which it comes
			from := ev.CreatedBy.Run()
			if from == "" || !by[from] || seen[ev.Seq] {
				continue
			}
			seen[ev.Seq] = true
			if len(seen) > maxBelow {
				e.More = true
				return nil
			}
			if direct[from] {
				made := slices.ContainsFunc(runs, func(r keep.Run) bool { return r.MadeID(ev.MessageID) })
				e.Published = append(e.Published, RedoPublished{keep.EventRef{Topic: ev.Topic, MessageID: ev.MessageID}, made})
			}
			later, calls, err := b.work(ctx, ev)
			if err != nil {
				return err
			}
			e.Below, e.More = append(e.Below, calls...), e.More || len(later) == maxBelow
			for _, r := range later {
				by[r.ID] = true
			}
		}
	}
	return nil
}

// work returns the runs that worked on an event, and their calls.
func (b *below) work(ctx context.Context, ev keep.Event) (runs []keep.Run, calls []keep.Mutation, err error) {
	runs, err = b.o.store.RunsOfEvent(ctx, ev.Workflow, ev.Topic, ev.MessageID, maxBelow)
	if err != nil {
		return nil, nil, err
	}
	seen := make(map[keep.MutationKey]bool)
	for _, r := range runs {
		if r.Mutation == "" || seen[r.Mutation] {
			continue
		}
		seen[r.Mutation] = true
		m, err := b.o.store.Mutation(ctx, r.Mutation)
		if isNotFound(err) { // it waited for an approval
			continue
		} else if err != nil {
			return nil, nil, err
		}
		calls = append(calls, m)
	}
	return runs, calls, nil
}

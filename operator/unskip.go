package operator

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/law/lifecycle"
	"github.com/keep-run/keep/store"
)

// A SkipKept is the skip of an event that cannot be undone.
type SkipKept struct {
	Topic keep.TopicName
	ID    keep.MessageID
	Why   string
}

// An UnskipError is returned when the skip of an event or input cannot be undone. Nothing
// was changed.
type UnskipError struct {
	What string // such as "event m in topic t"
	Why  string
}

// Error names what stays skipped, and why.
func (e *UnskipError) Error() string {
	return fmt.Sprintf("the skip of %s cannot be undone: %s", e.What, e.Why)
}

// An UnskipResult says what became of events whose skip a person undid.
type UnskipResult struct {
	Unskipped int        // are pending again
	Pending   int        // were not skipped, and are pending
	Kept      []SkipKept // of an input: stay skipped
}

// UnskipEvents undoes the skip of events: each is pending again, in its old place and in
// the same attempt, and consumers look at it. An event whose run was past its call, or in
// doubt about it, and one whose payload was deleted stay skipped: then the error is
// *UnskipError and nothing is changed.
func (o *Operator) UnskipEvents(ctx context.Context, w keep.WorkflowName, topic keep.TopicName, ids []keep.MessageID, d keep.Decision) (UnskipResult, error) {
	return o.unskipEvents(ctx, w, topic, ids, 0, d)
}

// UnskipEventAttempt is UnskipEvents of an event that is at that attempt, else *EventError: what another attempt did would be done a
// second time.
func (o *Operator) UnskipEventAttempt(ctx context.Context, w keep.WorkflowName, topic keep.TopicName, id keep.MessageID, attempt int, d keep.Decision) (UnskipResult, error) {
	return o.unskipEvents(ctx, w, topic, []keep.MessageID{id}, attempt, d)
}

// unskipEvents is UnskipEvents of events that are at an attempt; 0: at any.
func (o *Operator) unskipEvents(ctx context.Context, w keep.WorkflowName, topic keep.TopicName, ids []keep.MessageID, attempt int, d keep.Decision) (UnskipResult, error) {
	return retryStale(ctx, func() (UnskipResult, error) {
		events, err := o.named(ctx, w, topic, ids, attempt)
		if err != nil {
			return UnskipResult{}, err
		}
		return o.unskip(ctx, w, events, nil, d)
	})
}

// UnskipInput undoes the skip of an input: its status follows its events again, and
// those of them that are skipped become pending, as UnskipEvents says. Those that cannot
// be are in Kept. If none can be, the error is *UnskipError.
func (o *Operator) UnskipInput(ctx context.Context, w keep.WorkflowName, id keep.InputID, d keep.Decision) (UnskipResult, error) {
	return o.unskipInput(ctx, w, id, d, func([]keep.Event) error { return nil })
}

// UnskipShownInput is UnskipInput of an input whose events were done again that often (Redone), else *EventError: what another attempt
// did would be done a second time.
func (o *Operator) UnskipShownInput(ctx context.Context, w keep.WorkflowName, id keep.InputID, redone int, d keep.Decision) (UnskipResult, error) {
	return o.unskipInput(ctx, w, id, d, asShown(redone))
}

// unskipInput is UnskipInput of an input whose events check accepts.
func (o *Operator) unskipInput(ctx context.Context, w keep.WorkflowName, id keep.InputID, d keep.Decision, check func([]keep.Event) error) (UnskipResult, error) {
	return retryStale(ctx, func() (UnskipResult, error) {
		in, err := o.store.Input(ctx, id)
		switch {
		case err != nil:
			return UnskipResult{}, err
		case in.Workflow != w:
			return UnskipResult{}, &keep.NotFoundError{What: "input", ID: string(id)}
		case in.Status != keep.InputSkipped:
			return UnskipResult{}, &UnskipError{"input " + string(id), "it is " + string(in.Status) + ", not skipped; single events of it may be"}
		}
		events, err := o.causedBy(ctx, w, id)
		if err == nil {
			err = check(events)
		}
		if err != nil {
			return UnskipResult{}, err
		}
		events = slices.DeleteFunc(events, func(ev keep.Event) bool { return ev.Status == keep.EventConsumed })
		return o.unskip(ctx, w, events, &in, d)
	})
}

// unskip commits what undoing the skip of events causes, and of the input that caused
// them if one is named. What d decides is recorded for the input or, without one, for the events.
func (o *Operator) unskip(ctx context.Context, w keep.WorkflowName, events []keep.Event, in *keep.Input, d keep.Decision) (res UnskipResult, err error) {
	type group struct {
		topic keep.TopicName
		chain keep.RunID
	}
	skipped := make(map[group][]keep.MessageID)
	topics := make(map[keep.TopicName]bool)
	for _, ev := range events {
		why, err := o.canUnskip(ctx, ev)
		switch {
		case err != nil:
			return UnskipResult{}, err
		case ev.Status == keep.EventPending:
			res.Pending++
		case why != "":
			res.Kept = append(res.Kept, SkipKept{ev.Topic, ev.MessageID, why})
		default:
			g := group{ev.Topic, ev.ReservedBy}
			skipped[g], topics[ev.Topic] = append(skipped[g], ev.MessageID), true
			res.Unskipped++
		}
	}
	if len(res.Kept) > 0 && (in == nil || res.Unskipped == 0) {
		k := res.Kept[0]
		return UnskipResult{}, &UnskipError{fmt.Sprintf("event %s in topic %s", k.ID, k.Topic), k.Why}
	}
	now := o.now()
	var changes []keep.Change
	order := func(a, b group) int { return cmp.Or(cmp.Compare(a.topic, b.topic), cmp.Compare(a.chain, b.chain)) }
	for _, g := range slices.SortedFunc(maps.Keys(skipped), order) {
		changes = append(changes, keep.UnskipEvents{Topic: g.topic, IDs: skipped[g], Chain: g.chain})
		if in == nil {
			changes = append(changes, decidedAboutEvents(w, g.topic, skipped[g], keep.Unskip, d, now)...)
		}
	}
	if in != nil {
		changes = append(changes, keep.UnskipInput{Input: in.ID}, decidedAbout(aboutInput(*in), keep.Unskip, d, now))
	}
	if len(changes) == 0 {
		return res, nil
	}
	wake, err := o.lookAgain(ctx, w, readers(topics))
	if err != nil {
		return UnskipResult{}, err
	}
	return res, o.decided(ctx, w, now, append(changes, wake...)...)
}

// canUnskip returns why the skip of an event cannot be undone; empty: it can. What it
// reads of a chain that is over does not change any more, but to be swept.
func (o *Operator) canUnskip(ctx context.Context, ev keep.Event) (string, error) {
	if ev.Status != keep.EventSkipped || ev.ReservedBy == "" || ev.ReservedBy == keep.Swept {
		return lifecycle.CanUnskip(ev, nil, nil), nil
	}
	var chain []keep.Run
	for r, err := range store.All(ctx, o.store.Runs, keep.RunFilter{Workflow: ev.Workflow, Chain: ev.ReservedBy}, keep.Page{Limit: keep.MaxPage, Bare: true}) {
		if err != nil {
			return "", err
		}
		chain = append(chain, r)
	}
	if len(chain) == 0 { // it was swept meanwhile
		return "", fmt.Errorf("chain %s of event %s: %w", ev.ReservedBy, ev.MessageID, keep.ErrStale)
	}
	mutations := make(map[keep.MutationKey]keep.Mutation)
	for _, r := range chain {
		if _, known := mutations[r.Mutation]; r.Mutation == "" || known {
			continue
		}
		m, err := o.store.Mutation(ctx, r.Mutation)
		if err != nil && !isNotFound(err) { // what waited for an approval has no record
			return "", err
		}
		mutations[r.Mutation] = m
	}
	return lifecycle.CanUnskip(ev, chain, mutations), nil
}

// readers returns what tells the consumers of topics.
func readers(topics map[keep.TopicName]bool) func(keep.Handler) bool {
	return func(h keep.Handler) bool {
		return slices.ContainsFunc(h.Subscribe, func(t keep.TopicName) bool { return topics[t] })
	}
}

// lookAgain returns the changes by which handlers of the current version look again at what they
// passed over.
func (o *Operator) lookAgain(ctx context.Context, w keep.WorkflowName, is func(keep.Handler) bool) (changes []keep.Change, err error) {
	def, err := o.definition(ctx, w)
	if isNotFound(err) { // no version of it was deployed
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	states, err := o.store.Handlers(ctx, w)
	if err != nil {
		return nil, err
	}
	for _, h := range def.Handlers {
		known := slices.ContainsFunc(states, func(s keep.HandlerState) bool { return s.Handler == h.Name })
		if known && is(h) {
			changes = append(changes, keep.LookAgain{Handler: h.Name})
		}
	}
	return changes, nil
}

// UnskipItem undoes the skip of an item: its job handles it again, in the same attempt,
// so what was applied for it is not done again. An item with a call whose outcome nobody
// knows, or of which calls were deleted since, stays skipped: *ItemError.
func (o *Operator) UnskipItem(ctx context.Context, w keep.WorkflowName, id string, d keep.Decision) error {
	return o.unskipItem(ctx, w, id, d, func(keep.Item) error { return nil })
}

// UnskipAttempt is UnskipItem of an item that is at that attempt, else *ItemError: what was applied in another one would be done a
// second time.
func (o *Operator) UnskipAttempt(ctx context.Context, w keep.WorkflowName, id string, attempt int, d keep.Decision) error {
	return o.unskipItem(ctx, w, id, d, func(it keep.Item) error { return isAt(it, attempt, keep.Unskip) })
}

// unskipItem undoes the skip of an item that check accepts.
func (o *Operator) unskipItem(ctx context.Context, w keep.WorkflowName, id string, d keep.Decision, check func(keep.Item) error) error {
	it, err := o.store.Item(ctx, w, id)
	if err == nil {
		err = o.CanDoItem(it, keep.Unskip)
	}
	if err == nil {
		err = check(it)
	}
	if err != nil {
		return err
	}
	err = o.eachCall(ctx, it, func(m keep.Mutation) error { return MayUnskip(it, m) })
	if err != nil {
		return err
	}
	return o.putItem(ctx, lifecycle.Unskip(it, o.now()), keep.Unskip, d)
}

// MayUnskip returns why a call of an item keeps the skip of the item from being undone, as *ItemError; nil: it does not.
func MayUnskip(it keep.Item, m keep.Mutation) error {
	if m.Attempt != it.Attempt || m.State != keep.Skipped {
		return nil
	}
	return &ItemError{it.ID, it.Status, keep.Unskip, fmt.Sprintf("nobody knows whether its call %s happened; only reprocess does it again", m.Key)}
}

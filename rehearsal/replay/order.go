package replay

import (
	"context"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/engine"
)

// compareKey compares the order key of a run with the one that the script gives to its events, and
// reports whether prepare would have begun. The key says which later events wait for the run.
func (r *replay) compareKey(ctx context.Context, p phase) (begins bool, err error) {
	h, ok := r.cfg.Definition.Handler(r.run.Handler)
	was, keyed := r.run.Lane.Key()
	if p.name != "prepare" || r.trigger.Seq == 0 || !ok || !keyed && h.Order != keep.OrderKey {
		return true, nil
	}
	events, asThen, err := r.reserved(ctx)
	if err != nil {
		return false, err
	}
	now, f, err := r.engine.ReplayKey(ctx, engine.Replay{Script: r.cfg.Script, Definition: r.cfg.Definition, Run: r.run}, r.trigger, events)
	switch {
	case err != nil:
		return false, err
	case f == nil && now == was && len(events) == r.reserves():
		return true, nil
	case !asThen:
		r.missing(p.name, "", nil, "its order key is not known: an event that it reserved says something else since, or is not kept any more")
		return true, nil
	case f != nil:
		r.differs(p.name, Failed, nil, failureOf(f))
		return false, nil
	}
	r.differs(p.name, OrderKey, orNull(was), orNull(now))
	return true, nil
}

// orNull returns an order key as differences have it; none is null.
func orNull(key string) any {
	if key == "" {
		return nil
	}
	return key
}

// reserves returns how many events the run reserved.
func (r *replay) reserves() (n int) {
	for _, held := range r.run.Reservations {
		n += len(held.IDs)
	}
	return n
}

// reserved returns the events that the run reserved, and whether they are certainly as they were then.
func (r *replay) reserved(ctx context.Context) (list []keep.Event, asThen bool, err error) {
	asThen = true
	for _, held := range r.run.Reservations {
		events, err := r.cfg.Store.EventsByID(ctx, r.run.Workflow, held.Topic, held.IDs)
		if err != nil {
			return nil, false, err
		}
		asThen = asThen && len(events) == len(held.IDs)
		for _, e := range events {
			if e.Seq == r.trigger.Seq {
				list = append(list, r.trigger)
				continue
			}
			asThen = asThen && !e.UpdatedAt.After(r.run.UpdatedAt)
			e.Status = keep.EventPending
			list = append(list, at(e, e.AttemptOf(r.run)-1))
		}
	}
	return list, asThen, nil
}

// at returns an event as it was when it had been redone n times.
func at(e keep.Event, n int) keep.Event {
	e.Redone = e.Redone[:min(n, len(e.Redone))]
	return e
}

package memory

import (
	"slices"
	"time"

	"github.com/keep-run/keep"
)

// clean returns t as every store keeps it: UTC, in milliseconds.
func clean(t time.Time) time.Time {
	if t.IsZero() {
		return time.Time{}
	}
	return time.UnixMilli(t.UnixMilli()).UTC()
}

// copyRun copies a run. As all copies here it is deep wherever a caller could
// reach into the store, and cuts times.
func copyRun(r keep.Run) keep.Run {
	r.Reservations = copyReservations(r.Reservations)
	r.Prepared = slices.Clone(r.Prepared)
	r.Error = copyFailure(r.Error)
	r.WakeAt, r.RetryAt = clean(r.WakeAt), clean(r.RetryAt)
	r.CreatedAt, r.UpdatedAt = clean(r.CreatedAt), clean(r.UpdatedAt)
	return r
}

// copyReservations copies lists and the lists in them; nil stays nil.
func copyReservations(list []keep.Reservation) []keep.Reservation {
	list = slices.Clone(list)
	for i := range list {
		list[i].IDs = slices.Clone(list[i].IDs)
		list[i].Attempts = slices.Clone(list[i].Attempts)
	}
	return list
}

// copyFailure copies a failure; nil stays nil.
func copyFailure(f *keep.Failure) *keep.Failure {
	if f == nil {
		return nil
	}
	c := *f
	return &c
}

// copyMutation copies a ledger record.
func copyMutation(m keep.Mutation) keep.Mutation {
	m.Identity = slices.Clone(m.Identity)
	m.Payload = slices.Clone(m.Payload)
	m.Result = slices.Clone(m.Result)
	m.Pin = slices.Clone(m.Pin)
	m.Spent, m.SpentAt = slices.Clone(m.Spent), clean(m.SpentAt)
	m.Error = copyFailure(m.Error)
	m.NextReconcileAt, m.CallDeadline = clean(m.NextReconcileAt), clean(m.CallDeadline)
	m.CreatedAt, m.UpdatedAt = clean(m.CreatedAt), clean(m.UpdatedAt)
	return m
}

// copyMove copies a line of history.
func copyMove(m keep.Move) keep.Move {
	m.At = clean(m.At)
	return m
}

// copyEvent copies an event. Its times come from commits, and are cut already.
func copyEvent(e keep.Event) keep.Event {
	e.Payload = slices.Clone(e.Payload)
	e.CausedBy = slices.Clone(e.CausedBy)
	e.Redone = slices.Clone(e.Redone)
	return e
}

// copyInput copies an input.
func copyInput(in keep.Input) keep.Input {
	in.CreatedAt = clean(in.CreatedAt)
	return in
}

// copyItem copies an item.
func copyItem(it keep.Item) keep.Item {
	it.CreatedAt, it.UpdatedAt = clean(it.CreatedAt), clean(it.UpdatedAt)
	return it
}

// copyLogLine copies a line of a log.
func copyLogLine(l keep.LogLine) keep.LogLine {
	l.At = clean(l.At)
	return l
}

// copyHandlerState copies what the host remembers of a handler.
func copyHandlerState(h keep.HandlerState) keep.HandlerState {
	h.WakeAt, h.NextAt = clean(h.WakeAt), clean(h.NextAt)
	h.RequestedAt, h.LastAt = clean(h.RequestedAt), clean(h.LastAt)
	return h
}

// copyDeployment copies a version with its definition.
func copyDeployment(d keep.Deployment) keep.Deployment {
	d.Code, d.Map = slices.Clone(d.Code), slices.Clone(d.Map)
	d.Definition.Topics = slices.Clone(d.Definition.Topics)
	d.Definition.Called, d.Definition.NewTopics = slices.Clone(d.Definition.Called), slices.Clone(d.Definition.NewTopics)
	d.Definition.Handlers, d.Definition.Renamed = slices.Clone(d.Definition.Handlers), slices.Clone(d.Definition.Renamed)
	for i, h := range d.Definition.Handlers {
		d.Definition.Handlers[i].Subscribe = slices.Clone(h.Subscribe)
		d.Definition.Handlers[i].Publishes = slices.Clone(h.Publishes)
	}
	d.CreatedAt = clean(d.CreatedAt)
	return d
}

// copyEscalation copies a question with its answer.
func copyEscalation(e keep.Escalation) keep.Escalation {
	e.Choices = slices.Clone(e.Choices)
	e.Decision = copyDecision(e.Decision)
	e.CreatedAt, e.ClosedAt, e.ExpiresAt = clean(e.CreatedAt), clean(e.ClosedAt), clean(e.ExpiresAt)
	if e.Approval != nil {
		a := *e.Approval
		a.Payload, a.Claim, a.Now = slices.Clone(a.Payload), slices.Clone(a.Claim), slices.Clone(a.Now)
		a.View.Parts = slices.Clone(a.View.Parts)
		e.Approval = &a
	}
	return e
}

// copyDecision copies an answer; nil stays nil.
func copyDecision(d *keep.Decision) *keep.Decision {
	if d == nil {
		return nil
	}
	c := *d
	c.At, c.Result, c.Limit, c.Until = clean(c.At), slices.Clone(c.Result), 0, time.Time{} // the last two are stored elsewhere
	return &c
}

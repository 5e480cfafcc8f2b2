package commit

import (
	"fmt"
	"slices"
	"time"

	"github.com/keep-run/keep"
)

// reserve pins events one by one, so an event that is listed twice is refused the
// second time.
func (d *decision) reserve(c keep.Reserve) error {
	if c.Chain == "" {
		return fmt.Errorf("reserve in %q: chain required", c.Topic)
	}
	for i, id := range c.IDs {
		e := d.Events.Get(EventKey{d.w, c.Topic, id})
		if e == nil || !e.free() {
			return notFree(e, c.Topic, id)
		}
		if e.attempt() != c.Attempt(i) {
			return fmt.Errorf("reserve %q in %s for attempt %d, and it is at %d: %w", id, c.Topic, c.Attempt(i), e.attempt(), keep.ErrStale)
		}
		if d.unread(c.Topic) {
			if e.N == 0 && !e.New { // it was not read, nor were its causes
				return fmt.Errorf("reserve %q in a topic that nobody reads: %w", id, keep.ErrStale)
			}
			d.countCauses(e, +1)
		}
		e.ReservedBy, e.Moved = c.Chain, true
		plan(&d.p.Events, e, &e.Row)
	}
	return nil
}

// notFree explains why an event could be neither reserved nor skipped.
func notFree(e *Event, topic keep.TopicName, id keep.MessageID) error {
	why := "unknown"
	switch {
	case e == nil:
	case e.Status == keep.EventPending:
		why = "reserved"
	default:
		why = string(e.Status)
	}
	return &keep.ReservationError{Topic: topic, ID: id, Why: why}
}

// reserved returns the pending events of a chain.
func (d *decision) reserved(chain keep.RunID) (list []*Event) {
	for _, entry := range d.Events.list {
		e := entry.value
		if e.Workflow == d.w && e.Status == keep.EventPending && e.ReservedBy == chain && chain != "" {
			list = append(list, e)
		}
	}
	return list
}

// release gives back what the chain reserved and has not finished, and links it with
// the chain, as it does what the chain tried without reserving it.
func (d *decision) release(c keep.Release) {
	for _, e := range d.reserved(c.Chain) {
		e.ReservedBy, e.Moved = "", true
		plan(&d.p.Events, e, &e.Row)
		if d.unread(e.Topic) {
			d.countCauses(e, -1)
		}
		d.p.Tried = append(d.p.Tried, Tried{e, c.Chain})
	}
	for _, ref := range c.Tried {
		e := d.Events.Get(EventKey{d.w, ref.Topic, ref.MessageID})
		if e != nil && c.Chain != "" && !slices.Contains(d.p.Tried, Tried{e, c.Chain}) {
			d.p.Tried = append(d.p.Tried, Tried{e, c.Chain})
		}
	}
}

// finish gives the events that the chain reserved their last status. The chain's name
// stays on them.
func (d *decision) finish(c keep.Finish) error {
	if c.Status != keep.EventConsumed && c.Status != keep.EventSkipped {
		return fmt.Errorf("finish %s: %q is not a last status", c.Chain, c.Status)
	}
	for _, e := range d.reserved(c.Chain) {
		d.end(e, c.Status)
	}
	return nil
}

// end gives a pending event its last status, and counts it in its topic and for the
// inputs that wait for it.
func (d *decision) end(e *Event, status keep.EventStatus) {
	counted := e.ReservedBy != "" || !d.unread(e.Topic)
	e.Status = status
	plan(&d.p.Events, e, &e.Row)
	by := Topic{Pending: -1, Consumed: 1}
	if status == keep.EventSkipped {
		by = Topic{Pending: -1, Skipped: 1}
	}
	d.count(e.Topic, by)
	if counted {
		d.countCauses(e, -1)
	}
}

// unread reports whether free events of a topic count for no input.
func (d *decision) unread(topic keep.TopicName) bool { return d.Unread.Get(TopicKey{d.w, topic}) }

// countCauses adds to the unfinished events of the inputs that caused an event.
func (d *decision) countCauses(e *Event, by int) {
	for _, id := range e.Causes {
		d.countInput(id, by).Expected = false
	}
}

// skipEvents skips events that no run has. An event that is listed twice is refused the
// second time, as in reserve.
func (d *decision) skipEvents(c keep.SkipEvents) error {
	for _, id := range c.IDs {
		e := d.Events.Get(EventKey{d.w, c.Topic, id})
		if e == nil || !e.free() {
			return notFree(e, c.Topic, id)
		}
		d.end(e, keep.EventSkipped)
	}
	return nil
}

// unskipEvents makes skipped events pending and free again. As in release, what had them
// stays linked with them.
func (d *decision) unskipEvents(c keep.UnskipEvents) error {
	for _, id := range c.IDs {
		e := d.Events.Get(EventKey{d.w, c.Topic, id})
		switch {
		case e == nil:
			return &keep.NotFoundError{What: "event in topic " + string(c.Topic), ID: string(id)}
		case e.Status != keep.EventSkipped, e.ReservedBy != c.Chain, c.Chain == keep.Swept, c.Chain != "" && d.swept.Get(d.w):
			return fmt.Errorf("unskip event %q in topic %s, which is %s by %q: %w", id, c.Topic, e.Status, e.ReservedBy, keep.ErrStale)
		}
		e.Status, e.ReservedBy, e.Moved = keep.EventPending, "", true
		plan(&d.p.Events, e, &e.Row)
		d.count(e.Topic, Topic{Pending: 1, Skipped: -1})
		if !d.unread(e.Topic) {
			d.countCauses(e, +1)
		}
		if c.Chain != "" {
			d.p.Tried = append(d.p.Tried, Tried{e, c.Chain})
		}
	}
	return nil
}

// redoEvents makes finished events pending and free again, as a new attempt. What finished
// them stays linked with them, and is kept until the new attempt is over, too.
func (d *decision) redoEvents(c keep.RedoEvents) error {
	for _, id := range c.IDs {
		e := d.Events.Get(EventKey{d.w, c.Topic, id})
		switch {
		case e == nil:
			return &keep.NotFoundError{What: "event in topic " + string(c.Topic), ID: string(id)}
		case e.Status == keep.EventPending, e.ReservedBy != c.Chain, c.Chain == keep.Swept, e.attempt() != c.Attempt, d.swept.Get(d.w):
			return fmt.Errorf("redo event %q in topic %s, which is %s by %q at attempt %d: %w",
				id, c.Topic, e.Status, e.ReservedBy, e.attempt(), keep.ErrStale)
		case e.attempt() >= keep.MaxAttempts:
			return fmt.Errorf("redo event %q in topic %s: it is at attempt %d, and more are not kept", id, c.Topic, e.attempt())
		}
		by := Topic{Pending: 1, Consumed: -1}
		if e.Status == keep.EventSkipped {
			by = Topic{Pending: 1, Skipped: -1}
		}
		d.count(e.Topic, by)
		if !d.unread(e.Topic) {
			d.countCauses(e, +1)
		}
		if c.Chain != "" {
			d.p.Tried = append(d.p.Tried, Tried{e, c.Chain})
		}
		e.Status, e.ReservedBy, e.Moved, e.Redo = keep.EventPending, "", true, true
		e.Redone = append(slices.Clip(e.Redone), keep.Redo{At: d.at.UTC().Truncate(time.Millisecond), By: c.By, From: c.From, Note: c.Note, Chain: c.Chain})
		plan(&d.p.Events, e, &e.Row)
		d.reopened.Put(d.w, true)
	}
	return nil
}

// publish adds an event. If there is one of that name which no run has, it gets the
// later payload, and the later causes besides its own: their inputs wait for it, too.
func (d *decision) publish(e keep.Event, mustBeNew bool) error {
	if err := d.own("event", string(e.MessageID), e.Workflow); err != nil {
		return err
	}
	if err := e.MessageID.Validate(); err != nil {
		return err
	}
	if e.Topic == "" {
		return fmt.Errorf("event %q: topic required", e.MessageID)
	}
	causes := slices.Clone(e.CausedBy)
	slices.Sort(causes)
	causes = slices.Compact(causes)
	for _, id := range causes {
		if in := d.Inputs.Get(id); in == nil || in.Workflow != e.Workflow {
			return &keep.NotFoundError{What: "input", ID: string(id)}
		}
	}
	e.CreatedAt, e.UpdatedAt = d.at, d.at
	key := EventKey{e.Workflow, e.Topic, e.MessageID}
	old := d.Events.Get(key)
	switch {
	case mustBeNew && old != nil:
		return fmt.Errorf("event %q in topic %s is there: %w", e.MessageID, e.Topic, keep.ErrStale)
	case old == nil:
		old = &Event{Row: Row{New: true}, EventKey: key, Status: keep.EventPending, Put: &e}
		d.AddEvent(old)
		d.count(e.Topic, Topic{Pending: 1})
	case !old.free():
		return nil
	case old.New:
		e.CreatedBy = old.Put.CreatedBy
		old.Put = &e
	default:
		old.Put, old.Republished = &e, true
	}
	plan(&d.p.Events, old, &old.Row)
	for _, id := range causes {
		if !slices.Contains(old.Causes, id) {
			old.Causes = append(old.Causes, id)
			d.p.Causes = append(d.p.Causes, Cause{id, old})
			if !d.unread(e.Topic) {
				d.countInput(id, +1)
			}
		}
	}
	slices.Sort(old.Causes)
	return nil
}

// count adds to what the commit changes in a topic.
func (d *decision) count(topic keep.TopicName, by Topic) {
	i := slices.IndexFunc(d.p.Topics, func(t Topic) bool { return t.Name == topic })
	if i < 0 {
		i = len(d.p.Topics)
		d.p.Topics = append(d.p.Topics, Topic{Name: topic, Unread: d.unread(topic)})
	}
	t := &d.p.Topics[i]
	t.Pending, t.Consumed, t.Skipped = t.Pending+by.Pending, t.Consumed+by.Consumed, t.Skipped+by.Skipped
}

// countInput adds to what the commit changes in the unfinished events of an input.
// What cancels out, such as an event consumed and one published, costs no write.
func (d *decision) countInput(id keep.InputID, by int) *Input {
	in := d.Inputs.Get(id)
	if in == nil { // a cause of an event that ends: it exists
		in = d.Inputs.Put(id, &Input{Workflow: d.w, ID: id})
	}
	in.By += by
	plan(&d.p.Inputs, in, &in.Row)
	return in
}

// putInput adds an input. One that exists stays, and must be the same in all that
// names it: whoever made another id had not looked.
func (d *decision) putInput(in keep.Input) error {
	if err := d.own("input", string(in.ID), in.Workflow); err != nil {
		return err
	}
	if in.ID == "" {
		return fmt.Errorf("input %q: id required", in.ExternalID)
	}
	key := InputKey{in.Workflow, in.Source, in.Type, in.ExternalID}
	switch id := d.InputKeys.Get(key); {
	case id == in.ID:
		return nil
	case id != "", d.Inputs.Get(in.ID) != nil:
		return fmt.Errorf("input %s: %w", in.ID, keep.ErrStale)
	}
	put := &Input{Row: Row{New: true}, Workflow: in.Workflow, ID: in.ID, Put: in}
	d.AddInput(put, key)
	plan(&d.p.Inputs, put, &put.Row)
	return nil
}

// skipInput marks an input. Its unfinished events are counted on, so that Check can
// recount them; its status doesn't follow the count any more.
func (d *decision) skipInput(id keep.InputID) error {
	in := d.Inputs.Get(id)
	if in == nil || in.Workflow != d.w {
		return &keep.NotFoundError{What: "input", ID: string(id)}
	}
	if in.Unfinished+in.By <= 0 { // it is done
		return nil
	}
	in.Skipped, in.Unskipped = true, false
	plan(&d.p.Inputs, in, &in.Row)
	return nil
}

// unskipInput makes the status of an input follow its unfinished events again.
func (d *decision) unskipInput(id keep.InputID) error {
	in := d.Inputs.Get(id)
	if in == nil || in.Workflow != d.w {
		return &keep.NotFoundError{What: "input", ID: string(id)}
	}
	in.Skipped, in.Unskipped = false, true
	plan(&d.p.Inputs, in, &in.Row)
	return nil
}

// Status returns the status of an input that is new.
func (in *Input) Status() keep.InputStatus {
	switch {
	case in.Skipped:
		return keep.InputSkipped
	case in.By > 0:
		return keep.InputPending
	}
	return keep.InputDone
}

package memory

import (
	"fmt"
	"slices"

	"github.com/keep-run/keep"
)

// free returns the event if it may be reserved or skipped.
func (t *tx) free(topic keep.TopicName, id keep.MessageID) (keep.Event, error) {
	seq, known := t.s.eventIDs[eventKey{topicKey{t.workflow, topic}, id}]
	e := t.s.events[seq]
	why := ""
	switch {
	case !known:
		why = "unknown"
	case e.Status != keep.EventPending:
		why = string(e.Status)
	case e.ReservedBy != "":
		why = "reserved"
	default:
		return e, nil
	}
	return e, &keep.ReservationError{Topic: topic, ID: id, Why: why}
}

// putEvent replaces an event by one that differs in status or owner.
func (t *tx) putEvent(e keep.Event) {
	e.UpdatedAt = t.at
	put(t, t.s.events, e.Seq, e)
}

// reserve pins events one by one: one that is listed twice is refused the second
// time.
func (t *tx) reserve(c keep.Reserve) error {
	if c.Chain == "" {
		return fmt.Errorf("reserve in %q: chain required", c.Topic)
	}
	for i, id := range c.IDs {
		e, err := t.free(c.Topic, id)
		if err != nil {
			return err
		}
		if c.Attempt(i) != e.Attempt() {
			return fmt.Errorf("event %q is at attempt %d: %w", id, e.Attempt(), keep.ErrStale)
		}
		e.ReservedBy = c.Chain
		t.putEvent(e)
		put(t, t.s.pinned, c.Chain, append(slices.Clone(t.s.pinned[c.Chain]), e.Seq))
	}
	return nil
}

// held returns the pending events of the workflow that the chain reserved.
func (t *tx) held(chain keep.RunID) []keep.Event {
	var list []keep.Event
	for _, seq := range t.s.pinned[chain] {
		e := t.s.events[seq]
		if e.Workflow == t.workflow && e.ReservedBy == chain && e.Status == keep.EventPending {
			list = append(list, e)
		}
	}
	return list
}

// release gives back what the chain holds, and remembers that it tried it.
func (t *tx) release(c keep.Release) error {
	for _, e := range t.held(c.Chain) {
		e.ReservedBy = ""
		t.putEvent(e)
		others := slices.DeleteFunc(slices.Clone(t.s.pinned[c.Chain]), func(seq int64) bool { return seq == e.Seq })
		put(t, t.s.pinned, c.Chain, others)
		t.try(c.Chain, e.Seq)
	}
	for _, ref := range c.Tried {
		if seq, known := t.s.eventIDs[eventKey{topicKey{t.workflow, ref.Topic}, ref.MessageID}]; known {
			t.try(c.Chain, seq)
		}
	}
	return nil
}

// try links an event with a chain that works on it no more.
func (t *tx) try(chain keep.RunID, seq int64) {
	if list := t.s.tried[chain]; chain != "" && !slices.Contains(list, seq) {
		put(t, t.s.tried, chain, append(slices.Clone(list), seq))
	}
}

// finish gives what the chain holds its last status. The chain stays on the events
// and the events on the chain, from which causes and outputs are read later.
func (t *tx) finish(c keep.Finish) error {
	if c.Status != keep.EventConsumed && c.Status != keep.EventSkipped {
		return fmt.Errorf("finish %s: %q is not a last status", c.Chain, c.Status)
	}
	for _, e := range t.held(c.Chain) {
		e.Status = c.Status
		t.putEvent(e)
	}
	return nil
}

// skipEvents skips events that no run has.
func (t *tx) skipEvents(c keep.SkipEvents) error {
	for _, id := range c.IDs {
		e, err := t.free(c.Topic, id)
		if err != nil {
			return err
		}
		e.Status = keep.EventSkipped
		t.putEvent(e)
	}
	return nil
}

// unskipEvents gives skipped events back as they were before anybody had them.
func (t *tx) unskipEvents(c keep.UnskipEvents) error {
	for _, id := range c.IDs {
		seq, known := t.s.eventIDs[eventKey{topicKey{t.workflow, c.Topic}, id}]
		if !known {
			return &keep.NotFoundError{What: "event in topic " + string(c.Topic), ID: string(id)}
		}
		e := t.s.events[seq]
		if e.Status != keep.EventSkipped || e.ReservedBy != c.Chain || e.ReservedBy == keep.Swept {
			return fmt.Errorf("event %q is %s by %q: %w", id, e.Status, e.ReservedBy, keep.ErrStale)
		}
		e.Status, e.ReservedBy = keep.EventPending, ""
		t.putEvent(e)
		if c.Chain != "" {
			others := slices.DeleteFunc(slices.Clone(t.s.pinned[c.Chain]), func(s int64) bool { return s == seq })
			put(t, t.s.pinned, c.Chain, others)
			t.try(c.Chain, seq)
		}
	}
	return nil
}

// redoEvents gives finished events back, each as a new attempt.
func (t *tx) redoEvents(c keep.RedoEvents) error {
	for _, id := range c.IDs {
		seq, known := t.s.eventIDs[eventKey{topicKey{t.workflow, c.Topic}, id}]
		if !known {
			return &keep.NotFoundError{What: "event in topic " + string(c.Topic), ID: string(id)}
		}
		e := t.s.events[seq]
		switch {
		case e.Status == keep.EventPending, e.ReservedBy != c.Chain, c.Chain == keep.Swept, e.Attempt() != c.Attempt:
			return fmt.Errorf("event %q is %s by %q at attempt %d: %w", id, e.Status, e.ReservedBy, e.Attempt(), keep.ErrStale)
		case e.Attempt() >= keep.MaxAttempts:
			return fmt.Errorf("event %q is at attempt %d, the last one", id, e.Attempt())
		}
		e.Status, e.ReservedBy = keep.EventPending, ""
		e.Redone = append(slices.Clone(e.Redone), keep.Redo{At: clean(t.at), By: c.By, From: c.From, Note: c.Note, Chain: c.Chain})
		t.putEvent(e)
		if c.Chain != "" {
			others := slices.DeleteFunc(slices.Clone(t.s.pinned[c.Chain]), func(s int64) bool { return s == seq })
			put(t, t.s.pinned, c.Chain, others)
			t.try(c.Chain, seq)
		}
	}
	return nil
}

// publish adds an event, or gives one that no run has the later payload.
func (t *tx) publish(e keep.Event, first bool) error {
	if err := t.own("event", e.MessageID, e.Workflow); err != nil {
		return err
	}
	if err := e.MessageID.Validate(); err != nil {
		return err
	}
	if e.Topic == "" {
		return fmt.Errorf("event %q: topic required", e.MessageID)
	}
	slices.Sort(e.CausedBy) // a copy
	for _, id := range e.CausedBy {
		if in, ok := t.s.inputs[id]; !ok || in.v.Workflow != t.workflow {
			return &keep.NotFoundError{What: "input", ID: string(id)}
		}
	}
	topic := topicKey{e.Workflow, e.Topic}
	if seq, exists := t.s.eventIDs[eventKey{topic, e.MessageID}]; exists {
		if first {
			return fmt.Errorf("event %q in topic %s is there: %w", e.MessageID, e.Topic, keep.ErrStale)
		}
		if old := t.s.events[seq]; old.Free() {
			t.content(old, e)
		}
		return nil
	}
	was := t.s.seq
	t.undo = append(t.undo, func() { t.s.seq = was })
	t.s.seq++
	made := e
	made.Redone = nil
	made.Seq, made.Status, made.ReservedBy, made.CausedBy, made.CreatedAt = t.s.seq, keep.EventPending, "", nil, t.at
	put(t, t.s.eventIDs, eventKey{topic, e.MessageID}, made.Seq)
	put(t, t.s.topics, topic, append(slices.Clone(t.s.topics[topic]), made.Seq))
	t.content(made, e)
	return nil
}

// content gives an event the payload that was published last, and adds its
// causes to those that the event has: their inputs wait for it, too.
func (t *tx) content(e, later keep.Event) {
	e.Payload = later.Payload
	e.CausedBy = slices.Clone(e.CausedBy)
	for _, id := range later.CausedBy {
		if !slices.Contains(e.CausedBy, id) {
			e.CausedBy = append(e.CausedBy, id)
			put(t, t.s.caused, id, append(slices.Clone(t.s.caused[id]), e.Seq))
		}
	}
	slices.Sort(e.CausedBy)
	t.putEvent(e)
}

// putInput adds an input, unless it is known.
func (t *tx) putInput(in keep.Input) error {
	if err := t.own("input", in.ID, in.Workflow); err != nil {
		return err
	}
	if in.ID == "" {
		return fmt.Errorf("input %q: id required", in.ExternalID)
	}
	key := inputKey{in.Workflow, in.Source, in.Type, in.ExternalID}
	known, exists := t.s.inputKeys[key]
	_, taken := t.s.inputs[in.ID]
	switch {
	case exists && known == in.ID:
		return nil
	case exists || taken:
		return fmt.Errorf("input %s: %w", in.ID, keep.ErrStale)
	}
	in.Status = ""
	put(t, t.s.inputKeys, key, in.ID)
	put(t, t.s.inputs, in.ID, row[keep.Input]{t.next(), in})
	return nil
}

// skipInput marks an input: the one status that isn't derived.
func (t *tx) skipInput(id keep.InputID) error {
	in, ok := t.s.inputs[id]
	if !ok || in.v.Workflow != t.workflow {
		return &keep.NotFoundError{What: "input", ID: string(id)}
	}
	if t.s.withStatus(in.v).Status == keep.InputDone {
		return nil
	}
	in.v.Status = keep.InputSkipped
	put(t, t.s.inputs, id, in)
	return nil
}

// unskipInput removes the mark of skipInput.
func (t *tx) unskipInput(id keep.InputID) error {
	in, ok := t.s.inputs[id]
	if !ok || in.v.Workflow != t.workflow {
		return &keep.NotFoundError{What: "input", ID: string(id)}
	}
	in.v.Status = ""
	put(t, t.s.inputs, id, in)
	return nil
}

package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/maphash"
	"math"
	"slices"
	"strconv"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/law/canonical"
	"github.com/keep-run/keep/law/schedule"
)

// Consumers with order "key" or "none" begin with the oldest event that no open run
// holds up (docs/design/0007-order.md). The order key of an event is computed when the
// actor comes to it. What is stored is the lane of the run that begins with it.

// A scan may read pageOfEvents at once, and maxLooked before other steps get their turn.
const (
	pageOfEvents = 200
	maxLooked    = 1000
	maxAgain     = 10_000 // events that were published since the last look
	maxKeys      = 20_000 // keys that are remembered
)

// A scan is how far an actor has looked through the free events of an ordered consumer.
// It is a cache: what is held up was looked at once, and again when what held it up is
// gone. When the actor loads, since others may have changed events, it begins again, but
// remembers keys.
type scan struct {
	version keep.Version        // whose keys are remembered
	topics  []keep.TopicName    // that are subscribed to
	passed  int64               // free events up to this one are held up, by the lanes in since
	since   map[keep.Lane]int64 // the first event that a lane holds up
	ahead   []keep.Event        // free events after passed
	next    trigger             // ahead[0], if its Seq is that
	again   []keep.EventRef     // published since: one that was passed may have another key now
	keys    map[int64]known     // by Seq
}

// A known is what a scan remembers of an event. Only the payload of an event changes.
type known struct {
	payload uint64 // its hash
	lane    keep.Lane
	keyless *keep.Failure
}

var seed = maphash.MakeSeed()

// restart makes the scan begin again.
func (s *scan) restart() {
	s.passed, s.ahead, s.next, s.again = 0, nil, trigger{}, nil
	clear(s.since)
}

// A trigger is an event with which an ordered consumer may begin.
type trigger struct {
	event   keep.Event
	lane    keep.Lane
	keyless *keep.Failure // why it has no key; nil: it has one, or needs none
}

// orderedBacklog describes the free events of an ordered consumer that are not held up.
// more is true if there is none among those that were looked at, and not all were.
func (a *actor) orderedBacklog(ctx context.Context, h keep.Handler) (b keep.Backlog, more bool, err error) {
	all, err := a.e.store.Backlog(ctx, a.name, h.Subscribe)
	if err != nil || all.Oldest.Seq == 0 {
		return b, false, err
	}
	s := a.scans[h.Name]
	if s == nil || s.version != a.current.Version {
		s = &scan{version: a.current.Version, topics: h.Subscribe, since: make(map[keep.Lane]int64), keys: make(map[int64]known)}
		a.scans[h.Name] = s
	}
	found, more, err := a.look(ctx, s, h)
	if err != nil || !found {
		return b, more, err
	}
	return keep.Backlog{Oldest: s.next.event, Newest: max(all.Newest, s.next.event.Seq)}, false, nil
}

// look moves the scan to the first event that is not held up.
func (a *actor) look(ctx context.Context, s *scan, h keep.Handler) (found, more bool, err error) {
	if err := a.lookBack(ctx, s); err != nil {
		return false, false, err
	}
	for range maxLooked {
		if len(s.ahead) == 0 {
			if s.ahead, err = a.e.store.FreeAfter(ctx, a.name, h.Subscribe, s.passed, pageOfEvents); err != nil || len(s.ahead) == 0 {
				return false, false, err
			}
		}
		ev := s.ahead[0]
		by, held := a.holder(h, ev, "", "")
		if !held {
			if s.next.event.Seq != ev.Seq {
				if s.next, err = a.remembered(ctx, s, h, ev); err != nil {
					return false, false, err
				}
			}
			if by, held = a.holder(h, ev, s.next.lane, ""); !held {
				return true, false, nil
			}
		}
		// The scan may have gone back to an event that another lane held up before.
		if first, known := s.since[by]; !known || ev.Seq < first {
			s.since[by] = ev.Seq
		}
		s.passed, s.ahead = ev.Seq, s.ahead[1:]
	}
	return false, true, nil
}

// remembered is triggerOf, for events that may be met again.
func (a *actor) remembered(ctx context.Context, s *scan, h keep.Handler, ev keep.Event) (trigger, error) {
	if h.Order != keep.OrderKey {
		return a.triggerOf(ctx, a.current, h, ev)
	}
	payload := maphash.Bytes(seed, ev.Payload)
	if k, ok := s.keys[ev.Seq]; ok && k.payload == payload {
		return trigger{ev, k.lane, k.keyless}, nil
	}
	t, err := a.triggerOf(ctx, a.current, h, ev)
	if err == nil {
		if len(s.keys) >= maxKeys {
			clear(s.keys)
		}
		s.keys[ev.Seq] = known{payload, t.lane, t.keyless}
	}
	return t, err
}

// lookBack goes back to the events whose lane is free by now, and to those that were
// published again.
func (a *actor) lookBack(ctx context.Context, s *scan) error {
	for lane, first := range s.since {
		if !slices.ContainsFunc(a.open, func(o schedule.Open) bool { return o.Run.Lane == lane }) {
			s.back(first)
			delete(s.since, lane)
		}
	}
	if len(s.again) > maxAgain {
		s.back(0)
		s.again = nil
	}
	byTopic := make(map[keep.TopicName][]keep.MessageID)
	for _, ref := range s.again {
		byTopic[ref.Topic] = append(byTopic[ref.Topic], ref.MessageID)
	}
	for _, topic := range sortedKeys(byTopic) {
		for ids := range slices.Chunk(byTopic[topic], pageOfEvents) {
			events, err := a.e.store.EventsByID(ctx, a.name, topic, ids)
			if err != nil {
				return err
			}
			for _, ev := range events {
				if ev.Free() {
					s.back(ev.Seq)
				}
			}
		}
	}
	s.again = nil
	return nil
}

// back makes the scan continue at an event that it has passed.
func (s *scan) back(seq int64) {
	if seq <= s.passed {
		s.passed, s.ahead = max(seq-1, 0), nil
	}
}

// forget takes out of the scan what a commit of this actor changed.
func (s *scan) forget(changes []keep.Change) {
	for _, change := range changes {
		switch c := change.(type) {
		case keep.Reserve:
			if len(s.ahead) > 0 && len(c.IDs) == 1 && s.ahead[0].Topic == c.Topic && s.ahead[0].MessageID == c.IDs[0] {
				delete(s.keys, s.ahead[0].Seq)
				s.ahead = s.ahead[1:]
			} else {
				s.ahead = nil
			}
		case keep.Publish:
			if !slices.Contains(s.topics, c.Event.Topic) {
				continue
			}
			s.ahead, s.next = nil, trigger{}
			if s.passed > 0 {
				s.again = append(s.again, keep.EventRef{Topic: c.Event.Topic, MessageID: c.Event.MessageID})
			}
		case keep.Release:
			s.back(0)
		}
	}
}

// holder returns the lane that holds up an event, and whether one does: that of a run
// that has the event itself, or the event's own. The run but holds up nothing.
func (a *actor) holder(h keep.Handler, ev keep.Event, lane keep.Lane, but keep.RunID) (keep.Lane, bool) {
	ref := keep.EventRef{Topic: ev.Topic, MessageID: ev.MessageID}
	for _, o := range a.open {
		r := &o.Run
		if r.ID != but && isOf(o, h) && (sameKey(r.Lane, lane) || has(r, ref)) {
			return r.Lane, true
		}
	}
	return "", false
}

// isOf reports whether a run is one of a handler: the current version carries on with it by that one or reads its events by
// it, or the handler is that of an earlier version, which began both.
func isOf(o schedule.Open, h keep.Handler) bool {
	return o.By == h.Name || o.Run.Handler == h.Name
}

// sameKey reports whether two lanes of one consumer are of the same order key, by whichever names that it had.
func sameKey(a, b keep.Lane) bool {
	key, is := a.Key()
	other, too := b.Key()
	return is && too && key == other
}

// has reports whether a run began with an event, or had reserved it.
func has(r *keep.Run, ref keep.EventRef) bool {
	return r.Trigger == ref || slices.ContainsFunc(r.Reservations, func(list keep.Reservation) bool {
		return list.Topic == ref.Topic && slices.Contains(list.IDs, ref.MessageID)
	})
}

// triggerOf returns what a run begins with that begins with ev. The lane is empty if
// only the run itself can tell, whose chain it then is.
func (a *actor) triggerOf(ctx context.Context, v version, h keep.Handler, ev keep.Event) (trigger, error) {
	t := trigger{event: ev}
	if h.Order != keep.OrderKey {
		return t, nil
	}
	key, f, err := a.keyOf(ctx, v, h, ev)
	if t.keyless = f; f == nil {
		t.lane = keep.KeyLane(h.Name, key)
	}
	return t, err
}

// keyOf computes the order key of an event. The failure says why it has none.
func (a *actor) keyOf(ctx context.Context, v version, h keep.Handler, ev keep.Event) (string, *keep.Failure, error) {
	path := []string{"consumers", string(h.Name), "key"}
	out, err := v.script.Call(ctx, ScriptCall{
		Path: path, Args: []json.RawMessage{eventJSON(v.Definition, ev)},
		Now: ev.CreatedAt, Pure: true, Host: noCalls{}, Log: func(string, string, string) {},
	})
	if err != nil {
		if f, ok := errors.AsType[*keep.Failure](err); ok && ctx.Err() == nil {
			bad := *f
			bad.Message = fmt.Sprintf("key of %s for event %q in topic %q: %s", h.Name, ev.MessageID, ev.Topic, f.Message)
			return "", &bad, nil
		}
		if ctx.Err() != nil {
			return "", nil, errStopping
		}
		return "", nil, err
	}
	key, err := orderKey(out)
	if err != nil {
		f := keep.Failf(keep.ClassLogic, "bad-order-key", "key of %s for event %q in topic %q: %v; return a string or a number for every event",
			h.Name, ev.MessageID, ev.Topic, err)
		f.At = v.script.Locate(ctx, path)
		return "", f, nil
	}
	return key, nil, nil
}

// orderKey reads what a key function returned: text, or a number, which is as its text.
func orderKey(raw json.RawMessage) (string, error) {
	if len(raw) > 0 && raw[0] == '"' {
		s, err := canonical.Text(raw)
		if err != nil {
			return "", err
		}
		return s, keep.ValidateOrderKey(s)
	}
	var n float64
	if err := json.Unmarshal(raw, &n); err != nil || string(raw) == "null" {
		if raw == nil {
			raw = json.RawMessage("undefined")
		}
		return "", fmt.Errorf("it is %.60s", raw)
	}
	if n == math.Trunc(n) && math.Abs(n) <= 1<<53-1 {
		return strconv.FormatInt(int64(n), 10), nil
	}
	return strconv.FormatFloat(n, 'g', -1, 64), nil
}

// noCalls is the host of a key function: it has no ctx to make a call with.
type noCalls struct{}

// HostCall implements ScriptHost.
func (noCalls) HostCall(_ context.Context, c HostCall) (json.RawMessage, error) {
	return nil, c.logicf("forbidden-call", "key may call nothing; it gets the event alone")
}

// pick makes the run begin with an event.
func (x *execution) pick(t trigger) {
	x.backlog.Oldest, x.keyless = t.event, t.keyless
	if x.run.Lane = t.lane; t.lane == "" {
		x.run.Lane = keep.ChainLane(x.run.Chain)
	}
}

// repick chooses the lane of an attempt that begins in prepare, and its event if the
// consumer is ordered: that of the attempt before, or else the oldest that is not held
// up.
func (a *actor) repick(ctx context.Context, x *execution, prev keep.Run) error {
	h := x.def
	if h.Order == keep.OrderAll {
		x.run.Lane = keep.WorkflowLane
		if a.taken(x.run.Lane, prev.ID) { // it began under another order
			x.run.Lane = keep.ChainLane(x.run.Chain)
		}
		return nil
	}
	x.backlog.Oldest = keep.Event{}
	if !prev.Trigger.IsZero() && slices.Contains(h.Subscribe, prev.Trigger.Topic) {
		events, err := a.e.store.EventsByID(ctx, a.name, prev.Trigger.Topic, []keep.MessageID{prev.Trigger.MessageID})
		if err != nil {
			return err
		}
		if len(events) == 1 && events[0].Free() {
			found, err := a.mayPick(ctx, x, events[0], prev)
			if err == nil && found && !prev.Lane.IsKey() {
				err = a.pickOlder(ctx, x, prev)
			}
			if found || err != nil {
				return err
			}
		}
	}
	for after := int64(0); ; {
		events, err := a.e.store.FreeAfter(ctx, a.name, h.Subscribe, after, pageOfEvents)
		if err != nil {
			return err
		}
		if len(events) == 0 {
			x.run.Lane = keep.HandlerLane(h.Name)
			if a.taken(x.run.Lane, prev.ID) {
				x.run.Lane = keep.ChainLane(x.run.Chain)
			}
			return nil
		}
		for _, ev := range events {
			found, err := a.mayPick(ctx, x, ev, prev)
			if found || err != nil {
				return err
			}
			after = ev.Seq
		}
	}
}

// mayPick makes the run begin with an event if no run but prev holds it up.
func (a *actor) mayPick(ctx context.Context, x *execution, ev keep.Event, prev keep.Run) (bool, error) {
	if _, held := a.holder(x.def, ev, "", prev.ID); held {
		return false, nil
	}
	t, err := a.triggerOf(ctx, x.v, x.def, ev)
	if err != nil {
		return false, err
	}
	if _, held := a.holder(x.def, ev, t.lane, prev.ID); held {
		return false, nil
	}
	x.pick(t)
	return true, nil
}

// pickOlder makes a run whose event had no key take the event of another such run, if
// both have the same key now and that one is older: events of a key come in their order.
func (a *actor) pickOlder(ctx context.Context, x *execution, prev keep.Run) error {
	for _, o := range a.open {
		r := o.Run
		if r.ID == prev.ID || !isOf(o, x.def) || r.Lane.IsKey() || r.Trigger.IsZero() || x.keyless != nil {
			continue
		}
		events, err := a.e.store.EventsByID(ctx, a.name, r.Trigger.Topic, []keep.MessageID{r.Trigger.MessageID})
		if err != nil {
			return err
		}
		if len(events) == 0 || !events[0].Free() || events[0].Seq > x.backlog.Oldest.Seq {
			continue
		}
		t, err := a.triggerOf(ctx, x.v, x.def, events[0])
		if err != nil {
			return err
		}
		if t.lane == x.run.Lane && t.lane.IsKey() {
			x.pick(t)
		}
	}
	return nil
}

// taken reports whether a run besides but is open in a lane.
func (a *actor) taken(lane keep.Lane, but keep.RunID) bool {
	return slices.ContainsFunc(a.open, func(o schedule.Open) bool { return o.Run.Lane == lane && o.Run.ID != but })
}

// takenKey reports whether a run besides but is open in a lane, or was of the same order key when the consumer had another name.
func (a *actor) takenKey(h keep.Handler, lane keep.Lane, but keep.RunID) bool {
	return a.taken(lane, but) || slices.ContainsFunc(a.open, func(o schedule.Open) bool {
		return o.Run.ID != but && isOf(o, h) && sameKey(o.Run.Lane, lane)
	})
}

// takeLane gives the run the lane of the events that it is to reserve. They must have
// one key, which no other run has (law: one-at-a-time).
func (x *execution) takeLane(ctx context.Context, events []keep.Event) error {
	if x.def.Order != keep.OrderKey || len(events) == 0 {
		return nil
	}
	var lane keep.Lane
	for _, ev := range events {
		this := x.run.Lane
		if ev.Seq != x.backlog.Oldest.Seq {
			key, f, err := x.a.keyOf(ctx, x.v, x.def, ev)
			switch {
			case f != nil:
				return f
			case err != nil:
				return err
			}
			this = keep.KeyLane(x.def.Name, key)
		}
		if lane != "" && this != lane {
			a, _ := lane.Key()
			b, _ := this.Key()
			return keep.Failf(keep.ClassLogic, "two-keys", "the events of one run have the order keys %q and %q; reserve events of one key, "+
				"the consumer runs again for the rest", a, b)
		}
		lane = this
	}
	if x.a.takenKey(x.def, lane, x.before()) && lane != x.run.Lane {
		key, _ := lane.Key()
		return keep.Failf(keep.ClassLogic, "key-held", "the events of order key %q wait for another run; reserve the trigger, or events of its key", key)
	}
	x.run.Lane = lane
	return nil
}

// strict returns the open runs, and marks those for which the workflow waits since its
// current version orders all events of the consumer.
func (a *actor) strict() []schedule.Open {
	if len(a.open) == 0 {
		return nil
	}
	open := slices.Clone(a.open)
	for i, o := range open {
		open[i].Asked = a.e.waitsForPerson(o.Run, o.Doubt)
		h, ok := a.current.Definition.Handler(o.By)
		open[i].Strict = ok && h.Kind == keep.Consumer && h.Order == keep.OrderAll
	}
	return open
}

// wakeOrdered makes ordered consumers look at their events again if a run of theirs has
// ended meanwhile, or may have: what it held up was passed over, and no event that
// comes later may ever wake them for it.
func (a *actor) wakeOrdered(before []schedule.Open) {
	for _, h := range a.current.Definition.Handlers {
		ended := slices.ContainsFunc(before, func(o schedule.Open) bool {
			return o.By == h.Name && !slices.ContainsFunc(a.open, func(n schedule.Open) bool { return n.Run.ID == o.Run.ID })
		})
		if s, ok := a.states[h.Name]; ok && h.Order != keep.OrderAll && (ended || !a.known) {
			s.IdleSeq = 0
			a.states[h.Name] = s
		}
	}
	a.known = true
}

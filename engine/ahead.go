package engine

import (
	"context"
	"slices"

	"github.com/keep-run/keep"
)

// Reading ahead pays for topics with a backlog of small events, and is bounded
// for all others.
const (
	aheadEvents = 16
	aheadBytes  = 4 << 10 // payload of one event
)

// An ahead is what an actor has read of the topic of one consumer before it
// needs it: the free events in their order, and the newest of all. Like all
// that an actor holds it is a cache. Only the actor's own commits add events to
// a topic of its workflow or take them; a person who skips one makes the actor
// read again, and meanwhile the store refuses to reserve it.
type ahead struct {
	events []keep.Event
	newest int64
}

// backlog describes the free events that h subscribes to.
func (a *actor) backlog(ctx context.Context, h keep.Handler) (keep.Backlog, error) {
	if q := a.ahead[h.Name]; len(q.events) > 0 {
		return keep.Backlog{Oldest: q.events[0], Newest: q.newest}, nil
	}
	b, err := a.e.store.Backlog(ctx, a.name, h.Subscribe)
	if err != nil || len(h.Subscribe) != 1 || b.Oldest.Seq == b.Newest || len(b.Oldest.Payload) > aheadBytes {
		return b, err
	}
	events, err := a.e.store.Peek(ctx, a.name, h.Subscribe[0], aheadEvents)
	if err != nil || len(events) == 0 || events[0].Seq != b.Oldest.Seq {
		return b, err
	}
	large := func(ev keep.Event) bool { return len(ev.Payload) > aheadBytes }
	if i := slices.IndexFunc(events, large); i > 0 {
		events = events[:i]
	}
	a.ahead[h.Name] = ahead{events, max(b.Newest, events[len(events)-1].Seq)}
	return b, nil
}

// forget takes out of what was read ahead what a commit of this actor changed.
func (a *actor) forget(changes []keep.Change) {
	for _, s := range a.scans {
		s.forget(changes)
	}
	if len(a.ahead) == 0 {
		return
	}
	for _, change := range changes {
		switch c := change.(type) {
		case keep.Reserve:
			a.forgetEvents(c.Reservation)
		case keep.Publish:
			a.forgetTopic(c.Event.Topic)
		case keep.Release:
			clear(a.ahead)
		}
	}
}

// forgetEvents takes reserved events out of the queues that have them. Who
// reserves something else than the next event gets a new look.
func (a *actor) forgetEvents(r keep.Reservation) {
	for name, q := range a.ahead {
		next := q.events[0]
		switch {
		case next.Topic != r.Topic:
		case len(r.IDs) == 1 && r.IDs[0] == next.MessageID && len(q.events) > 1:
			q.events = q.events[1:]
			a.ahead[name] = q
		default:
			delete(a.ahead, name)
		}
	}
}

// forgetTopic drops what was read of a topic that has new events.
func (a *actor) forgetTopic(t keep.TopicName) {
	for name, q := range a.ahead {
		if q.events[0].Topic == t {
			delete(a.ahead, name)
		}
	}
}

package storetest

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/keep-run/keep"
)

var eventPromises = []promise{
	{"an event is read back as it was published, to the byte", func(w *world) {
		a, b := w.input("w"), w.input("w")
		e := keep.Event{Workflow: "w", Topic: "mail/in:1", MessageID: odd, Payload: json.RawMessage(` {"n": 1.50, "s":"é"} `),
			CreatedBy: "run_0", CausedBy: []keep.InputID{b, a, b}}
		w.commit("w", keep.Publish{Event: e})
		e.Seq, e.Status, e.CausedBy, e.CreatedAt, e.UpdatedAt = 1, keep.EventPending, []keep.InputID{a, b}, w.at, w.at
		got := get[keep.Event](w)(w.Event(w.ctx, "w", e.Topic, e.MessageID))
		if got.Seq <= 0 {
			w.Errorf("Seq = %d, want a positive number", got.Seq)
		}
		e.Seq = got.Seq
		w.same("Event", got, e)
		w.same("Peek", get[[]keep.Event](w)(w.Peek(w.ctx, "w", e.Topic, 10)), []keep.Event{e})
		w.same("EventsByID", get[[]keep.Event](w)(w.EventsByID(w.ctx, "w", e.Topic, []keep.MessageID{odd})), []keep.Event{e})
		w.same("Events", page[keep.Event](w)(w.Events(w.ctx, keep.EventFilter{}, keep.Page{})), []keep.Event{e})
		w.same("Backlog", get[keep.Backlog](w)(w.Backlog(w.ctx, "w", []keep.TopicName{e.Topic})), keep.Backlog{Oldest: e, Newest: e.Seq})
	}},
	{"payloads that are nil, empty and large stay what they are", func(w *world) {
		large := json.RawMessage(`"` + strings.Repeat("é", 200_000) + `"`)
		for id, payload := range map[keep.MessageID]json.RawMessage{"nil": nil, "empty": {}, "large": large} {
			w.commit("w", keep.Publish{Event: keep.Event{Workflow: "w", Topic: "t", MessageID: id, Payload: payload}})
			w.same(string(id), get[keep.Event](w)(w.Event(w.ctx, "w", "t", id)).Payload, payload)
		}
	}},
	{"the same message id in a topic is one event, and the later payload wins", func(w *world) {
		a, b := w.input("w"), w.input("w")
		w.publish("w", "t", "m", a)
		first := get[keep.Event](w)(w.Event(w.ctx, "w", "t", "m"))
		later := event("w", "t", "m", b)
		later.Payload, later.CreatedBy = json.RawMessage(`"later"`), "run_later"
		w.commit("w", keep.Publish{Event: later})
		want := first
		want.Payload, want.UpdatedAt = later.Payload, w.at
		want.CausedBy = []keep.InputID{a, b} // both inputs wait for it
		w.same("event", get[keep.Event](w)(w.Event(w.ctx, "w", "t", "m")), want)
		w.publish("w", "u", "m")
		w.publish("other", "t", "m")
		if got := page[keep.Event](w)(w.Events(w.ctx, keep.EventFilter{}, keep.Page{})); len(got) != 3 {
			w.Errorf("%d events, want 3: a message id is unique in its topic only", len(got))
		}
	}},
	{"an event that was touched stays as it is when it is published again", func(w *world) {
		in := w.input("w")
		for _, id := range []keep.MessageID{"reserved", "consumed", "skipped"} {
			w.publish("w", "t", id)
		}
		w.finish(w.start("w", "t", "consumed"))
		w.commit("w", keep.SkipEvents{Topic: "t", IDs: []keep.MessageID{"skipped"}})
		w.start("w", "t", "reserved")
		before := page[keep.Event](w)(w.Events(w.ctx, keep.EventFilter{}, keep.Page{}))
		for _, id := range []keep.MessageID{"reserved", "consumed", "skipped"} {
			again := event("w", "t", id, in)
			again.Payload = json.RawMessage(`"again"`)
			w.commit("w", keep.Publish{Event: again})
		}
		w.same("events", page[keep.Event](w)(w.Events(w.ctx, keep.EventFilter{}, keep.Page{})), before)
		if got := get[keep.Input](w)(w.Input(w.ctx, in)); got.Status != keep.InputDone {
			w.Errorf("the input is %s, want done: nothing waits for it", got.Status)
		}
	}},
	{"a message id that must be new is refused if there is one", func(w *world) {
		first := event("w", "t", "m", w.input("w"))
		first.CreatedBy = "hook:first"
		w.commit("w", keep.Publish{Event: first, New: true})
		before := get[keep.Event](w)(w.Event(w.ctx, "w", "t", "m"))
		later := event("w", "t", "m", w.input("w"))
		later.Payload, later.CreatedBy = json.RawMessage(`"later"`), "hook:later"
		w.refuse("w", is(keep.ErrStale), keep.Publish{Event: later, New: true})
		w.refuse("w", is(keep.ErrStale), keep.Publish{Event: event("w", "t", "n"), New: true}, keep.Publish{Event: event("w", "t", "n"), New: true})
		w.finish(w.start("w", "t", "m"))
		w.refuse("w", is(keep.ErrStale), keep.Publish{Event: later, New: true})
		w.commit("w", keep.Publish{Event: later}) // without New it is no error
		after := get[keep.Event](w)(w.Event(w.ctx, "w", "t", "m"))
		w.same("payload", after.Payload, before.Payload)
		w.same("created by", after.CreatedBy, keep.HookPublisher("first"))
		w.commit("w", keep.Publish{Event: event("w", "u", "m"), New: true}) // another topic
	}},
	{"an event of a cause that does not exist is refused", func(w *world) {
		foreign := w.input("other")
		w.refuse("w", notFound("input", "in_0"), keep.Publish{Event: event("w", "t", "m", "in_0")})
		w.refuse("w", notFound("input", string(foreign)), keep.Publish{Event: event("w", "t", "m", foreign)})
	}},
	{"an event without a name, or of another workflow, is refused", func(w *world) {
		w.refuse("w", invalid, keep.Publish{Event: event("w", "t", "")})
		w.refuse("w", invalid, keep.Publish{Event: event("w", "", "m")})
		w.refuse("w", invalid, keep.Publish{Event: event("w", "t", keep.MessageID(strings.Repeat("x", keep.MaxMessageID+1)))})
		w.refuse("w", invalid, keep.Publish{Event: event("other", "t", "m")})
	}},
	{"seq rises with every event of a workflow", func(w *world) {
		last := int64(0)
		for i := range 10 {
			id := keep.MessageID(fmt.Sprint(9 - i))
			w.publish("w", keep.TopicName("t"+fmt.Sprint(i%3)), id)
			e := get[keep.Event](w)(w.Event(w.ctx, "w", keep.TopicName("t"+fmt.Sprint(i%3)), id))
			if e.Seq <= last {
				w.Errorf("seq %d after %d", e.Seq, last)
			}
			last = e.Seq
		}
	}},
	{"free events are shown oldest first, up to a limit", func(w *world) {
		for i := range 5 {
			w.publish("w", "t", keep.MessageID(fmt.Sprint("m", 9-i)))
		}
		w.publish("w", "u", "of another topic")
		w.publish("other", "t", "of another workflow")
		w.start("w", "t", "m9", "m7")
		ids := func(limit int) (list []keep.MessageID) {
			for _, e := range get[[]keep.Event](w)(w.Peek(w.ctx, "w", "t", limit)) {
				list = append(list, e.MessageID)
			}
			return list
		}
		w.same("all", ids(100), []keep.MessageID{"m8", "m6", "m5"})
		w.same("two", ids(2), []keep.MessageID{"m8", "m6"})
		w.same("none", ids(0), []keep.MessageID(nil))
	}},
	{"free events after a place are shown oldest first, of several topics", func(w *world) {
		topics := []keep.TopicName{"t", "u", "empty"}
		for i := range 3 {
			w.publish("w", "t", keep.MessageID(fmt.Sprint("t", i)))
			w.publish("w", "u", keep.MessageID(fmt.Sprint("u", i)))
			w.publish("w", "not asked for", "x")
			w.publish("other", "t", keep.MessageID(fmt.Sprint("o", i)))
		}
		w.start("w", "t", "t1")
		after := func(topic keep.TopicName, id keep.MessageID, limit int) (list []keep.MessageID) {
			seq := int64(0)
			if id != "" {
				seq = get[keep.Event](w)(w.Event(w.ctx, "w", topic, id)).Seq
			}
			for _, e := range get[[]keep.Event](w)(w.FreeAfter(w.ctx, "w", topics, seq, limit)) {
				list = append(list, e.MessageID)
			}
			return list
		}
		w.same("all", after("", "", 100), []keep.MessageID{"t0", "u0", "u1", "t2", "u2"})
		w.same("after", after("t", "t1", 2), []keep.MessageID{"u1", "t2"})
		w.same("last", after("u", "u2", 2), []keep.MessageID(nil))
		w.same("none", after("", "", 0), []keep.MessageID(nil))
		w.same("no topic", get[[]keep.Event](w)(w.FreeAfter(w.ctx, "w", nil, 0, 10)), []keep.Event(nil))
		first := get[keep.Event](w)(w.Event(w.ctx, "w", "t", "t0"))
		w.same("whole", get[[]keep.Event](w)(w.FreeAfter(w.ctx, "w", topics, 0, 1)), []keep.Event{first})
	}},
	{"a backlog knows the oldest and the newest free event of some topics", func(w *world) {
		topics := []keep.TopicName{"t", "u", "empty"}
		w.same("empty", get[keep.Backlog](w)(w.Backlog(w.ctx, "w", topics)), keep.Backlog{})
		w.same("no topic", get[keep.Backlog](w)(w.Backlog(w.ctx, "w", nil)), keep.Backlog{})
		for _, id := range []keep.MessageID{"1", "2", "3"} {
			w.publish("w", "t", id)
			w.publish("w", "u", id)
			w.publish("w", "not asked for", id)
		}
		w.start("w", "t", "1")
		b := get[keep.Backlog](w)(w.Backlog(w.ctx, "w", topics))
		oldest := get[keep.Event](w)(w.Event(w.ctx, "w", "u", "1"))
		newest := get[keep.Event](w)(w.Event(w.ctx, "w", "u", "3"))
		w.same("Backlog", b, keep.Backlog{Oldest: oldest, Newest: newest.Seq})
	}},
	{"events are found by id in the order asked, whatever their status", func(w *world) {
		for _, id := range []keep.MessageID{"a", "b", "c", odd} {
			w.publish("w", "t", id)
		}
		w.finish(w.start("w", "t", "b"))
		var got []keep.MessageID
		for _, e := range get[[]keep.Event](w)(w.EventsByID(w.ctx, "w", "t", []keep.MessageID{"c", "unknown", odd, "b", "c"})) {
			got = append(got, e.MessageID)
		}
		w.same("EventsByID", got, []keep.MessageID{"c", odd, "b", "c"})
		w.same("of no id", get[[]keep.Event](w)(w.EventsByID(w.ctx, "w", "t", nil)), []keep.Event(nil))
		_, err := w.Event(w.ctx, "w", "t", "unknown")
		w.fails("Event", err, notFound("event", "unknown"))
	}},
	{"a reserved event belongs to one chain", func(w *world) {
		w.publish("w", "t", "m")
		r := w.start("w", "t", "m")
		e := get[keep.Event](w)(w.Event(w.ctx, "w", "t", "m"))
		if e.ReservedBy != r.Chain || e.Status != keep.EventPending || !e.UpdatedAt.Equal(w.at) {
			w.Errorf("reserved by %q, %s, updated %s", e.ReservedBy, e.Status, e.UpdatedAt)
		}
	}},
	{"an event that is not free cannot be reserved, and says why", func(w *world) {
		for _, id := range []keep.MessageID{"free", "reserved", "consumed", "skipped"} {
			w.publish("w", "t", id)
		}
		w.finish(w.start("w", "t", "consumed"))
		w.commit("w", keep.SkipEvents{Topic: "t", IDs: []keep.MessageID{"skipped"}})
		r := w.start("w", "t", "reserved")
		for id, why := range map[keep.MessageID]string{"unknown": "unknown", "reserved": "reserved", "consumed": "consumed", "skipped": "skipped"} {
			w.refuse("w", cannotReserve("t", id, why), keep.Reserve{Chain: r.Chain, Reservation: keep.Reservation{Topic: "t", IDs: []keep.MessageID{"free", id}}})
			w.refuse("w", cannotReserve("t", id, why), keep.SkipEvents{Topic: "t", IDs: []keep.MessageID{"free", id}})
		}
		w.refuse("w", cannotReserve("t", "free", "reserved"), keep.Reserve{Chain: r.Chain, Reservation: keep.Reservation{Topic: "t", IDs: []keep.MessageID{"free", "free"}}})
		w.refuse("w", cannotReserve("u", "free", "unknown"), keep.Reserve{Chain: r.Chain, Reservation: keep.Reservation{Topic: "u", IDs: []keep.MessageID{"free"}}})
		w.refuse("other", cannotReserve("t", "free", "unknown"), keep.Reserve{Chain: "run_9", Reservation: keep.Reservation{Topic: "t", IDs: []keep.MessageID{"free"}}})
		w.refuse("w", invalid, keep.Reserve{Reservation: keep.Reservation{Topic: "t", IDs: []keep.MessageID{"free"}}})
	}},
	{"a chain gives back what it did not finish", func(w *world) {
		w.publish("w", "t", "a")
		w.publish("w", "t", "b")
		r := w.start("w", "t", "a", "b")
		r.Status, r.Closed = keep.StatusAborted, true
		w.commit("w", keep.PutRun{Run: r}, keep.Release{Chain: r.Chain}, keep.Release{Chain: "run_0"})
		for _, e := range page[keep.Event](w)(w.Events(w.ctx, keep.EventFilter{}, keep.Page{})) {
			if !e.Free() || !e.UpdatedAt.Equal(w.at) {
				w.Errorf("event %s: %s, reserved by %q", e.MessageID, e.Status, e.ReservedBy)
			}
		}
		w.finish(w.start("w", "t", "b", "a"))
	}},
	{"what a chain gave back, or tried without reserving it, stays linked with its runs", func(w *world) {
		in, other := w.input("w"), w.input("w")
		w.publish("w", "t", "1", in)
		w.publish("w", "t", "2")
		w.publish("w", "u", "3", other)
		w.publish("other", "u", "3")
		first := w.start("w", "t", "1", "2")
		m := w.newMutation(first)
		m.State = keep.Failed
		first.Mutation, first.Phase, first.Status, first.Closed = m.Key, keep.Mutating, keep.StatusLogic, true
		tried := []keep.EventRef{{Topic: "t", MessageID: "1"}, {Topic: "u", MessageID: "3"}, {Topic: "u", MessageID: "3"}, {Topic: "t", MessageID: "none"}}
		w.commit("w", keep.PutRun{Run: first}, keep.PutMutation{Mutation: m, Moves: []keep.Move{w.move("", keep.InFlight), w.move(keep.InFlight, keep.Failed)}},
			keep.Release{Chain: first.Chain, Tried: tried})
		w.commit("w", keep.Release{Chain: first.Chain, Tried: tried}, keep.Release{Tried: tried}) // again, and of nobody
		runs := func(topic keep.TopicName, id keep.MessageID, limit int) (ids []keep.RunID) {
			for _, r := range get[[]keep.Run](w)(w.RunsOfEvent(w.ctx, "w", topic, id, limit)) {
				ids = append(ids, r.ID)
			}
			return ids
		}
		expect := func(outputs []keep.MutationKey) {
			w.Helper()
			w.same("Causes", get[[]keep.InputID](w)(w.Causes(w.ctx, first.Chain)), []keep.InputID{in, other})
			w.same("Outputs", get[[]keep.MutationKey](w)(w.Outputs(w.ctx, in)), outputs)
			w.same("Outputs", get[[]keep.MutationKey](w)(w.Outputs(w.ctx, other)), []keep.MutationKey{m.Key})
			w.sameAtOnce([]keep.InputID{in, other}, outputs)
			w.check()
		}
		w.same("runs of what it gave back", runs("t", "2", 9), []keep.RunID{first.ID})
		w.same("runs of what it tried", runs("u", "3", 9), []keep.RunID{first.ID})
		expect([]keep.MutationKey{m.Key})
		if e := get[keep.Event](w)(w.Event(w.ctx, "w", "t", "1")); !e.Free() {
			w.Errorf("the event is %s, reserved by %q", e.Status, e.ReservedBy)
		}

		second := w.newRun("w")
		n := w.newMutation(second)
		second.RetryOf, second.Mutation, second.Reservations = first.ID, n.Key, []keep.Reservation{{Topic: "t", IDs: []keep.MessageID{"1"}}}
		n.State, n.ResolvedBy = keep.Applied, "call"
		w.commit("w", keep.PutRun{Run: done(second)}, keep.Reserve{Chain: second.Chain, Reservation: second.Reservations[0]},
			keep.PutMutation{Mutation: n, Moves: []keep.Move{w.move("", keep.InFlight), w.move(keep.InFlight, keep.Applied)}},
			keep.Finish{Chain: second.Chain, Status: keep.EventConsumed})
		w.same("runs of the event", runs("t", "1", 9), []keep.RunID{second.ID, first.ID})
		w.same("the newest", runs("t", "1", 1), []keep.RunID{second.ID})
		w.same("runs of what is still free", runs("t", "2", 9), []keep.RunID{first.ID})
		expect([]keep.MutationKey{m.Key, n.Key})
		_, err := w.RunsOfEvent(w.ctx, "w", "t", "none", 9)
		w.fails("RunsOfEvent", err, notFound("event", "none"))
		if list := get[[]keep.Run](w)(w.RunsOfEvent(w.ctx, "other", "u", "3", 9)); len(list) != 0 {
			w.Errorf("an event of another workflow has runs: %+v", list)
		}
	}},
	{"a chain finishes what it reserved, and keeps its name on it", func(w *world) {
		for i, status := range []keep.EventStatus{keep.EventConsumed, keep.EventSkipped} {
			id := keep.MessageID(fmt.Sprint(i))
			w.publish("w", "t", id)
			w.publish("w", "t", "other "+id)
			r := w.start("w", "t", id)
			w.commit("w", keep.Finish{Chain: r.Chain, Status: status}, keep.PutRun{Run: done(r)}, keep.Release{Chain: r.Chain})
			e := get[keep.Event](w)(w.Event(w.ctx, "w", "t", id))
			if e.Status != status || e.ReservedBy != r.Chain || !e.UpdatedAt.Equal(w.at) {
				w.Errorf("%s: %s, reserved by %q", id, e.Status, e.ReservedBy)
			}
			if other := get[keep.Event](w)(w.Event(w.ctx, "w", "t", "other "+id)); !other.Free() {
				w.Errorf("another event is %s, reserved by %q", other.Status, other.ReservedBy)
			}
		}
	}},
	{"an event is not finished as pending", func(w *world) {
		w.publish("w", "t", "m")
		r := w.start("w", "t", "m")
		w.refuse("w", invalid, keep.Finish{Chain: r.Chain, Status: keep.EventPending})
		w.refuse("w", invalid, keep.Finish{Chain: r.Chain, Status: "lost"})
	}},
	{"a chain of one workflow leaves the events of another", func(w *world) {
		w.publish("w", "t", "m")
		r := w.start("w", "t", "m")
		w.commit("other", keep.Finish{Chain: r.Chain, Status: keep.EventConsumed}, keep.Release{Chain: r.Chain})
		if e := get[keep.Event](w)(w.Event(w.ctx, "w", "t", "m")); e.ReservedBy != r.Chain || e.Status != keep.EventPending {
			w.Errorf("%s, reserved by %q", e.Status, e.ReservedBy)
		}
	}},
	{"the skip of an event is undone: it is free again, in its old place, and stays linked", func(w *world) {
		in := w.input("w")
		for _, id := range []keep.MessageID{"a", "b", "c"} {
			w.publish("w", "t", id, in)
		}
		was := get[keep.Event](w)(w.Event(w.ctx, "w", "t", "a"))
		w.commit("w", keep.SkipEvents{Topic: "t", IDs: []keep.MessageID{"a"}})
		r := w.start("w", "t", "b")
		r.Phase, r.Status, r.Closed = keep.Prepared, keep.StatusAborted, true
		w.commit("w", keep.PutRun{Run: r}, keep.Finish{Chain: r.Chain, Status: keep.EventSkipped})
		w.finish(w.start("w", "t", "c"))
		for _, refused := range []keep.UnskipEvents{
			{Topic: "t", IDs: []keep.MessageID{"a", "b"}},                      // b is the chain's
			{Topic: "t", IDs: []keep.MessageID{"a"}, Chain: r.Chain},           // and a nobody's
			{Topic: "t", IDs: []keep.MessageID{"a", "a"}},                      // it is pending by then
			{Topic: "t", IDs: []keep.MessageID{"c"}},                           // consumed
			{Topic: "t", IDs: []keep.MessageID{"b"}, Chain: keep.RunID("run")}, // another's
		} {
			w.refuse("w", is(keep.ErrStale), refused)
		}
		w.refuse("w", notFound("event in topic t", "z"), keep.UnskipEvents{Topic: "t", IDs: []keep.MessageID{"z"}})
		w.refuse("other", notFound("event in topic t", "a"), keep.UnskipEvents{Topic: "t", IDs: []keep.MessageID{"a"}})
		w.commit("w", keep.UnskipEvents{Topic: "t", IDs: []keep.MessageID{"a"}}, keep.UnskipEvents{Topic: "t", IDs: []keep.MessageID{"b"}, Chain: r.Chain})
		was.UpdatedAt = w.at
		w.same("the event", get[keep.Event](w)(w.Event(w.ctx, "w", "t", "a")), was)
		w.same("the oldest first", messageIDs(get[[]keep.Event](w)(w.Peek(w.ctx, "w", "t", 9))), []keep.MessageID{"a", "b"})
		w.same("its runs", len(get[[]keep.Run](w)(w.RunsOfEvent(w.ctx, "w", "t", "b", 9))), 1)
		w.same("counts", get[[]keep.TopicCount](w)(w.TopicCounts(w.ctx, "w")), []keep.TopicCount{{Workflow: "w", Topic: "t", Pending: 2, Consumed: 1}})
		w.same("its input", get[keep.Input](w)(w.Input(w.ctx, in)).Status, keep.InputPending)
		w.finish(w.start("w", "t", "a", "b"))
		w.same("its input", get[keep.Input](w)(w.Input(w.ctx, in)).Status, keep.InputDone)
		w.check()
	}},
	{"an event is done again as a new attempt, which has runs and a call of its own", redoneEvents},
	{"attempts that share a call are found (law: once)", sharedAttempts},
	{"of a chain with two open runs each is to know of its events", oneOfTwoRuns},
	{"an event can be published, reserved and finished in one commit", func(w *world) {
		in := w.input("w")
		r := w.newRun("w")
		r.Reservations = []keep.Reservation{{Topic: "t", IDs: []keep.MessageID{"m"}}}
		w.commit("w", keep.Publish{Event: event("w", "t", "m", in)},
			keep.Reserve{Chain: r.Chain, Reservation: r.Reservations[0]},
			keep.Finish{Chain: r.Chain, Status: keep.EventConsumed}, keep.PutRun{Run: done(r)})
		if got := get[keep.Input](w)(w.Input(w.ctx, in)); got.Status != keep.InputDone {
			w.Errorf("input is %s", got.Status)
		}
	}},
	{"topics are counted, also the empty ones that are declared", func(w *world) {
		w.deploy("w", "a", "t")
		w.deploy("other", "z")
		for _, id := range []keep.MessageID{"1", "2", "3", "4", "5", "6"} {
			w.publish("w", "t", id)
		}
		w.publish("w", "t", "6")
		w.publish("w", "undeclared", "1")
		w.finish(w.start("w", "t", "1"))
		w.commit("w", keep.SkipEvents{Topic: "t", IDs: []keep.MessageID{"4"}})
		w.start("w", "t", "2", "3")
		want := []keep.TopicCount{
			{Workflow: "w", Topic: "a"},
			{Workflow: "w", Topic: "t", Pending: 2, Reserved: 2, Consumed: 1, Skipped: 1},
			{Workflow: "w", Topic: "undeclared", Pending: 1},
		}
		w.same("of one", get[[]keep.TopicCount](w)(w.TopicCounts(w.ctx, "w")), want)
		w.same("of all", get[[]keep.TopicCount](w)(w.TopicCounts(w.ctx, "")), append([]keep.TopicCount{{Workflow: "other", Topic: "z"}}, want...))
	}},
}

// messageIDs returns the ids of events.
func messageIDs(events []keep.Event) (ids []keep.MessageID) {
	for _, e := range events {
		ids = append(ids, e.MessageID)
	}
	return ids
}

// redoneEvents has an event done again that a chain finished, and one that was skipped.
func redoneEvents(w *world) {
	in := w.input("w")
	for _, id := range []keep.MessageID{"a", "b", "c"} {
		w.publish("w", "t", id, in)
	}
	was := get[keep.Event](w)(w.Event(w.ctx, "w", "t", "a"))
	first := w.start("w", "t", "a")
	one := func(c keep.RedoEvents) keep.RedoEvents {
		c.Topic, c.By, c.From, c.Note = "t", "ann", "cli", "the address was wrong\x00"
		return c
	}
	a, b := []keep.MessageID{"a"}, []keep.MessageID{"b"}
	w.refuse("w", is(keep.ErrStale), one(keep.RedoEvents{IDs: a, Chain: first.Chain, Attempt: 1})) // a run has it
	w.finish(first)
	w.commit("w", keep.SkipEvents{Topic: "t", IDs: b})
	for _, refused := range []keep.RedoEvents{
		{IDs: a, Attempt: 1},                             // the chain's
		{IDs: a, Chain: first.Chain, Attempt: 2},         // at another attempt
		{IDs: []keep.MessageID{"c"}, Attempt: 1},         // pending
		{IDs: []keep.MessageID{"b", "b"}, Attempt: 1},    // pending by then
		{IDs: b, Chain: keep.Swept, Attempt: 1},          // not swept
		{IDs: a, Chain: keep.RunID("run_x"), Attempt: 1}, // another's
	} {
		w.refuse("w", is(keep.ErrStale), one(refused))
	}
	w.refuse("w", notFound("event in topic t", "z"), one(keep.RedoEvents{IDs: []keep.MessageID{"z"}, Attempt: 1}))
	w.refuse("other", notFound("event in topic t", "a"), one(keep.RedoEvents{IDs: a, Chain: first.Chain, Attempt: 1}))
	w.commit("w", one(keep.RedoEvents{IDs: a, Chain: first.Chain, Attempt: 1}), one(keep.RedoEvents{IDs: b, Attempt: 1}))
	redo := keep.Redo{At: w.at, By: "ann", From: "cli", Note: "the address was wrong\x00", Chain: first.Chain}
	was.UpdatedAt, was.Redone = w.at, []keep.Redo{redo}
	w.same("the event", get[keep.Event](w)(w.Event(w.ctx, "w", "t", "a")), was)
	w.same("the oldest first", messageIDs(get[[]keep.Event](w)(w.Peek(w.ctx, "w", "t", 9))), []keep.MessageID{"a", "b", "c"})
	w.same("counts", get[[]keep.TopicCount](w)(w.TopicCounts(w.ctx, "w")), []keep.TopicCount{{Workflow: "w", Topic: "t", Pending: 3}})
	w.same("its input", get[keep.Input](w)(w.Input(w.ctx, in)).Status, keep.InputPending)
	w.refuse("w", is(keep.ErrStale), one(keep.RedoEvents{IDs: a, Chain: first.Chain, Attempt: 1})) // it was redone

	second := w.newRun("w")
	second.Reservations = []keep.Reservation{{Topic: "t", IDs: a}}
	w.refuse("w", is(keep.ErrStale), keep.PutRun{Run: second}, keep.Reserve{Chain: second.Chain, Reservation: second.Reservations[0]})
	second.Reservations[0].Attempts = []int{2}
	w.commit("w", keep.PutRun{Run: second}, keep.Reserve{Chain: second.Chain, Reservation: second.Reservations[0]})
	w.same("its run", get[keep.Run](w)(w.Run(w.ctx, second.ID)).Reservations, second.Reservations)
	second.Rev = 1
	w.finish(second)
	w.same("its runs", len(get[[]keep.Run](w)(w.RunsOfEvent(w.ctx, "w", "t", "a", 9))), 2)
	w.check()
	w.commit("w", one(keep.RedoEvents{IDs: a, Chain: second.Chain, Attempt: 2}))
	w.same("attempt", get[keep.Event](w)(w.Event(w.ctx, "w", "t", "a")).Attempt(), 3)
	w.check()
}

// oneOfTwoRuns is a chain with two open runs, of which one does not know of the chain's event. Of that
// one it is said, whichever is read first.
func oneOfTwoRuns(w *world) {
	w.publish("w", "t", "a")
	first := w.start("w", "t", "a")
	second := w.newRun("w")
	second.Chain, second.RetryOf, second.Lane = first.Chain, first.ID, keep.KeyLane("consume", "k")
	w.commit("w", keep.PutRun{Run: second})
	for range 10 {
		n := 0
		for _, v := range Violations(w, w.Store) {
			if strings.Contains(v, "whose run does not list it") {
				n++
			}
		}
		w.same("runs that do not list the event", n, 1)
	}
	first.Rev, first.Status, first.Closed = 1, keep.StatusTransient, true
	second.Rev, second.Phase, second.Reservations = 1, first.Phase, first.Reservations
	w.commit("w", keep.PutRun{Run: first}, keep.PutRun{Run: second})
	w.check()
}

// sharedAttempts is a run at a second attempt that has the call of the first one.
func sharedAttempts(w *world) {
	w.publish("w", "t", "a")
	first, m := w.call("w")
	first.Reservations = []keep.Reservation{{Topic: "t", IDs: []keep.MessageID{"a"}}}
	w.commit("w", keep.PutRun{Run: first}, keep.Reserve{Chain: first.Chain, Reservation: first.Reservations[0]})
	first.Rev, m.Rev, m.State, m.ResolvedBy = first.Rev+1, 1, keep.Applied, "call"
	w.finish(first, keep.PutMutation{Mutation: m, Moves: []keep.Move{w.move(keep.InFlight, keep.Applied)}})
	w.commit("w", keep.RedoEvents{Topic: "t", IDs: []keep.MessageID{"a"}, Chain: first.Chain, Attempt: 1, By: "ann"})
	second := w.newRun("w")
	second.Reservations, second.Mutation = []keep.Reservation{{Topic: "t", IDs: []keep.MessageID{"a"}, Attempts: []int{2}}}, m.Key
	w.commit("w", keep.PutRun{Run: second}, keep.Reserve{Chain: second.Chain, Reservation: second.Reservations[0]})
	found := Violations(w, w.Store)
	if len(found) != 1 || !strings.Contains(found[0], "once") || !strings.Contains(found[0], "attempts 1 and 2 of event w/t/a share it") {
		w.Errorf("Check found %q, want that two attempts share %s", found, m.Key)
	}
	second.Rev, second.Mutation, second.Reservations[0].Attempts = 1, "", []int{3}
	w.commit("w", keep.PutRun{Run: second})
	if found = Violations(w, w.Store); len(found) != 2 {
		w.Errorf("Check found %q, want that %s has an attempt that there is not", found, second.ID)
	}
	second.Rev, second.Reservations[0].Attempts = 2, []int{2}
	w.commit("w", keep.PutRun{Run: second})
	w.check()
}

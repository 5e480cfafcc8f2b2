package storetest

import (
	"slices"

	"github.com/keep-run/keep"
)

var inputPromises = []promise{
	{"an input is read back as it was written, to the byte", func(w *world) {
		in := keep.Input{ID: "in_1", Workflow: "w", Source: odd, Type: "mail " + odd, ExternalID: "<1@x> " + odd, Title: odd, CreatedAt: oddTime}
		w.commit("w", keep.PutInput{Input: in})
		in.Status, in.CreatedAt = keep.InputDone, kept(oddTime)
		w.same("Input", get[keep.Input](w)(w.Input(w.ctx, in.ID)), in)
		w.same("InputByKey", get[keep.Input](w)(w.InputByKey(w.ctx, "w", in.Source, in.Type, in.ExternalID)), in)
		w.same("Inputs", page[keep.Input](w)(w.Inputs(w.ctx, keep.InputFilter{}, keep.Page{})), []keep.Input{in})
	}},
	{"an input that is known stays as it is", func(w *world) {
		in := keep.Input{ID: "in_1", Workflow: "w", Source: "s", Type: "t", ExternalID: "x", Title: "first"}
		w.commit("w", keep.PutInput{Input: in})
		again := in
		again.Title, again.CreatedAt = "second", oddTime
		w.commit("w", keep.PutInput{Input: again})
		in.Status = keep.InputDone
		w.same("Input", get[keep.Input](w)(w.Input(w.ctx, "in_1")), in)
	}},
	{"an input that another caller added is stale", func(w *world) {
		in := keep.Input{ID: "in_1", Workflow: "w", Source: "s", Type: "t", ExternalID: "x"}
		w.commit("w", keep.PutInput{Input: in})
		other := in
		other.ID = "in_2"
		w.refuse("w", is(keep.ErrStale), keep.PutInput{Input: other})
		other = in
		other.ExternalID = "y"
		w.refuse("w", is(keep.ErrStale), keep.PutInput{Input: other})
		other.Workflow = "other"
		w.refuse("other", is(keep.ErrStale), keep.PutInput{Input: other})
		w.refuse("w", invalid, keep.PutInput{Input: keep.Input{Workflow: "w", ExternalID: "z"}})
		w.refuse("w", invalid, keep.PutInput{Input: keep.Input{ID: "in_3", Workflow: "other"}})
		other.ID = "in_4"
		w.commit("other", keep.PutInput{Input: other}) // a key belongs to its workflow
	}},
	{"an input is pending while an event that it caused is", func(w *world) {
		in, other := w.input("w"), w.input("w")
		status := func() keep.InputStatus { return get[keep.Input](w)(w.Input(w.ctx, in)).Status }
		expect := func(what string, want keep.InputStatus) {
			w.Helper()
			if got := status(); got != want {
				w.Errorf("%s: %s, want %s", what, got, want)
			}
		}
		expect("without events", keep.InputDone)
		w.publish("w", "t", "1", in)
		w.publish("w", "t", "2", in, other)
		expect("with two events", keep.InputPending)
		r := w.start("w", "t", "1")
		expect("with a reserved event", keep.InputPending)
		w.finish(r, keep.Publish{Event: event("w", "u", "3", in)})
		expect("with a new event", keep.InputPending)
		w.finish(w.start("w", "u", "3"))
		expect("with one event left", keep.InputPending)
		w.commit("w", keep.SkipEvents{Topic: "t", IDs: []keep.MessageID{"2"}})
		expect("with every event finished", keep.InputDone)
		w.publish("w", "t", "4", in)
		expect("with an event again", keep.InputPending)
	}},
	{"an event that no consumer takes keeps no input waiting", func(w *world) {
		topics := []keep.TopicName{"t", "u"}
		in, other := w.input("w"), w.input("w")
		w.publish("w", "u", "before", in)
		expect := func(when string, status, others keep.InputStatus) {
			w.Helper()
			for id, want := range map[keep.InputID]keep.InputStatus{in: status, other: others} {
				got := get[keep.Input](w)(w.Input(w.ctx, id))
				listed := page[keep.Input](w)(w.Inputs(w.ctx, keep.InputFilter{Status: want}, keep.Page{}))
				if got.Status != want || !slices.ContainsFunc(listed, func(in keep.Input) bool { return in.ID == id }) {
					w.Errorf("%s: input is %s, want %s", when, got.Status, want)
				}
			}
			w.check()
		}
		expect("before the first version", keep.InputPending, keep.InputDone)
		w.deployReading("w", 1, topics, "t")
		expect("when nobody reads it", keep.InputDone, keep.InputDone)
		w.publish("w", "u", "after", in, other)
		w.publish("w", "u", "after", in, other) // again
		w.publish("w", "new", "undeclared", in)
		expect("published since", keep.InputDone, keep.InputDone)
		w.publish("w", "t", "read", other)
		expect("with an event that is read", keep.InputDone, keep.InputPending)

		// A run of an earlier version may still take such an event.
		r := w.start("w", "u", "after")
		expect("while a run has it", keep.InputPending, keep.InputPending)
		r.Status, r.Closed = keep.StatusLogic, true
		w.commit("w", keep.PutRun{Run: r}, keep.Release{Chain: r.Chain})
		expect("when it is given back", keep.InputDone, keep.InputPending)
		r = w.start("w", "u", "before")
		w.deployReading("w", 2, topics, "t", "u")
		expect("with a consumer", keep.InputPending, keep.InputPending)
		w.deployReading("w", 3, topics)
		expect("with no consumer, while a run has it", keep.InputPending, keep.InputDone)
		w.finish(r)
		expect("when that run is over", keep.InputDone, keep.InputDone)
		w.commit("w", keep.SkipInput{Input: in})
		expect("skipped when it is done", keep.InputDone, keep.InputDone)
		w.commit("w", keep.SkipEvents{Topic: "u", IDs: []keep.MessageID{"after"}})
		w.deployReading("w", 4, topics, "t", "u")
		expect("with its event skipped", keep.InputDone, keep.InputPending)
		w.commit("w", keep.SkipInput{Input: other}, keep.SkipEvents{Topic: "t", IDs: []keep.MessageID{"read"}})
		expect("skipped", keep.InputDone, keep.InputSkipped)
		w.deployReading("w", 5, append(topics, "new"), "new")
		expect("with a consumer of what was not declared", keep.InputPending, keep.InputSkipped)

		// What counts is decided in one order.
		last := keep.Deploy{Deployment: keep.Deployment{Workflow: "w", Version: keep.Version{Major: 6}, Definition: keep.Definition{Name: "w", Topics: topics}}}
		w.refuse("w", invalid, keep.Publish{Event: event("w", "t", "late", in)}, last)
		w.refuse("w", invalid, last, keep.SkipInput{Input: in})
		w.commit("w", last, keep.Publish{Event: event("w", "t", "late", in)})
		expect("published by who deploys", keep.InputDone, keep.InputSkipped)
	}},
	{"a skipped input stays skipped", func(w *world) {
		in := w.input("w")
		w.publish("w", "t", "1", in)
		w.commit("w", keep.SkipInput{Input: in})
		w.commit("w", keep.SkipInput{Input: in})
		w.commit("w", keep.SkipEvents{Topic: "t", IDs: []keep.MessageID{"1"}}, keep.Publish{Event: event("w", "t", "2", in)})
		if got := get[keep.Input](w)(w.Input(w.ctx, in)); got.Status != keep.InputSkipped {
			w.Errorf("input is %s", got.Status)
		}
		w.refuse("w", notFound("input", "in_0"), keep.SkipInput{Input: "in_0"})
		w.refuse("other", notFound("input", string(in)), keep.SkipInput{Input: in})
	}},
	{"the skip of an input is undone: its status follows its events again", func(w *world) {
		in, other := w.input("w"), w.input("w")
		w.deployReading("w", 1, []keep.TopicName{"t", "u"}, "t")
		w.publish("w", "t", "1", in, other)
		w.publish("w", "u", "unread", in)
		expect := func(when string, status, others keep.InputStatus) {
			w.Helper()
			for id, want := range map[keep.InputID]keep.InputStatus{in: status, other: others} {
				if got := get[keep.Input](w)(w.Input(w.ctx, id)); got.Status != want {
					w.Errorf("%s: input is %s, want %s", when, got.Status, want)
				}
			}
			w.check()
		}
		one, unread := []keep.MessageID{"1"}, []keep.MessageID{"unread"}
		w.commit("w", keep.SkipInput{Input: in}, keep.SkipEvents{Topic: "t", IDs: one}, keep.SkipEvents{Topic: "u", IDs: unread})
		expect("skipped", keep.InputSkipped, keep.InputDone)
		w.commit("w", keep.UnskipEvents{Topic: "t", IDs: one})
		expect("its event alone", keep.InputSkipped, keep.InputPending)
		w.commit("w", keep.UnskipInput{Input: in})
		expect("undone", keep.InputPending, keep.InputPending)
		w.commit("w", keep.SkipEvents{Topic: "t", IDs: one}, keep.UnskipEvents{Topic: "u", IDs: unread}, keep.SkipInput{Input: in})
		expect("skipped again", keep.InputDone, keep.InputDone)
		w.commit("w", keep.UnskipEvents{Topic: "t", IDs: one}, keep.SkipInput{Input: in})
		w.commit("w", keep.SkipInput{Input: other}, keep.UnskipInput{Input: other}, keep.SkipEvents{Topic: "t", IDs: one}, keep.UnskipInput{Input: in})
		expect("in one commit", keep.InputDone, keep.InputDone)
		w.refuse("w", notFound("input", "in_0"), keep.UnskipInput{Input: "in_0"})
		w.refuse("other", notFound("input", string(in)), keep.UnskipInput{Input: in})
	}},
	{"the causes of a chain are those of its events, each once, sorted", func(w *world) {
		a, b, c := w.input("w"), w.input("w"), w.input("w")
		w.publish("w", "t", "1", b)
		w.publish("w", "t", "2", a, b)
		w.publish("w", "t", "3", c)
		w.publish("w", "t", "4")
		r := w.start("w", "t", "1", "2", "4")
		w.same("while reserved", get[[]keep.InputID](w)(w.Causes(w.ctx, r.Chain)), []keep.InputID{a, b})
		w.finish(r)
		w.same("when finished", get[[]keep.InputID](w)(w.Causes(w.ctx, r.Chain)), []keep.InputID{a, b})
		w.same("of nobody", get[[]keep.InputID](w)(w.Causes(w.ctx, "run_0")), []keep.InputID(nil))
	}},
	{"the outputs of an input are the mutations of the runs that took its events", func(w *world) {
		in, other := w.input("w"), w.input("w")
		w.publish("w", "t", "1", in)
		w.publish("w", "t", "2", in, other)
		w.publish("w", "t", "3", other)
		var keys []keep.MutationKey
		for _, id := range []keep.MessageID{"1", "2", "3"} {
			r := w.newRun("w")
			m := w.newMutation(r)
			r.Phase, r.Mutation, r.Reservations = keep.Mutating, m.Key, []keep.Reservation{{Topic: "t", IDs: []keep.MessageID{id}}}
			w.commit("w", keep.PutRun{Run: r}, keep.Reserve{Chain: r.Chain, Reservation: r.Reservations[0]},
				keep.PutMutation{Mutation: m, Moves: []keep.Move{w.move("", keep.InFlight)}})
			r.Rev, m.Rev = 1, 1
			// The work is finished by a retry, which takes the record over.
			retry := w.newRun("w")
			retry.Chain, retry.RetryOf, retry.Mutation, retry.Reservations = r.Chain, r.ID, m.Key, r.Reservations
			m.Run, m.State, m.ResolvedBy = retry.ID, keep.Applied, "reconcile"
			r.Status, r.Closed = keep.StatusCrashed, true
			w.commit("w", keep.PutRun{Run: r}, keep.PutRun{Run: done(retry)}, keep.Finish{Chain: r.Chain, Status: keep.EventConsumed},
				keep.PutMutation{Mutation: m, Moves: []keep.Move{w.move(keep.InFlight, keep.Applied)}})
			keys = append(keys, m.Key)
		}
		w.sameAtOnce([]keep.InputID{in, other, "in_0"}, keys)
		w.same("Outputs", get[[]keep.MutationKey](w)(w.Outputs(w.ctx, in)), keys[:2])
		w.same("Outputs", get[[]keep.MutationKey](w)(w.Outputs(w.ctx, other)), keys[1:])
		w.same("of nothing", get[[]keep.MutationKey](w)(w.Outputs(w.ctx, "in_0")), []keep.MutationKey(nil))
	}},
	{"an input that does not exist is not found", func(w *world) {
		in := w.input("w")
		_, err := w.Input(w.ctx, "in_0")
		w.fails("Input", err, notFound("input", "in_0"))
		_, err = w.InputByKey(w.ctx, "other", "mail", "mail", string(in))
		w.fails("InputByKey", err, is(keep.ErrNotFound))
	}},
}

package engine_test

import (
	"encoding/json"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/keep-run/keep"
)

// newShop returns a world whose producer publishes once what its checkpoint does not say that it published,
// and whose consumer makes a call for each event. The script calls its topic by a name.
func newShop(t *testing.T) (w *world, called *string) {
	w = newWorld(t)
	called = new("order")
	w.def = keep.Definition{Name: "w", Topics: []keep.TopicName{"order"}, Handlers: []keep.Handler{
		{Name: "poll", Kind: keep.Producer},
		{Name: "act", Kind: keep.Consumer, Subscribe: []keep.TopicName{"order"}, HasMutate: true, Order: keep.OrderKey},
	}}
	poll := func(c *call) any {
		c.do("publish", *called, map[string]any{"messageId": "a"})
		if string(c.do("kv.get", "n")) == "null" {
			c.do("publish", *called, map[string]any{"once": false})
			c.do("kv.set", "n", 1)
		}
		return nil
	}
	given := func(what, topic string) {
		if topic != *called {
			t.Errorf("%s got an event of the topic %q, want %q", what, topic, *called)
		}
	}
	w.script["producers.poll"], w.script["producers.fetch"] = poll, poll
	w.script["consumers.act.key"] = func(c *call) any {
		var ev struct{ Topic, MessageID string }
		c.arg(0, &ev)
		given("key", ev.Topic)
		return ev.MessageID
	}
	w.script["consumers.act.prepare"] = func(c *call) any {
		var ev struct{ Topic, MessageID string }
		if !c.arg(0, &ev) {
			return map[string]any{"reservations": []any{}, "data": nil}
		}
		given("prepare", ev.Topic)
		var again []struct{ Topic string }
		for name, arg := range map[string]any{"peek": map[string]any{"limit": 1}, "getByIds": []string{ev.MessageID}} {
			if err := json.Unmarshal(c.do(name, *called, arg), &again); err != nil {
				t.Error(err)
			}
			given(name, again[0].Topic)
		}
		out := reserveTrigger(c).(map[string]any)
		out["trigger"] = map[string]any{"topic": *called, "messageId": ev.MessageID}
		return out
	}
	return w, called
}

// Law: once. A topic or a producer that has another name than before continues: what was published stays
// published, what waits is handled, and the checkpoint is there.
func TestRenamedTopicAndProducer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, called := newShop(t)
		w.deploy()
		w.run()
		if n := w.service.total(); n != 2 {
			t.Fatalf("%d effects before the rename, want 2", n)
		}
		w.publish("order", "waiting")
		*called = "orders"
		w.def.Topics = []keep.TopicName{"orders"}
		w.def.Handlers = []keep.Handler{{Name: "fetch", Kind: keep.Producer, Items: "poll"}, w.def.Handlers[1]}
		w.def.Handlers[1].Subscribe = []keep.TopicName{"orders"}
		w.def = w.def.KeepAs(map[keep.TopicName]keep.TopicName{"orders": "order"})
		w.deploy()
		w.run()
		if n := w.service.total(); n != 3 {
			t.Errorf("%d effects, want 3: one more, of the event that waited", n)
		}
		if ev := w.event("order", "waiting"); ev.Status != keep.EventConsumed {
			t.Errorf("the event that waited is %s", ev.Status)
		}
		counts, err := w.store.TopicCounts(t.Context(), "w")
		if err != nil || len(counts) != 1 || counts[0].Topic != "order" || counts[0].Consumed != 3 {
			t.Errorf("topics %+v, %v, want the first name alone", counts, err)
		}
		for _, r := range w.runs() {
			if r.Kind == keep.Consumer && (r.Trigger.Topic != "order" || r.Reservations[0].Topic != "order") {
				t.Errorf("run %s is about %+v, with %+v", r.ID, r.Trigger, r.Reservations)
			}
		}
	})
}

// A failed run of a producer that is renamed continues by the one that has its checkpoint, at a deploy and when a person says so.
func TestAFailedRunOfAProducerThatIsRenamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, _ := newShop(t)
		right := w.script["producers.poll"]
		w.script["producers.poll"] = func(c *call) any { c.do("publish", "no", nil); return nil }
		w.deploy()
		w.run()
		if r := w.lastRun(); r.Status != keep.StatusLogic {
			t.Fatalf("the run is %s, want failed:logic", r.Status)
		}
		w.def.Handlers = []keep.Handler{{Name: "fetch", Kind: keep.Producer, Items: "poll"}, w.def.Handlers[1]}
		delete(w.script, "producers.poll")
		w.script["producers.fetch"] = right
		w.deploy()
		w.run()
		for _, r := range w.runs() {
			if r.Kind == keep.Producer && !r.Closed {
				t.Errorf("run %s of %s is %s: %v", r.ID, r.Handler, r.Status, r.Error)
			}
		}
		if n := w.service.total(); n != 2 {
			t.Errorf("%d effects, want 2: of what the producer publishes", n)
		}
	})
}

// What a script says wrongly of topics is told by the names that it uses.
func TestRenamedTopicInFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, called := newShop(t)
		*called = "orders"
		w.def.Topics, w.def.Handlers[1].Subscribe = []keep.TopicName{"orders"}, []keep.TopicName{"orders"}
		w.def = w.def.KeepAs(map[keep.TopicName]keep.TopicName{"orders": "order"})
		w.script["producers.poll"] = func(c *call) any { c.do("publish", "no", nil); return nil }
		w.deploy()
		w.run()
		const want = `ctx.publish: topic "no" is not declared; the topics are [orders]`
		if f := w.lastRun().Error; f == nil || f.Message != want {
			t.Errorf("the run says %v, want %s", f, want)
		}
	})
}

// KeepAs names topics as the database does wherever a definition names one, also after a second rename.
func TestKeepAs(t *testing.T) {
	d := keep.Definition{Topics: []keep.TopicName{"a", "b", "x"}, Handlers: []keep.Handler{
		{Name: "p", Publishes: []keep.TopicName{}}, {Name: "c", Subscribe: []keep.TopicName{"b", "x"}, Publishes: []keep.TopicName{"a"}}}}
	got := d.KeepAs(map[keep.TopicName]keep.TopicName{"a": "b", "b": "a"}).KeepAs(map[keep.TopicName]keep.TopicName{"x": "first"})
	if !slices.Equal(got.Topics, []keep.TopicName{"a", "b", "first"}) || !slices.Equal(got.Handlers[1].Subscribe, []keep.TopicName{"a", "first"}) ||
		!slices.Equal(got.Handlers[1].Publishes, []keep.TopicName{"b"}) || got.Handlers[0].Publishes == nil {
		t.Errorf("got %+v", got)
	}
	for called, first := range map[keep.TopicName]keep.TopicName{"a": "b", "b": "a", "x": "first", "y": "y"} {
		if got.TopicOf(called) != first || got.CalledIn(first) != called {
			t.Errorf("%s is kept as %s, want %s; %s is called %s", called, got.TopicOf(called), first, first, got.CalledIn(first))
		}
	}
	if d.Handlers[1].Subscribe[0] != "b" || d.Called != nil {
		t.Errorf("KeepAs changed what it was given: %+v", d)
	}
}

package engine_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector"
	"github.com/keep-run/keep/engine"
	"github.com/keep-run/keep/internal/ceiling"
	"github.com/keep-run/keep/law/schedule"
)

// newOrdered returns a world whose consumer has an order. The order key of an event is
// the first letter of its id. sent is what mutate was about, in its order.
func newOrdered(t testing.TB, order keep.Order) (w *world, sent *sentIDs) {
	w = newWorld(t)
	w.service.level = keep.LevelNone
	w.def.Handlers[0].Order = order
	sent = new(sentIDs)
	mutate := w.script["consumers.act.mutate"]
	w.script["consumers.act.mutate"] = func(c *call) any {
		var p struct{ Data struct{ ID string } }
		c.arg(0, &p)
		sent.add(p.Data.ID)
		return mutate(c)
	}
	w.script["consumers.act.key"] = func(c *call) any { return keyLetter(c) }
	return w, sent
}

// sentIDs are the events for which mutate was called.
type sentIDs struct {
	mu  sync.Mutex
	ids []string
}

func (s *sentIDs) add(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ids = append(s.ids, id)
}

func (s *sentIDs) list() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.ids)
}

// keyLetter is a key function; it gets the event alone.
func keyLetter(c *call) string {
	var ev struct{ MessageID string }
	c.arg(0, &ev)
	return ev.MessageID[:1]
}

// failCalls makes the calls of those numbers end without an answer, and without effect.
func (w *world) failCalls(ns ...int) {
	w.service.onCall = func(n int) (bool, error) {
		if slices.Contains(ns, n) {
			return false, errReset
		}
		return true, nil
	}
}

// open returns the open runs as "lane status trigger".
func (w *world) open() (list []string) {
	w.t.Helper()
	runs, err := w.store.OpenRuns(w.t.Context(), w.def.Name)
	if err != nil {
		w.t.Fatal(err)
	}
	for _, r := range runs {
		list = append(list, fmt.Sprintf("%s %s %s", r.Lane, r.Status, r.Trigger.MessageID))
	}
	return list
}

// wantSent fails the test if mutate was called for other events, or in another order.
func wantSent(t *testing.T, got *sentIDs, want string) {
	t.Helper()
	if s := strings.Join(got.list(), " "); s != want {
		t.Errorf("sent %q, want %q", s, want)
	}
}

// A doubt holds up the events of its key, and no others; then they come in their order.
func TestOrderKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, sent := newOrdered(t, keep.OrderKey)
		w.failCalls(1)
		w.deploy()
		w.publish("in", "a1", "b1", "a2", "b2", "a3")
		w.run()
		wantSent(t, sent, "a1 b1 b2")
		if got := w.open(); !slices.Equal(got, []string{"key/act/a paused:reconciliation a1"}) {
			t.Errorf("open runs %q, want that of a1", got)
		}
		w.run() // after a restart, too
		w.publish("in", "c1", "a4")
		w.run()
		wantSent(t, sent, "a1 b1 b2 c1")
		if err := w.decide(keep.DidNotHappen); err != nil {
			t.Fatal(err)
		}
		w.run()
		wantSent(t, sent, "a1 b1 b2 c1 a1 a2 a3 a4")
		if n := w.service.total(); n != 7 {
			t.Errorf("%d effects, want 7", n)
		}
		if got := w.open(); got != nil {
			t.Errorf("open runs %q, want none", got)
		}
	})
}

// A consumer that has another name than before, and says so, waits for the runs of before, and carries on with them.
func TestOrderKeyRenamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, sent := newOrdered(t, keep.OrderKey)
		w.failCalls(1)
		w.deploy()
		w.publish("in", "a1", "b1", "a2", "b2", "a3")
		w.run()
		for _, name := range []keep.HandlerName{"between", "handle"} {
			h := &w.def.Handlers[0]
			for _, f := range []string{"key", "prepare", "mutate", "next"} {
				w.script[fmt.Sprintf("consumers.%s.%s", name, f)] = w.script[fmt.Sprintf("consumers.%s.%s", h.Name, f)]
			}
			h.Name, h.Items = name, "act"
			w.deploy()
			w.publish("in", "c1 of "+string(name), "a4 of "+string(name))
			w.run()
		}
		wantSent(t, sent, "a1 b1 b2 c1 of between c1 of handle")
		if err := w.decide(keep.DidNotHappen); err != nil {
			t.Fatal(err)
		}
		w.run()
		wantSent(t, sent, "a1 b1 b2 c1 of between c1 of handle a1 a2 a3 a4 of between a4 of handle")
		if n, got := w.service.total(), w.open(); n != 9 || got != nil {
			t.Errorf("%d effects and open runs %q; want 9 and none", n, got)
		}
		if r := w.lastRun(); r.Handler != "handle" {
			t.Errorf("the last run is of %s", r.Handler)
		}
	})
}

// A consumer that has another name, and does not say so, waits for the runs of the one that read its events before, which the version that
// began them finishes: the key is that of the events. Where it orders all of them, the workflow waits.
func TestOrderKeyRenamedInSilence(t *testing.T) {
	for _, now := range []keep.Order{keep.OrderKey, keep.OrderAll} {
		synctest.Test(t, func(t *testing.T) {
			w, sent := newOrdered(t, keep.OrderKey)
			w.failCalls(1)
			w.deploy()
			w.publish("in", "a1", "b1", "a2")
			w.run()
			h := &w.def.Handlers[0]
			for _, f := range []string{"key", "prepare", "mutate", "next"} {
				w.script["consumers.handle."+f] = w.script["consumers.act."+f]
			}
			h.Name, h.Order = "handle", now
			w.deploy()
			w.publish("in", "b2", "a3")
			w.run()
			before := "a1 b1 b2"
			if now == keep.OrderAll {
				before = "a1 b1"
			}
			wantSent(t, sent, before)
			if err := w.decide(keep.DidNotHappen); err != nil {
				t.Fatal(err)
			}
			w.run()
			if now == keep.OrderAll {
				wantSent(t, sent, "a1 b1 a1 a2 b2 a3")
			} else {
				wantSent(t, sent, "a1 b1 b2 a1 a2 a3")
			}
			if n, got := w.service.total(), w.open(); n != 5 || got != nil {
				t.Errorf("%d effects and open runs %q; want 5 and none", n, got)
			}
		})
	}
}

// Without an order a doubt holds up its own event alone.
func TestOrderNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, sent := newOrdered(t, keep.OrderNone)
		delete(w.script, "consumers.act.key")
		w.failCalls(1, 3)
		w.deploy()
		w.publish("in", "a1", "a2", "a3", "a4")
		w.run()
		wantSent(t, sent, "a1 a2 a3 a4")
		if got := w.open(); len(got) != 2 {
			t.Errorf("open runs %q, want two", got)
		}
		for _, q := range w.questions() {
			if err := w.engine().Decide(t.Context(), q.ID, keep.Decision{Action: keep.DidNotHappen, By: "ann"}); err != nil {
				t.Fatal(err)
			}
		}
		w.run()
		if n := w.service.total(); n != 4 || w.open() != nil {
			t.Errorf("%d effects, open %q; want 4, and none open", n, w.open())
		}
	})
}

// A script that fails for one event fails once, not again and again for the same event.
func TestOrderNoneFailsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, sent := newOrdered(t, keep.OrderNone)
		w.script["consumers.act.prepare"] = func(c *call) any {
			var ev struct{ MessageID string }
			if c.arg(0, &ev) && ev.MessageID == "a1" {
				panic(thrown("cannot read a1"))
			}
			return reserveTrigger(c)
		}
		w.deploy()
		w.publish("in", "a1", "a2", "a3")
		w.run()
		w.run()
		wantSent(t, sent, "a2 a3")
		if got := len(w.runs()); got != 3 {
			t.Errorf("%d runs, want 3", got)
		}
		w.script["consumers.act.prepare"] = reserveTrigger
		w.deploy()
		w.run()
		wantSent(t, sent, "a2 a3 a1")
	})
}

// Two runs of a consumer that the current version has no more are open: one that is tried again, and finds its own event
// skipped, does not take that of the other.
func TestOrderNoneRemoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, sent := newOrdered(t, keep.OrderNone)
		w.script["consumers.act.prepare"] = func(*call) any { panic(thrown("cannot read it")) }
		w.deploy()
		for _, id := range []string{"a1", "a2"} { // the run of a1 is the older one, and tried first
			w.publish("in", id)
			w.run()
			time.Sleep(time.Second)
		}
		w.def.Handlers = []keep.Handler{{Name: "work", Kind: keep.Job, Schedule: keep.Schedule{Interval: 1000 * time.Hour}}}
		w.script["jobs.work"] = func(*call) any { return nil }
		w.deploy()
		res, err := w.engine().SkipEvents(t.Context(), "w", "in", []keep.MessageID{"a1"}, keep.Decision{})
		if err != nil || res.Skipped != 1 {
			t.Fatalf("skipped %+v, %v; want a1", res, err)
		}
		began := make(map[keep.RunID]keep.MessageID)
		for _, r := range w.runs() {
			began[r.ID] = r.Trigger.MessageID
		}
		w.script["consumers.act.prepare"] = reserveTrigger
		w.run()
		wantSent(t, sent, "a2")
		r, err := w.store.Run(t.Context(), w.newest().Run)
		if err != nil || began[r.RetryOf] != "a2" {
			t.Errorf("a2 was called for by the attempt after that of %q, %v", began[r.RetryOf], err)
		}
	})
}

// While a run waits, on_blocked says whether producers continue. Consumers wait.
func TestOnBlocked(t *testing.T) {
	for _, tt := range []struct {
		on    keep.OnBlocked
		polls int
	}{{keep.BlockedStop, 0}, {keep.BlockedPoll, 3}} {
		t.Run(tt.on.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, sent := newOrdered(t, keep.OrderAll)
				w.def.OnBlocked = tt.on
				w.def.Handlers = append(w.def.Handlers,
					keep.Handler{Name: "poll", Kind: keep.Producer, Schedule: keep.Schedule{Interval: time.Hour}},
					keep.Handler{Name: "work", Kind: keep.Job, Schedule: keep.Schedule{Interval: time.Hour}})
				polls, works := 0, 0
				w.script["producers.poll"] = func(c *call) any {
					polls++
					c.do("publish", "in", map[string]any{"messageId": fmt.Sprint("p", polls)})
					return nil
				}
				w.script["jobs.work"] = func(*call) any { works++; return nil }
				w.failCalls(1)
				w.publish("in", "a1")
				w.deploy()
				w.run()
				first, worked := polls, works
				ctx, cancel := context.WithCancel(t.Context())
				done := make(chan error, 1)
				e := w.engine()
				go func() { done <- e.Run(ctx) }()
				time.Sleep(3*time.Hour + time.Minute)
				cancel()
				if err := <-done; err != nil {
					t.Fatal(err)
				}
				if polls-first != tt.polls || works != worked {
					t.Errorf("%d polls and %d jobs while a1 is in doubt, want %d and none", polls-first, works-worked, tt.polls)
				}
				wantSent(t, sent, "a1")
				if got := w.open(); len(got) != 1 {
					t.Errorf("open runs %q, want that of a1", got)
				}
				if err := w.decide(keep.DidNotHappen); err != nil {
					t.Fatal(err)
				}
				w.run()
				if n := w.service.total(); n != polls+1 {
					t.Errorf("%d effects, want %d", n, polls+1)
				}
			})
		})
	}
}

// An event without a key is a logic failure of its run, and blocks nobody else.
func TestOrderKeyOdd(t *testing.T) {
	for name, odd := range map[string]func(*call) any{
		"throws": func(*call) any { panic(thrown("no customer")) }, "nothing": func(*call) any { return nil },
		"null": func(*call) any { return json.RawMessage("null") }, "empty": func(*call) any { return "" },
		"object": func(*call) any { return map[string]any{} }, "bool": func(*call) any { return true },
		"long": func(*call) any { return strings.Repeat("k", keep.MaxOrderKey+1) },
		"call": func(c *call) any { c.do("svc.get", map[string]any{"id": 1}); return "a" },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, sent := newOrdered(t, keep.OrderKey)
				good := w.script["consumers.act.key"]
				w.script["consumers.act.key"] = func(c *call) any {
					if keyLetter(c) == "x" {
						return odd(c)
					}
					return good(c)
				}
				w.deploy()
				w.publish("in", "a1", "x1", "x2", "a2")
				w.run()
				wantSent(t, sent, "a1 a2")
				runs, err := w.store.OpenRuns(t.Context(), "w")
				if err != nil || len(runs) != 2 {
					t.Fatalf("open runs %v, %v; want those of x1 and x2", runs, err)
				}
				slices.SortFunc(runs, func(a, b keep.Run) int {
					return strings.Compare(string(a.Trigger.MessageID), string(b.Trigger.MessageID))
				})
				for i, r := range runs {
					if r.Status != keep.StatusLogic || string(r.Trigger.MessageID) != fmt.Sprint("x", i+1) || r.Lane != keep.ChainLane(r.Chain) ||
						!strings.Contains(r.Error.Message, string(r.Trigger.MessageID)) {
						t.Errorf("run %s %s of %s: %v", r.Lane, r.Status, r.Trigger.MessageID, r.Error)
					}
				}
				w.script["consumers.act.key"] = good
				w.deploy()
				w.run()
				wantSent(t, sent, "a1 a2 x1 x2")
			})
		})
	}
}

// A number is as its text.
func TestOrderKeyNumbers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, _ := newOrdered(t, keep.OrderKey)
		keys := map[string]any{"a": 7, "b": "7", "c": 1.5, "d": -2}
		w.script["consumers.act.key"] = func(c *call) any { return keys[keyLetter(c)] }
		w.failCalls(1, 2, 3)
		w.deploy()
		w.publish("in", "a1", "b1", "c1", "d1")
		w.run()
		want := []string{"key/act/-2 paused:reconciliation d1", "key/act/1.5 paused:reconciliation c1", "key/act/7 paused:reconciliation a1"}
		if got := slices.Sorted(slices.Values(w.open())); !slices.Equal(got, want) {
			t.Errorf("open %q, want %q", got, want)
		}
	})
}

// A run that would reserve events of two keys, or of a key that another run has, is a
// logic failure, and reserves nothing.
func TestOrderKeyReserves(t *testing.T) {
	for _, tt := range []struct {
		reserve []string
		code    string
		lane    keep.Lane
	}{
		{[]string{"b1", "c1"}, "two-keys", "key/act/b"},
		{[]string{"c1", "a2"}, "two-keys", "key/act/b"},
		{[]string{"a2"}, "key-held", "key/act/b"},
		{[]string{"b1", "b2"}, "", "key/act/b"},
		{[]string{"c1"}, "", "key/act/c"},
	} {
		t.Run(strings.Join(tt.reserve, " "), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, _ := newOrdered(t, keep.OrderKey)
				w.script["consumers.act.prepare"] = func(c *call) any {
					out := reserveTrigger(c).(map[string]any)
					var ev struct{ MessageID string }
					if c.arg(0, &ev); ev.MessageID == "b1" {
						out["reservations"] = []any{map[string]any{"topic": "in", "ids": tt.reserve}}
					}
					return out
				}
				w.failCalls(1, 2, 3, 4)
				w.deploy()
				w.publish("in", "a1", "b1", "b2", "a2", "c1")
				w.run()
				var run keep.Run
				for _, r := range w.runs() {
					if r.Trigger.MessageID == "b1" {
						run = r
					}
				}
				if run.Lane != tt.lane {
					t.Errorf("lane %q, want %q", run.Lane, tt.lane)
				}
				if tt.code == "" {
					if run.Status != keep.StatusReconciliation {
						t.Errorf("run is %s: %v", run.Status, run.Error)
					}
					return
				}
				if run.Status != keep.StatusLogic || run.Error.Code != tt.code {
					t.Errorf("run is %s: %v, want code %s", run.Status, run.Error, tt.code)
				}
				if ev := w.event("in", "b1"); !ev.Free() {
					t.Errorf("b1 is %s by %q, want free", ev.Status, ev.ReservedBy)
				}
			})
		})
	}
}

// The host dies at each point, in a run of one key and in one of another, while a third
// key is in doubt. Each key has its events in order, and one effect for each.
func TestOrderKeyCrashes(t *testing.T) {
	for _, level := range []keep.Level{keep.LevelNone, keep.LevelWitness} {
		for _, p := range engine.Points() {
			for skip := range 4 {
				t.Run(fmt.Sprintf("%s %s %d", level, p, skip), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						w, sent := newOrdered(t, keep.OrderKey)
						w.service.level = level
						w.failCalls(1)
						w.deploy()
						w.publish("in", "a1", "b1", "c1", "a2", "b2")
						w.dieAt, w.skipPoints = p, skip
						_ = w.runFor(time.Hour)
						w.dieAt = ""
						for range 10 {
							w.run()
							for _, q := range w.questions() {
								a := keep.DidNotHappen
								if m, err := w.store.Mutation(t.Context(), q.Mutation); err == nil && w.service.effects[m.Token] > 0 {
									a = keep.Skip
								}
								if err := w.engine().Decide(t.Context(), q.ID, keep.Decision{Action: a, By: "ann"}); err != nil {
									t.Fatal(err)
								}
							}
						}
						if got := w.open(); got != nil {
							t.Fatalf("open runs %q, want none", got)
						}
						if n := w.service.total(); n != 5 {
							t.Errorf("%d effects, want 5", n)
						}
						last := make(map[byte]string)
						for _, id := range sent.list() {
							if id < last[id[0]] {
								t.Errorf("%s was sent after %s: %v", id, last[id[0]], sent.list())
							}
							last[id[0]] = id
						}
					})
				})
			}
		}
	}
}

// readCounter counts the events that are read to find a trigger.
type readCounter struct {
	database
	events atomic.Int64
	keys   atomic.Int64
}

func (s *readCounter) FreeAfter(ctx context.Context, w keep.WorkflowName, topics []keep.TopicName, after int64, limit int) ([]keep.Event, error) {
	events, err := s.database.FreeAfter(ctx, w, topics, after, limit)
	s.events.Add(int64(len(events)))
	return events, err
}

// What a blocked key holds up is read once, not at every step.
func TestOrderKeyBacklog(t *testing.T) {
	held, others := 10_000, 50 // test.sh has them without the race detector, too
	if ceiling.Race {
		held = 2000
	}
	w, sent := newOrdered(t, keep.OrderKey)
	s := &readCounter{database: w.store}
	w.store = s
	key := w.script["consumers.act.key"]
	w.script["consumers.act.key"] = func(c *call) any {
		s.keys.Add(1)
		return key(c)
	}
	w.failCalls(1)
	w.deploy()
	now := time.Now().UTC()
	var changes []keep.Change
	for i := range held {
		changes = append(changes, keep.Publish{Event: keep.Event{Workflow: "w", Topic: "in", MessageID: keep.MessageID(fmt.Sprintf("a%05d", i)), CreatedAt: now, UpdatedAt: now}})
	}
	for i := range others {
		changes = append(changes, keep.Publish{Event: keep.Event{Workflow: "w", Topic: "in", MessageID: keep.MessageID(fmt.Sprintf("b%05d", i)), CreatedAt: now, UpdatedAt: now}})
	}
	if err := w.store.Commit(t.Context(), keep.Commit{Workflow: "w", At: now, Changes: changes}); err != nil {
		t.Fatal(err)
	}
	w.run()
	if len(sent.list()) != 1+others {
		t.Fatalf("%d calls, want %d", len(sent.list()), 1+others)
	}
	if n := int(s.events.Load()); n > held+others+1000 {
		t.Errorf("%d events were read for %d runs, want each about once", n, others)
	}
	if n := int(s.keys.Load()); n > held+others+1000 {
		t.Errorf("%d keys were computed for %d events", n, held+others)
	}
}

// An event that is published again with another key does not wait for the old one.
func TestOrderKeyRepublished(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, sent := newOrdered(t, keep.OrderKey)
		w.script["consumers.act.key"] = func(c *call) any {
			var ev struct{ Payload struct{ Key string } }
			c.arg(0, &ev)
			return ev.Payload.Key
		}
		w.def.Handlers = append(w.def.Handlers, keep.Handler{Name: "poll", Kind: keep.Producer, Schedule: keep.Schedule{Interval: time.Hour}})
		polls := 0
		w.script["producers.poll"] = func(c *call) any {
			polls++
			c.do("publish", "in", map[string]any{"messageId": "m1", "key": "a"})
			c.do("publish", "in", map[string]any{"messageId": "m2", "key": map[int]string{1: "a", 2: "b"}[polls]})
			return nil
		}
		w.failCalls(1)
		w.deploy()
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		e := w.engine()
		go func() { done <- e.Run(ctx) }()
		time.Sleep(30 * time.Minute)
		wantSent(t, sent, "m1")
		time.Sleep(time.Hour)
		wantSent(t, sent, "m1 m2")
		cancel()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	})
}

// An event that is published again with a key that is held up waits for it, and comes before the
// later events of that key.
func TestOrderKeyRepublishedToAHeldKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, sent := newOrdered(t, keep.OrderKey)
		w.service.level = keep.LevelWitness
		w.often()
		w.service.onAsk = func(int) (connector.Verdict, error) { return "", errReset }
		w.script["consumers.act.key"] = func(c *call) any {
			var ev struct{ Payload struct{ Key string } }
			c.arg(0, &ev)
			return ev.Payload.Key
		}
		w.def.Handlers = append(w.def.Handlers, keep.Handler{Name: "poll", Kind: keep.Producer, Schedule: keep.Schedule{Interval: 3 * time.Minute}})
		polls := 0
		w.script["producers.poll"] = func(c *call) any {
			polls++
			for i, key := range map[int][]string{1: {"a", "b", "b", "a"}, 2: {"a", "b", "a", "a"}}[polls] {
				c.do("publish", "in", map[string]any{"messageId": fmt.Sprintf("m%d", i+1), "key": key})
			}
			return nil
		}
		w.service.onCall = func(n int) (bool, error) {
			if n <= 2 {
				return true, errReset // done, and the answer is lost
			}
			return true, nil
		}
		w.deploy()
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		e := w.engine()
		go func() { done <- e.Run(ctx) }()
		time.Sleep(4 * time.Minute) // m3 was b's, and is a's now
		wantSent(t, sent, "m1 m2")
		w.service.mu.Lock()
		w.service.onAsk = nil // nobody but the host itself ends the doubts
		w.service.mu.Unlock()
		time.Sleep(time.Minute)
		wantSent(t, sent, "m1 m2 m3 m4")
		cancel()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	})
}

// A person skips what is in doubt, or ends a failed run: what it held up comes then,
// although no new event came.
func TestOrderKeyEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, sent := newOrdered(t, keep.OrderKey)
		wrong := true
		w.script["consumers.act.prepare"] = func(c *call) any {
			var ev struct{ MessageID string }
			c.arg(0, &ev)
			switch {
			case ev.MessageID == "a1" && wrong:
				panic(thrown("cannot read a1"))
			case ev.MessageID == "b1":
				return map[string]any{"reservations": []any{}} // it passes over all that waits
			}
			return reserveTrigger(c)
		}
		w.deploy()
		w.publish("in", "a1", "a2", "b1")
		w.run()
		wantSent(t, sent, "")
		if err := w.decide(keep.Skip); err != nil {
			t.Fatal(err)
		}
		w.run()
		wantSent(t, sent, "a2")
		if ev := w.event("in", "a1"); ev.Status != keep.EventSkipped {
			t.Errorf("a1 is %s, want skipped", ev.Status)
		}
	})
}

// A run keeps its key when the key function changes. Events whose new key is another are
// free; a consumer that orders all events now waits for its open runs.
func TestOrderKeyChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, sent := newOrdered(t, keep.OrderKey)
		w.failCalls(1)
		w.deploy()
		w.publish("in", "a1", "a2")
		w.run()
		wantSent(t, sent, "a1")
		w.script["consumers.act.key"] = func(c *call) any { return "new " + keyLetter(c) }
		w.deploy()
		w.run()
		wantSent(t, sent, "a1 a2")
		w.def.Handlers[0].Order = keep.OrderAll
		w.deploy()
		w.publish("in", "b1")
		w.run()
		wantSent(t, sent, "a1 a2")
		if err := w.decide(keep.DidNotHappen); err != nil {
			t.Fatal(err)
		}
		w.run()
		wantSent(t, sent, "a1 a2 a1 b1")
	})
}

// The number of open runs is bounded; producers continue.
func TestOrderBound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, sent := newOrdered(t, keep.OrderNone)
		w.service.onCall = func(int) (bool, error) { return false, errReset }
		w.deploy()
		for i := range schedule.MaxOpen + 20 {
			w.publish("in", fmt.Sprintf("m%03d", i))
		}
		w.run()
		if len(sent.list()) != schedule.MaxOpen || len(w.open()) != schedule.MaxOpen {
			t.Errorf("%d calls, %d open runs; want %d", len(sent.list()), len(w.open()), schedule.MaxOpen)
		}
		q := w.questions()[0]
		if err := w.engine().Decide(t.Context(), q.ID, keep.Decision{Action: keep.Skip, By: "ann"}); err != nil {
			t.Fatal(err)
		}
		w.run()
		if len(sent.list()) != schedule.MaxOpen+1 {
			t.Errorf("%d calls, want one more", len(sent.list()))
		}
	})
}

// Skipping an event of a blocked key, and one that a run has, leaves other keys alone.
func TestOrderKeySkipEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, sent := newOrdered(t, keep.OrderKey)
		w.failCalls(1, 2)
		w.deploy()
		w.publish("in", "a1", "b1", "a2", "b2")
		w.run()
		wantSent(t, sent, "a1 b1")
		res, err := w.engine().SkipEvents(t.Context(), "w", "in", []keep.MessageID{"a1", "a2", "b1"}, keep.Decision{})
		if err != nil || res.Skipped != 1 || res.TooLate != 2 {
			t.Errorf("skipped %+v, %v; want a2, and two too late", res, err)
		}
		w.run()
		wantSent(t, sent, "a1 b1")
	})
}

package engine_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector"
	"github.com/keep-run/keep/engine"
	"github.com/keep-run/keep/law/ledger"
	"github.com/keep-run/keep/law/lifecycle"
	"github.com/keep-run/keep/law/limit"
	"github.com/keep-run/keep/operator"
)

// newPagedWorld returns a world whose prepare reads so many pages, under the rule.
func newPagedWorld(t *testing.T, pages int, r limit.Rule) (w *world, at *[]time.Time) {
	w, at = newWorld(t), new([]time.Time)
	w.policy.Outage.After = 3
	var mu sync.Mutex
	read := reader{tool{s: w.service, spec: connector.Spec{Name: "pages", Effect: connector.List, Timeout: 5 * time.Second}}}
	w.connect = func() []connector.Connection {
		c := w.service.connection()
		c.Tools, c.Limits = append(c.Tools, paged{read, pages, at, &mu}), r
		return []connector.Connection{c}
	}
	prepare := w.script["consumers.act.prepare"]
	w.script["consumers.act.prepare"] = func(c *call) any {
		c.do("svc.pages", map[string]any{})
		return prepare(c)
	}
	return w, at
}

// A page may wait for longer than the whole call may take: its time does not run meanwhile.
// The run says for what it waits.
func TestAPageWaitsLongerThanItsCallMayTake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, at := newPagedWorld(t, 3, rate("1/min"))
		w.deploy()
		w.publish("in", "a")
		meanwhile := make(chan lifecycle.Wait, 1)
		time.AfterFunc(30*time.Second, func() { meanwhile <- lifecycle.WaitOf(w.lastRun(), keep.Mutation{}) })
		w.run()
		waits := <-meanwhile
		if r := w.lastRun(); len(*at) != 3 || w.service.total() != 1 || r.Retries != 0 || r.RetryOf != "" || r.Error != nil {
			t.Errorf("%d pages, %d effects, run %+v; want 3, 1, and the first attempt without an error", len(*at), w.service.total(), r)
		}
		if waits.Kind != lifecycle.WaitsForLimit || waits.Why != "the limit of svc, 1/min" {
			t.Errorf("meanwhile it says that it waits for %q: %s", waits.Kind, waits)
		}
	})
}

// What a person takes while a read waits for a limit is not read (law: permitted).
func TestTakenWhileAReadWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, at := newPagedWorld(t, 1, rate("1/h"))
		w.deploy()
		w.give(keep.GrantedTool{Tool: "svc.*"})
		once := w.script["consumers.act.prepare"]
		w.script["consumers.act.prepare"] = func(c *call) any {
			c.do("svc.pages", map[string]any{})
			return once(c)
		}
		w.publish("in", "a")
		e := w.engine()
		time.AfterFunc(10*time.Minute, func() {
			if _, err := e.TakeGrant(t.Context(), "w", operator.Giver{By: "bob", From: "test"}, nil); err != nil {
				t.Error(err)
			}
		})
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Hour)
		defer cancel()
		if err := e.Run(ctx); err != nil {
			t.Errorf("Run: %v", err)
		}
		w.refused(0)
		if len(*at) != 1 {
			t.Errorf("%d pages were read, want the one of before", len(*at))
		}
	})
}

// Where calls have places, who waits for one does not hold up the next page of the call that
// has it.
func TestPagesBesideAFullConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := rate("60/min")
		r.Concurrency = 1
		w, at := newPagedWorld(t, 5, r)
		w.crowd(4, 1)
		start := time.Now()
		w.run()
		if d := time.Since(start); len(*at) < 4*5 || w.service.total() != 4 || d > 2*time.Minute {
			t.Errorf("%d pages and %d effects in %s, want 20 and 4 soon", len(*at), w.service.total(), d)
		}
	})
}

// A call that makes a draft first needs two requests. Both wait before the record, as long as
// it takes.
func TestADraftAndItsCallWait(t *testing.T) {
	for _, p := range []engine.Point{"", engine.AtGate} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			w.service.level = keep.LevelClaim
			d := &drafts{sent: map[string]int{}}
			w.connect = func() []connector.Connection {
				conn := w.service.connection()
				conn.Tools[0] = metered{drafting{conn.Tools[0].(asker), d}}
				conn.Limits = rate("1/h")
				return []connector.Connection{conn}
			}
			w.deploy()
			w.publish("in", "a", "b")
			if w.dieAt = p; p != "" {
				_ = w.runFor(time.Minute)
				w.dieAt = ""
			}
			w.run()
			if d.made != 2 || d.sends != 2 || w.lastRun().Retries != 0 || len(w.questions()) != 0 {
				t.Errorf("death at %q: %d drafts, %d sent, %d retries, questions %v; want 2, 2, none", p, d.made, d.sends, w.lastRun().Retries, w.questions())
			}
			for _, m := range w.mutations() {
				if took := m.UpdatedAt.Sub(m.CreatedAt); took > time.Second || m.State != keep.Applied {
					t.Errorf("%s was on record as in flight for %s", m.Key, took)
				}
			}
		})
	}
}

// A metered tool asks before each of its requests.
type metered struct{ drafting }

func (t metered) Claim(ctx context.Context, m keep.Mutation) (string, error) {
	if err := connector.Admit(ctx); err != nil {
		return "", err
	}
	return t.drafting.Claim(ctx, m)
}

func (t metered) Mutate(ctx context.Context, m keep.Mutation) (connector.Receipt, error) {
	if err := connector.Admit(ctx); err != nil {
		return connector.Receipt{}, err
	}
	return t.drafting.Mutate(ctx, m)
}

// A person who pauses the workflow ends the wait of its run at once, before a call and between
// two pages; and who skips what the run has reserved, too.
func TestAPersonEndsTheWait(t *testing.T) {
	for _, pages := range []int{0, 3} {
		for _, skip := range []bool{false, true} {
			if skip && pages > 0 {
				continue // it has reserved nothing yet
			}
			t.Run(fmt.Sprintf("%d pages, skip %t", pages, skip), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					w, at := newPagedWorld(t, pages, rate("1/h"))
					w.deploy()
					w.publish("in", "a", "b")
					e := w.engine()
					ctx, cancel := context.WithCancel(t.Context())
					var running sync.WaitGroup
					running.Go(func() {
						if err := e.Run(ctx); err != nil {
							t.Errorf("Run: %v", err)
						}
					})
					time.Sleep(10 * time.Minute)
					before := w.lastRun()
					if k := lifecycle.WaitOf(before, keep.Mutation{}).Kind; k != lifecycle.WaitsForLimit {
						t.Errorf("the run waits for %q", k)
					}
					if skip {
						if _, err := e.SkipInput(t.Context(), "w", "in_"+keep.InputID(before.Trigger.MessageID), keep.Decision{}); err != nil {
							t.Error(err)
						}
					} else if err := e.Pause(t.Context(), "w", keep.Decision{By: "ann"}); err != nil {
						t.Error(err)
					}
					time.Sleep(3 * time.Second)
					synctest.Wait()
					after, err := w.store.Run(t.Context(), before.ID)
					if err != nil || after.Status == keep.StatusActive || after.Retries != 0 || after.Crashes != 0 {
						t.Errorf("after three seconds the run is %s with %d retries, %v", after.Status, after.Retries, err)
					}
					if skip && after.Status != keep.StatusAborted {
						t.Errorf("the skipped run is %s", after.Status)
					}
					n := w.service.total() + len(*at)
					time.Sleep(2 * time.Hour)
					if again := w.service.total() + len(*at); !skip && again != n {
						t.Errorf("%d requests more while it is paused", again-n)
					}
					cancel()
					running.Wait()
				})
			})
		}
	}
}

// The process dies when a call asks for its place: nothing is recorded, and the call is made
// once, later.
func TestDeathAtTheGate(t *testing.T) {
	for _, level := range keep.Levels() {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			w.service.level = level
			w.limit(rate("1/min"))
			w.deploy()
			w.publish("in", "a", "b")
			w.dieAt, w.skipPoints = engine.AtGate, 1
			_ = w.runFor(time.Hour)
			if w.dieAt != "" {
				t.Error("nobody came to the gate")
			}
			if n := len(w.mutations()); n != 1 {
				t.Errorf("level %s: %d records when it died, want that of the first call", level, n)
			}
			w.run()
			w.wantOnce("a", "b")
			if r := w.lastRun(); r.Retries != 0 || len(w.questions()) != 0 {
				t.Errorf("level %s: %d retries, questions %v", level, r.Retries, w.questions())
			}
		})
	}
}

// Who waits for a limit when another one is configured waits for that one.
func TestALimitChangesMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.limit(rate("1/h"))
		at := w.sent(nil)
		w.crowd(3, 1)
		time.AfterFunc(10*time.Minute, func() {
			w.limit(rate("60/min"))
			w.reload()
		})
		start := time.Now()
		w.run()
		if d := time.Since(start); len(*at) != 3 || d < 10*time.Minute+time.Second || d > 10*time.Minute+5*time.Second {
			t.Errorf("%d calls in %s, want 3 in ten minutes and two seconds", len(*at), d)
		}
	})
}

// reload gives the engine that runs the connections as they are configured now.
func (w *world) reload() {
	tools, err := engine.NewTools(w.connections())
	if err != nil {
		w.t.Error(err)
		return
	}
	w.tools.Replace(tools, func() {})
}

// A connection that is renamed while it is down is tried by its new name, and the question about
// the old one closes.
func TestAConnectionIsRenamedWhileItIsDown(t *testing.T) {
	for _, was := range []string{"svc", ""} { // it was renamed, or removed
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			w.limit(limit.Rule{})
			down := true
			w.sent(func(int) (bool, error) {
				if down {
					return false, keep.Failf(keep.ClassTransient, "refused", "connection refused")
				}
				return true, nil
			})
			w.crowd(5, 1)
			w.run() // idle: a person is asked
			if q := w.questions(); len(q) != 1 || q[0].Connection != "svc" {
				t.Fatalf("questions %+v, want one about svc", q)
			}
			down = false
			w.script["consumers.act.mutate"] = func(c *call) any {
				var p struct{ Data struct{ ID string } }
				c.arg(0, &p)
				c.do("new.create", map[string]any{"id": p.Data.ID, "text": "hello"})
				panic("unreachable: the mutate call is terminal")
			}
			w.connect = func() []connector.Connection {
				c := w.service.connection()
				c.Name, c.Was = "new", strings.Fields(was)
				return []connector.Connection{c}
			}
			w.runUntil(time.Hour)
			for _, q := range w.questions() {
				if q.Kind == keep.AskConnection {
					t.Errorf("was %q: %q is still asked", was, q.Question)
				}
			}
			if n := w.service.total(); was != "" && n != 5 {
				t.Errorf("%d effects, want 5", n)
			}
			g, err := w.store.Gate(t.Context(), "svc")
			if err != nil || strings.Contains(string(g.State), "shut") {
				t.Errorf("was %q: the connection of before is %s, %v", was, g.State, err)
			}
		})
	}
}

// So it is if what waits for it is a call in doubt, whose run continues when its lookup finds it.
func TestAConnectionIsRenamedWhileADoubtWaitsForIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		name, was := "svc", ""
		w.connect = func() []connector.Connection {
			c := w.service.connection()
			c.Name, c.Was = name, strings.Fields(was)
			return []connector.Connection{c}
		}
		w.service.loseTheAnswer()
		w.service.onAsk = func(int) (connector.Verdict, error) {
			return "", keep.Failf(keep.ClassTransient, "refused", "connection refused")
		}
		w.policy.Outage.After = 2
		w.deploy()
		w.publish("in", "a")
		w.runUntil(10 * time.Minute)
		if q := w.questions(); len(q) == 0 || q[0].Kind != keep.AskConnection || q[0].Connection != "svc" {
			t.Fatalf("questions %+v, want one about svc", q)
		}
		w.service.onAsk = nil
		name, was = "crm", "svc"
		w.run()
		if m := w.newest(); m.State != keep.Applied || w.service.calls != 1 {
			t.Errorf("the record is %s after %d calls", m.State, w.service.calls)
		}
		if q := w.questions(); len(q) != 0 {
			t.Errorf("still asked: %+v", q)
		}
		g, err := w.store.Gate(t.Context(), "svc")
		if err != nil || strings.Contains(string(g.State), "shut") {
			t.Errorf("the connection of before is %s, %v", g.State, err)
		}
	})
}

// What is asked about a call counts the lookups that were made, and not those for which its connection had no room. Law explained.
func TestLookupWithoutARoomIsNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.limit(rate("1/h"))
		w.service.onCall = func(int) (bool, error) { return true, errReset }
		w.deploy()
		w.publish("in", "a")
		w.runUntil(time.Minute)
		moves, err := w.store.History(t.Context(), w.mutation().Key)
		if err != nil || len(moves) != 3 {
			t.Fatalf("moves %+v, %v; want that it was sent, unknown, and not asked about", moves, err)
		}
		if n := ledger.Lookups(moves); n != w.service.asked || n != 0 {
			t.Errorf("it says that the service was asked %d times, which was asked %d times", n, w.service.asked)
		}
		w.run()
		if moves, err = w.store.History(t.Context(), w.mutation().Key); err != nil || ledger.Lookups(moves) != w.service.asked || w.service.asked != 1 {
			t.Errorf("it says that the service was asked %d times, which was asked %d times; %v", ledger.Lookups(moves), w.service.asked, err)
		}
	})
}

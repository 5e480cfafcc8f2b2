package engine_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector"
)

// The host stops, or the store loses what it wrote, while a call is sent again under its key. The grant is taken meanwhile, so that
// the call is only looked for from then on: what was sent last settles last. Law doubt-is-not-failure.
func TestTakenWhileItIsSentAgain(t *testing.T) {
	for _, restarts := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			w, old, _, _ := newMovedWorld(t, keep.LevelKey, true)
			old.loseTheAnswer()
			w.often()
			w.policy.Reconcile.Inline = 5 * time.Second
			start, taken := time.Now(), false
			var last time.Time
			var ends context.CancelFunc
			old.onAskContext = func(ctx context.Context, _ keep.Mutation) error {
				if taken || time.Since(start) < 10*time.Minute {
					return nil
				}
				taken = true
				w.take()
				last = time.Now()
				old.mu.Lock()
				old.onAsk = func(int) (connector.Verdict, error) { return connector.Absent, nil }
				old.mu.Unlock()
				if restarts {
					ends()
					<-ctx.Done() // it was sent, and nothing is written
				}
				return errReset
			}
			var e *host
			if !restarts {
				w.onCommit = func(_ keep.Commit, do func() error) error {
					if !last.IsZero() {
						w.onCommit = nil
						time.AfterFunc(time.Millisecond, func() { e.Wake("w") }) // it does not wait
						return errReset
					}
					return do()
				}
			}
			w.deploy()
			w.give(keep.GrantedTool{Tool: "svc.*"})
			w.publish("in", "a")
			ctx, cancel := context.WithCancel(t.Context())
			ends = cancel
			if restarts {
				if err := w.engine().Run(ctx); err != nil {
					t.Error(err)
				}
			}
			cancel()
			e = w.engine()
			if err := w.runEngine(e, 24*time.Hour); err != nil {
				t.Error(err)
			}
			m := w.mutation()
			if at := failedAt(w, m.Key); !taken || at.Before(last.Add(m.SettleAfter-time.Millisecond)) { // records know milliseconds
				t.Errorf("restarts %t: the absence was believed %v after it was sent again; effects settle in %v", restarts, at.Sub(last), m.SettleAfter)
			}
		})
	}
}

// A host loses its lease while a connector of it ignores that the time of its call is over. The other host, which runs for long,
// believes in no absence until what was sent before it took the workflow has settled. Law doubt-is-not-failure.
func TestTakenOverFromADeafConnector(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 1)
		c.often()
		a := c.node()
		var calls atomic.Int32
		c.service.onCallContext = func(context.Context) error {
			if calls.Add(1) > 1 {
				return nil
			}
			time.Sleep(18 * time.Second) // its timeout is 10 s, and it is not waited for after 5 s more
			hosts, err := c.shared.Hosts(t.Context())
			if err != nil {
				t.Error(err)
			}
			a.setCut(true)
			for _, h := range hosts {
				if h.ID == a.name() {
					time.Sleep(h.Until.Sub(time.Now().Add(skew)))
				}
			}
			c.landLater(1900 * time.Millisecond) // its settle time is 2 s
			return errReset
		}
		a.run(0, nil)
		pass(2 * time.Second)
		b := c.start(0)
		pass(2 * time.Second)
		c.give("e")
		pass(17 * time.Second)
		if m := c.mutation(); m.Error == nil || m.Error.Code != "not-returned" {
			t.Fatalf("the record says %v, want that its call is out", m.Error)
		}
		pass(2 * time.Minute)
		if got := c.held(b); len(got) != 1 {
			t.Errorf("the other host has %v", got)
		}
		c.effects(1)
		if m := c.mutation(); m.State != keep.Applied || m.Attempts != 1 {
			t.Errorf("the record is %s after %d attempts, want applied after one", m.State, m.Attempts)
		}
		a.stop()
		b.stop()
		c.check()
	})
}

// The same holds for calls of agents, whose processes execute no workflow. Law doubt-is-not-failure.
func TestDeathOfADeafConnectorOfAnAgent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.def.Name = keep.DirectWorkflow
		w.service.onCall = func(int) (bool, error) { return false, errReset }
		w.service.onAsk = func(int) (connector.Verdict, error) { return "", errReset }
		if _, err := w.directEngine().Caller(t.Context()).Call(t.Context(), directCall()); err != nil {
			t.Fatal(err)
		}
		m := w.mutation()
		m.Error = &keep.Failure{Class: keep.ClassUnknown, Code: "not-returned", Message: "it is still out"}
		if err := w.store.Commit(t.Context(), keep.Commit{Workflow: m.Workflow, At: time.Now(), Changes: []keep.Change{keep.PutMutation{Mutation: m}}}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		w.service.onAsk = nil
		w.landLater(1900 * time.Millisecond) // its settle time is 2 s
		next := w.engine().Caller(t.Context())
		for at := time.Now(); !at.IsZero(); {
			time.Sleep(time.Until(at))
			var err error
			if at, err = next.Ask(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if m := w.mutation(); m.State != keep.Applied {
			t.Errorf("the record is %s, want applied", m.State)
		}
	})
}

package engine_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector"
)

// An aging tool is of level A, and looks for a call whose key is too old.
type aging struct {
	asker
	again *func(keep.Mutation) // what happens while a call is sent again
}

func (t aging) Reconcile(ctx context.Context, m keep.Mutation) (connector.Answer, error) {
	if t.spec.KeyLives(ctx, m) {
		(*t.again)(m)
		return connector.Answer{}, errReset
	}
	return t.asker.Reconcile(ctx, m)
}

// Two gateways on one database differ in how long a key of a tool lasts. While one sends a call again under its key, the other, which
// looks for it, does not believe that it is absent. Law: doubt-is-not-failure.
func TestTwoGatewaysDifferInAKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.def.Name = keep.DirectWorkflow
		w.service.level, w.service.onCall = keep.LevelKey, lose(1, false)
		w.service.onAsk = func(int) (connector.Verdict, error) { return connector.Absent, nil }
		again := func(keep.Mutation) {}
		w.connect = func() []connector.Connection {
			c := w.service.connection()
			c.Tools[0] = aging{c.Tools[0].(asker), &again}
			return []connector.Connection{c}
		}
		w.service.keyLasts = 24 * time.Hour
		one := w.directEngine().Caller(t.Context())
		w.service.keyLasts = time.Minute
		other := w.engine().Caller(t.Context())
		if out, err := one.Call(t.Context(), directCall()); err != nil || out.Mutation.State != keep.NeedsReconcile {
			t.Fatalf("%+v, %v", out, err)
		}
		time.Sleep(time.Hour)
		sent := 0
		again = func(m keep.Mutation) {
			sent++
			if _, err := other.Ask(t.Context()); err != nil {
				t.Error(err)
			}
			if now := w.mutation(); now.State != keep.NeedsReconcile {
				t.Errorf("the record is %s while the call is sent again, want it in doubt", now.State)
			}
			w.service.mu.Lock()
			defer w.service.mu.Unlock()
			w.service.perform(m)
		}
		if _, err := one.Ask(t.Context()); err != nil || sent != 1 {
			t.Fatalf("it was sent again %d times, %v; want once", sent, err)
		}
		w.service.onAsk = nil
		for w.mutation().State == keep.NeedsReconcile {
			time.Sleep(time.Minute)
			if _, err := other.Ask(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if m := w.mutation(); m.State != keep.Applied || w.service.total() != 1 {
			t.Errorf("the record is %s of %d effects, want applied of one", m.State, w.service.total())
		}
	})
}

// A doubt of level A is on record, with the move that says so, before a gateway sends its call again: the gateway may be killed then. Law:
// nothing-lost.
func TestDoubtIsRecordedBeforeItIsSentAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.def.Name = keep.DirectWorkflow
		w.service.level, w.service.onCall, w.service.keyLasts = keep.LevelKey, lose(1, false), time.Hour
		sent := 0
		again := func(m keep.Mutation) {
			sent++
			moves, err := w.store.History(t.Context(), m.Key)
			if now := w.mutation(); err != nil || now.State != keep.NeedsReconcile || len(moves) != 2 {
				t.Errorf("the record is %s after %d moves, %v; want it in doubt after two", now.State, len(moves), err)
			}
		}
		w.connect = func() []connector.Connection {
			c := w.service.connection()
			c.Tools[0] = aging{c.Tools[0].(asker), &again}
			return []connector.Connection{c}
		}
		if out, err := w.directEngine().Caller(t.Context()).Call(t.Context(), directCall()); err != nil || out.Mutation.State != keep.NeedsReconcile || sent != 1 {
			t.Fatalf("%+v, sent again %d times, %v", out, sent, err)
		}
	})
}

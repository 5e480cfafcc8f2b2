package engine_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/engine"
	"github.com/keep-run/keep/operator"
)

// passesOver returns a world whose consumer passes over a and b, of which a is skipped, until reserve is called.
func passesOver(t *testing.T) (w *world, reserve func()) {
	w = newWorld(t)
	w.deploy()
	w.publish("in", "first")
	w.run()
	takes := w.script["consumers.act.prepare"]
	w.script["consumers.act.prepare"] = func(*call) any { return map[string]any{"reservations": []any{}} }
	w.publish("in", "a", "b")
	if _, err := w.engine().SkipEvents(t.Context(), "w", "in", []keep.MessageID{"a"}, keep.Decision{}); err != nil {
		t.Fatal(err)
	}
	return w, func() { w.script["consumers.act.prepare"] = takes }
}

func unskip(t *testing.T, h *host) {
	t.Helper()
	if _, err := h.UnskipEvents(t.Context(), "w", "in", []keep.MessageID{"a"}, keep.Decision{}); err != nil {
		t.Error(err)
	}
}

// An event whose skip is undone in the very millisecond in which a run began, which did not see it, is not passed over.
func TestUnskippedAsARunBegins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, reserve := passesOver(t)
		w.during("consumers.act.prepare", func() {
			unskip(t, w.running)
			reserve()
		})
		w.wantOnce("first", "a", "b")
	})
}

// Nor is one whose skip is undone by another host, whose clock is behind.
func TestUnskippedByAClockThatIsBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, reserve := passesOver(t)
		w.during("consumers.act.prepare", func() {
			unskip(t, &host{Operator: w.elsewhere(-20 * time.Millisecond)})
			reserve()
		})
		w.wantOnce("first", "a", "b")
	})
}

// Nor is one of which the run knows a request that was made by another clock, which was ahead.
func TestUnskippedAfterAClockThatIsAhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, reserve := passesOver(t)
		if _, err := w.engine().SkipEvents(t.Context(), "w", "in", []keep.MessageID{"b"}, keep.Decision{}); err != nil {
			t.Fatal(err)
		}
		if _, err := w.elsewhere(time.Second).UnskipEvents(t.Context(), "w", "in", []keep.MessageID{"b"}, keep.Decision{}); err != nil {
			t.Fatal(err)
		}
		w.during("consumers.act.prepare", func() {
			unskip(t, w.running)
			reserve()
		})
		w.wantOnce("first", "a", "b")
	})
}

// elsewhere returns what people decide on another host, whose clock is that much ahead.
func (w *world) elsewhere(ahead time.Duration) *operator.Operator {
	w.t.Helper()
	cfg := operator.Config{Policy: &w.policy, Now: func() time.Time { return time.Now().Add(ahead) }}
	if w.running != nil {
		cfg.Executor = w.running
	}
	o, err := operator.New(w.store, cfg)
	if err != nil {
		w.t.Fatal(err)
	}
	return o
}

// Nor is one whose skip is undone while the host is down that began the run, and that its successor ends.
func TestUnskippedBeforeARunIsResumed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, reserve := passesOver(t)
		w.slow = 10 * time.Millisecond
		w.script["consumers.act.next"] = slowly(w.script["consumers.act.next"])
		w.dieAt = engine.BeforeCommit
		_ = w.runFor(time.Minute)
		time.Sleep(time.Second)
		reserve()
		unskip(t, w.engine())
		w.run()
		w.wantOnce("first", "a", "b")
	})
}

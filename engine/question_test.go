package engine_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector"
	"github.com/keep-run/keep/engine"
)

// Of a call that was recorded, and in which the host died, a question says neither that it
// was sent nor that it carried a key: it may have died before.
func TestQuestionAfterADeath(t *testing.T) {
	for p, wants := range map[engine.Point][2]string{
		engine.Recorded: {"If it was sent, then at", "the call would carry the key"},
		"":              {"It was sent at", "the call carried the key"}, // its answer was lost
	} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			w.service.level, w.service.carries = keep.LevelNone, true
			w.service.onCall = func(int) (bool, error) { return true, errReset }
			w.deploy()
			w.publish("in", "a")
			w.dieAt = p
			_ = w.runFor(time.Minute)
			w.run()
			q := w.questions()[0]
			for _, want := range wants {
				if !strings.Contains(q.VerifyByHand, want) {
					t.Errorf("after a death at %q with %d calls, to verify by hand: %q, want %q", p, w.service.calls, q.VerifyByHand, want)
				}
			}
			if !strings.Contains(q.Why, "was not asked") || strings.Contains(q.Question+q.Why, "while the call was out") {
				t.Errorf("after a death at %q the question says %q, %q", p, q.Question, q.Why)
			}
		})
	}
}

// Whether a call carried the key is said as it was when it was sent, whatever the tool does
// today; nothing, if the place where it was sent is not known any more.
func TestQuestionOfAChangedTool(t *testing.T) {
	for name, tt := range map[string]struct{ rebinds, then, now, said bool }{
		"it has a key since":                {true, false, true, false},
		"it had one":                        {true, true, false, true},
		"it has one since, and cannot tell": {false, false, true, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			w, old, now, configure := newMovedWorld(t, keep.LevelWitness, tt.rebinds)
			old.carries, now.carries = tt.then, tt.now
			old.loseTheAnswer()
			w.deploy()
			w.publish("in", "a")
			w.runUntil(time.Second)
			configure("new")
			w.run()
			qs := w.questions()
			if len(qs) != 1 {
				t.Fatalf("%s: %d questions, want one", name, len(qs))
			}
			if got := strings.Contains(qs[0].VerifyByHand, w.mutation().Token); got != tt.said {
				t.Errorf("%s: to verify by hand: %q; names the key: %t, want %t", name, qs[0].VerifyByHand, got, tt.said)
			}
		})
	}
}

// What "did not happen" does names the key only if the call has one, and says what it does to a
// call that did happen, if nothing keeps it from happening twice.
func TestQuestionNamesTheKeyThatIsSent(t *testing.T) {
	for _, tt := range []struct {
		level   keep.Level
		carries bool
		lasts   time.Duration
		effect  string
	}{
		{keep.LevelNone, false, 0, "sends the call again, with the same data; if it did happen, it happens twice"},
		{keep.LevelNone, true, 0, "sends the call again, with the same data and the same key"},
		{keep.LevelKey, false, 0, "sends the call again, with the same data and the same key"}, // in a form of its own
		{keep.LevelKey, false, time.Hour, "sends the call again, with the same data and the same key; the service knows the key for 1h0m0s: " +
			"if it did happen longer ago than that, it happens twice"},
	} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			w.service.level, w.service.carries, w.service.keyLasts = tt.level, tt.carries, tt.lasts
			w.service.onCall = func(int) (bool, error) { return true, errReset }
			w.service.onAsk = func(int) (connector.Verdict, error) {
				return "", keep.Failf(keep.ClassPermission, keep.CodeForbidden, "the service answered 403 Forbidden")
			}
			w.deploy()
			w.publish("in", "a")
			_ = w.runFor(24 * time.Hour)
			qs := w.questions()
			if len(qs) != 1 {
				t.Fatalf("level %s: %d questions, want one", tt.level, len(qs))
			}
			q := qs[0]
			for _, c := range q.Choices {
				if c.Action == keep.DidNotHappen && c.Effect != tt.effect {
					t.Errorf("level %s, carries %t: %q, want %q", tt.level, tt.carries, c.Effect, tt.effect)
				}
			}
			if !q.Allows(keep.DidNotHappen) {
				t.Errorf("level %s: the question is %+v, want one of the outcome", tt.level, q)
			}
		})
	}
}

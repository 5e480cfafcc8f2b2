package engine_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector"
)

// The alarm that a run sets while its consumer gets another name rings: whether the deploy came while the run was executed, or
// while its call was in doubt, and whether the host is another one since.
func TestAlarmOfAConsumerThatIsRenamed(t *testing.T) {
	for _, when := range []string{"executed", "executed, then a restart", "in doubt"} {
		t.Run(when, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				prepare := w.script["consumers.act.prepare"]
				w.script["consumers.act.prepare"] = func(c *call) any {
					out := prepare(c).(map[string]any)
					out["wakeAt"] = time.Now().Add(2 * time.Hour).Format(time.RFC3339)
					return out
				}
				w.deploy()
				w.publish("in", "a")
				woken := 0
				rename := func() {
					for _, phase := range []string{"mutate", "next"} {
						w.script["consumers.handle."+phase] = w.script["consumers.act."+phase]
					}
					w.script["consumers.handle.prepare"] = func(*call) any { woken++; return map[string]any{"reservations": []any{}} }
					for i, h := range w.def.Handlers {
						if h.Name == "act" {
							w.def.Handlers[i].Name, w.def.Handlers[i].Items = "handle", "act"
						}
					}
					w.deploy()
				}
				switch when {
				case "executed":
					w.during("consumers.act.next", rename)
				case "executed, then a restart":
					w.dieAt = "after-commit"
					next := w.script["consumers.act.next"]
					w.script["consumers.act.next"] = func(c *call) any { rename(); return next(c) }
					_ = w.runFor(time.Minute)
				case "in doubt":
					w.service.onCall = func(int) (bool, error) { return true, errReset }
					start := time.Now()
					w.service.onAsk = func(int) (connector.Verdict, error) {
						if time.Since(start) < 5*time.Minute {
							return "", errReset
						}
						return connector.Happened, nil
					}
					w.runUntil(time.Second)
					rename()
				}
				w.runUntil(3 * time.Hour)
				if s := w.event("in", "a").Status; s != keep.EventConsumed || w.service.total() != 1 {
					t.Fatalf("the event is %s with %d effects", s, w.service.total())
				}
				if woken == 0 {
					t.Error("the alarm did not ring")
				}
				rung := woken
				w.run()
				if w.runUntil(3 * time.Hour); woken != rung {
					t.Errorf("it rang %d times more at a later start", woken-rung)
				}
			})
		})
	}
}

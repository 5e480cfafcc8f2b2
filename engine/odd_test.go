package engine_test

import (
	"context"
	"encoding/json"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector"
)

// A result that is not what was declared, or not even JSON, came after success:
// it is applied with a warning, and never sent again.
func TestOddResultIsApplied(t *testing.T) {
	for _, tt := range []struct{ name, result, next, warning string }{
		{"OtherShape", `{"id":"seven"}`, `{"id":"seven"}`, "shape"},
		{"NotJSON", `<html>`, `null`, "not JSON"},
		{"Half", `{"id":`, `null`, "not JSON"},
		{"NotUTF8", "\"caf\xe9\"", `null`, "not UTF-8"},
		{"Nothing", ``, `null`, ""},
		{"Null", `null`, `null`, "shape"},
		{"Huge", `"` + strings.Repeat("x", 2<<20) + `"`, `null`, "bytes"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				for _, lost := range []bool{false, true} {
					w := newWorld(t)
					w.service.result = json.RawMessage(tt.result)
					w.service.schema = json.RawMessage(`{"type":"object","properties":{"id":{"type":"integer"}}}`)
					if lost {
						w.service.onCall = func(int) (bool, error) { return true, errReset }
					}
					w.script["consumers.act.next"] = func(c *call) any {
						var m struct{ Result json.RawMessage }
						c.arg(1, &m)
						c.do("publish", "out", map[string]any{"messageId": "out", "payload": m.Result})
						return nil
					}
					w.deploy()
					w.publish("in", "a")
					w.run()
					m := w.mutation()
					if m.State != keep.Applied || w.service.calls != 1 || !strings.Contains(m.Warning, tt.warning) || (m.Warning == "") != (tt.warning == "") {
						t.Errorf("lost %t: mutation = %s after %d calls, warning %q; want applied after 1, %q", lost, m.State, w.service.calls, m.Warning, tt.warning)
					}
					if out := w.event("out", "out"); string(out.Payload) != tt.next {
						t.Errorf("lost %t: next was given %.80s, want %s", lost, out.Payload, tt.next)
					}
				}
			})
		})
	}
}

// A read that answers what is not JSON, or not UTF-8, has failed; the script never sees it.
func TestReadThatIsNotJSON(t *testing.T) {
	for answer, class := range map[string]keep.Class{"<html>": keep.ClassTransient, "\"caf\xe9\"": keep.ClassLogic} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			w.policy.Retry.Attempts = 1
			w.service.read = json.RawMessage(answer)
			w.script["consumers.act.prepare"] = func(c *call) any {
				c.do("svc.list", map[string]any{})
				return reserveTrigger(c)
			}
			w.deploy()
			w.publish("in", "a")
			w.run()
			if r := w.lastRun(); r.Error == nil || r.Error.Class != class {
				t.Errorf("run = %s (%v), want stopped, %s", r.Status, r.Error, class)
			}
		})
	}
}

// A connector that panics, or ends its goroutine as t.FailNow in a fake does, takes nothing with it: before the call
// nothing was sent, in the call the outcome is unknown, in a lookup it is asked again.
func TestConnectorPanics(t *testing.T) {
	for how, odd := range map[string]func(string){"panic": func(at string) { panic(at) }, "exit": func(string) { runtime.Goexit() }} {
		for _, tt := range []struct {
			name   string
			set    func(s *service)
			status keep.RunStatus
			calls  int
		}{
			{"Target", func(s *service) { s.onTarget = func() { odd("target") } }, keep.StatusInternal, 0},
			{"Mutate", func(s *service) { s.onCall = func(int) (bool, error) { odd("mutate"); return true, nil } }, keep.StatusReconciliation, 1},
			{"Read", func(s *service) { s.onRead = func() error { odd("read"); return nil } }, keep.StatusInternal, 0},
			{"Lookup", func(s *service) {
				s.onCall = func(int) (bool, error) { odd("mutate"); return true, nil }
				s.onAsk = func(n int) (connector.Verdict, error) {
					if n < 3 {
						odd("ask")
					}
					return connector.Happened, nil
				}
			}, keep.StatusCommitted, 1},
		} {
			for _, kind := range []keep.Kind{keep.Consumer, keep.Job} {
				t.Run(how+"/"+tt.name+"/"+string(kind), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						w := newWorld(t)
						if kind == keep.Job {
							w = newJobWorld(t, "a")
						}
						w.service.level = keep.LevelWitness
						if tt.name == "Mutate" {
							w.service.level = keep.LevelNone
						}
						tt.set(w.service)
						for path, f := range w.script {
							if path != "consumers.act.next" && path != "consumers.act.mutate" {
								w.script[path] = func(c *call) any { c.do("svc.list", map[string]any{}); return f(c) }
							}
						}
						w.deploy()
						if kind == keep.Consumer {
							w.publish("in", "a")
						}
						w.run()
						if r := w.lastRun(); r.Status != tt.status || w.service.calls != tt.calls {
							t.Errorf("run = %s (%v) after %d calls, want %s after %d", r.Status, r.Error, w.service.calls, tt.status, tt.calls)
						}
						if n := w.service.total(); n > 1 {
							t.Errorf("%d effects", n)
						}
						if tt.status != keep.StatusCommitted {
							wantPlaceOf(t, w, map[string]string{"panic": "the connector panicked at engine/odd_test.go:", "exit": "the connector ended its goroutine at engine/odd_test.go:"}[how], tt.status)
						}
					})
				})
			}
		}
	}
}

// wantPlaceOf wants one question, about the connector, with the place of what it did.
func wantPlaceOf(t *testing.T, w *world, did string, status keep.RunStatus) {
	t.Helper()
	qs, _, err := w.store.Escalations(t.Context(), keep.EscalationFilter{}, keep.Page{Limit: 2})
	if err != nil || len(qs) != 1 || !strings.Contains(qs[0].Why, did) || status == keep.StatusInternal && !strings.HasPrefix(qs[0].Question, "The connector of svc.") {
		t.Errorf("questions %+v (%v), want one with %q", qs, err, did)
	}
}

// Law doubt-is-not-failure: a failure without a class, or of one that Keep does not have, says what an error
// without a *keep.Failure says: of a call nothing, of what came before it that it may be tried again.
func TestClassThatKeepDoesNotHave(t *testing.T) {
	for _, class := range []keep.Class{"", "timeout", keep.ClassUnknown} {
		lost := &keep.Failure{Class: class, Message: "lost"}
		first := func() error {
			if lost == nil {
				return nil
			}
			defer func() { lost = nil }()
			return lost
		}
		for name, set := range map[string]func(s *service){
			"Mutate": func(s *service) { s.onCall = func(int) (bool, error) { return true, lost } },
			"Start":  func(s *service) { s.onStart = first },
			"Read":   func(s *service) { s.onRead = first },
		} {
			lost = &keep.Failure{Class: class, Message: "lost"}
			t.Run(fmt.Sprintf("%s/%q", name, class), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					w := newWorld(t)
					w.script["consumers.act.prepare"] = func(c *call) any { c.do("svc.list", map[string]any{}); return reserveTrigger(c) }
					set(w.service)
					w.deploy()
					w.publish("in", "a")
					w.run()
					if r := w.lastRun(); r.Status != keep.StatusCommitted || w.service.total() != 1 || w.service.calls != 1 || (w.service.asked > 0) != (name == "Mutate") {
						t.Errorf("run = %s (%v): %d effects of %d calls, asked %d times; want committed, with one effect of one call",
							r.Status, r.Error, w.service.total(), w.service.calls, w.service.asked)
					}
				})
			})
		}
	}
}

// A call that does not end is cut at its timeout, and its outcome is unknown; a
// read that does not end is transient.
func TestToolTimeouts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.service.onCallContext = func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
		w.deploy()
		w.publish("in", "a")
		start := time.Now()
		if err := w.runFor(11 * time.Second); err == nil {
			t.Fatal("idle while the outcome is unknown")
		}
		m := w.mutation()
		if m.State != keep.NeedsReconcile || m.Error == nil || m.Error.Code != "timeout" || !strings.Contains(m.Error.Message, "svc.create took longer than 10s") {
			t.Errorf("mutation = %s (%v), want needs_reconcile by a timeout of 10s", m.State, m.Error)
		}
		if want := start.Add(10 * time.Second); m.CallDeadline.Sub(want).Abs() > time.Second {
			t.Errorf("call deadline %s, want %s", m.CallDeadline, want)
		}
	})
}

// Titles are cut at a character, whatever a script makes them.
func TestHugeTitle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.script["consumers.act.prepare"] = func(c *call) any {
			p := reserveTrigger(c).(map[string]any)
			if len(p["reservations"].([]any)) > 0 {
				p["ui"] = map[string]any{"title": strings.Repeat("äöü", 100_000)}
			}
			return p
		}
		w.deploy()
		w.publish("in", "a")
		w.run()
		r := w.lastRun()
		if r.Status != keep.StatusCommitted || len(r.Title) > keep.MaxTitle || !strings.HasSuffix(r.Title, "…") {
			t.Errorf("run = %s with a title of %d bytes, want committed with at most %d", r.Status, len(r.Title), keep.MaxTitle)
		}
	})
}

// Params and payloads over their limit are logic failures before anything is
// sent or stored (law: bounded).
func TestTooLarge(t *testing.T) {
	big := strings.Repeat("x", 1<<20)
	for _, tt := range []struct {
		path, code string
		f          scripted
	}{
		{"consumers.act.mutate", "params-too-large", func(c *call) any {
			return c.do("svc.create", map[string]any{"id": "a", "text": big})
		}},
		{"consumers.act.prepare", "params-too-large", func(c *call) any { return c.do("svc.list", map[string]any{"q": big}) }},
		{"consumers.act.next", "payload-too-large", func(c *call) any { return c.do("publish", "out", map[string]any{"text": big}) }},
	} {
		t.Run(tt.path, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				w.script[tt.path] = tt.f
				w.deploy()
				w.publish("in", "a")
				w.run()
				if r := w.lastRun(); r.Status != keep.StatusLogic || r.Error.Code != tt.code {
					t.Errorf("run = %s (%v), want failed:logic %s", r.Status, r.Error, tt.code)
				}
				if n := w.service.calls; n > 0 && tt.path != "consumers.act.next" {
					t.Errorf("%d calls, want none", n)
				}
			})
		})
	}
}

// Whatever a script calls, also by names that only the host's own prelude uses,
// fails the run at worst.
func TestForgedCalls(t *testing.T) {
	for _, name := range []string{"item.fail", "item.end", "item.begin", "item.x", "item", "", ".", "svc", "svc.", "kv", "constructor", "svc.create.x"} {
		for _, path := range []string{"consumers.act.prepare", "consumers.act.mutate", "consumers.act.next", "jobs.remind"} {
			t.Run(name+" in "+path, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					w := newWorld(t)
					if path == "jobs.remind" {
						w = newJobWorld(t, "a")
					}
					f := w.script[path]
					w.script[path] = func(c *call) any { c.do(name, map[string]any{}); return f(c) }
					w.deploy()
					if path != "jobs.remind" {
						w.publish("in", "a")
					}
					w.run()
					r := w.lastRun()
					if harmless := name == "item.end" && r.Status == keep.StatusCommitted; r.Status != keep.StatusLogic && !harmless {
						t.Errorf("run = %s (%v), want failed:logic", r.Status, r.Error)
					}
				})
			})
		}
	}
}

// An item that a script ends by a forged call does not come back to life: calls
// after it are refused, and its handler may still throw.
func TestForgedEndOfItem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newJobWorld(t)
		w.script["jobs.remind"] = func(c *call) any {
			c.withItem("a", func(c *call, _ bool) {
				c.do("item.end")
				c.do("item.fail", map[string]any{"name": "Error", "message": "boom"})
			})
			return nil
		}
		w.deploy()
		w.run()
		if r := w.lastRun(); r.Status != keep.StatusLogic || !strings.Contains(r.Error.Message, "boom") {
			t.Errorf("run = %s (%v), want failed:logic, boom", r.Status, r.Error)
		}
	})
}

// Law bounded: a schema with integers makes a big number of each, so 1e9999 must not
// reach it.
func TestHugeNumbers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.service.schema = json.RawMessage(`{"type":"object","properties":{"id":{"type":"integer"}}}`)
		w.service.result = json.RawMessage(`{"id":1e9999}`)
		w.deploy()
		w.publish("in", "a")
		w.run()
		if m := w.mutation(); m.State != keep.Applied || m.Result != nil || !strings.Contains(m.Warning, "exponent") {
			t.Errorf("mutation = %s with result %.20s and warning %q, want applied without the result", m.State, m.Result, m.Warning)
		}
	})
}

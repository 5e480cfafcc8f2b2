package engine_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector"
)

// The tests of this file, of job_test.go and of items_test.go go through sections
// 14.2 to 14.7 of the specification of idempotency in jobs, sentence by sentence. What needs
// real JavaScript is in package host.

// create calls svc.create in an item.
func (c *call) create(id, text string) string {
	return string(c.do("svc.create", map[string]any{"id": id, "text": text}))
}

// oneItem makes the job handle one item, with the handler f.
func (w *world) oneItem(f func(c *call, isDone bool)) {
	w.script["jobs.remind"] = func(c *call) any {
		c.withItem("a", f)
		return nil
	}
}

func (w *world) item(id string) keep.Item {
	w.t.Helper()
	it, err := w.store.Item(w.t.Context(), "w", id)
	if err != nil {
		w.t.Fatal(err)
	}
	return it
}

func transient() error  { return keep.Failf(keep.ClassTransient, "http-429", "too many requests") }
func permission() error { return keep.Failf(keep.ClassPermission, "http-401", "token expired") }

// §14.2.1: the handler is always executed, regardless of item state; isDone lets
// it skip what must not be done again.
func TestHandlerAlwaysRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newJobWorld(t)
		var seen []bool
		w.oneItem(func(c *call, isDone bool) {
			seen = append(seen, isDone)
			if !isDone {
				c.create("a", "hello")
			}
		})
		fails := true
		w.service.onCall = func(int) (bool, error) {
			if fails {
				fails = false
				return false, transient()
			}
			return true, nil
		}
		w.deploy()
		w.run() // new: failed, then done
		time.Sleep(2 * time.Hour)
		w.run() // done
		if err := w.engine().ReprocessItem(t.Context(), "w", "a", keep.Decision{By: "ann"}); err != nil {
			t.Fatal(err)
		}
		w.service.onCall = func(int) (bool, error) { return false, permission() }
		time.Sleep(2 * time.Hour)
		w.run() // processing again
		if err := w.decide(keep.Skip); err != nil {
			t.Fatal(err)
		}
		w.run() // skipped
		if want := []bool{false, false, true, false, true}; !slices.Equal(seen, want) {
			t.Errorf("the handler ran with isDone %v, want %v", seen, want)
		}
	})
}

// §14.2.2: completed items cannot produce new side effects: the run is aborted as
// a logic error that tells of the guard, before the ledger is looked at; reads are
// free. A script with the guard fixes it.
func TestDoneItemsProduceNoSideEffects(t *testing.T) {
	for _, status := range []keep.ItemStatus{keep.ItemDone, keep.ItemSkipped} {
		t.Run(string(status), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newJobWorld(t)
				w.oneItem(func(c *call, _ bool) {
					c.do("svc.get", map[string]any{"id": "a"})
					c.create("a", "hello")
				})
				now := time.Now().UTC().Truncate(time.Millisecond)
				w.deploy()
				if err := w.store.Commit(t.Context(), keep.Commit{Workflow: "w", At: now, Changes: []keep.Change{
					keep.PutItem{Item: keep.Item{Workflow: "w", ID: "a", Status: status, Attempt: 1, CreatedAt: now, UpdatedAt: now}},
				}}); err != nil {
					t.Fatal(err)
				}
				w.run()
				r := w.lastRun()
				if r.Status != keep.StatusLogic || !strings.Contains(r.Error.Message, "if (ctx.item.isDone) return") {
					t.Errorf("run = %s (%v), want failed:logic with the guard to add", r.Status, r.Error)
				}
				if ms, _, _ := w.store.Mutations(t.Context(), keep.MutationFilter{}, keep.Page{}); len(ms) != 0 || w.service.calls != 0 {
					t.Errorf("%d records and %d calls, want none", len(ms), w.service.calls)
				}
				if got := w.item("a").Status; got != status {
					t.Errorf("item is %s, want %s as before", got, status)
				}
				w.oneItem(func(c *call, isDone bool) {
					if !isDone {
						c.create("a", "hello")
					}
				})
				w.deploy()
				w.run()
				if r := w.lastRun(); r.Status != keep.StatusCommitted {
					t.Errorf("with the guard the run = %s (%v), want committed", r.Status, r.Error)
				}
			})
		})
	}
}

// §14.3: the identity is stable across retries and across repairs that change the
// content; a call that failed is sent again with the new content, under its key.
func TestIdentityIsStable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newJobWorld(t)
		text := "hello"
		w.oneItem(func(c *call, _ bool) { c.create("a", text) })
		w.service.onCall = func(n int) (bool, error) {
			switch n {
			case 1:
				return false, transient()
			case 2:
				return false, keep.Failf(keep.ClassLogic, "http-422", "text too short")
			}
			return true, nil
		}
		w.deploy()
		w.run()
		text = "hello, dear customer"
		w.deploy()
		w.run()
		m := w.mutation() // the only record
		if m.State != keep.Applied || m.Attempts != 3 || !strings.Contains(string(m.Payload), text) {
			t.Errorf("mutation %s after %d calls with %s, want applied after 3 with the new text", m.State, m.Attempts, m.Payload)
		}
	})
}

// §14.3: without a subkey the second call of one identity gets the first's result;
// with other content that is a mismatch, and nothing is sent.
func TestSameIdentityOtherContentInOneRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newJobWorld(t)
		w.oneItem(func(c *call, _ bool) {
			c.create("a", "first")
			c.create("a", "second")
		})
		w.deploy()
		w.run()
		if r := w.lastRun(); r.Error == nil || r.Error.Code != "payload-mismatch" || w.service.calls != 1 {
			t.Errorf("run stopped by %v after %d calls, want payload-mismatch after 1", r.Error, w.service.calls)
		}
	})
}

// §14.4: an item is replayed from the beginning; applied calls return the stored
// result, whatever the service would answer now; partial progress is preserved.
func TestReplayReturnsStoredResults(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newJobWorld(t)
		var results []string
		runs := 0
		w.oneItem(func(c *call, _ bool) {
			runs++
			results = append(results, c.create("one", "1"))
			w.service.result = json.RawMessage(`{"id":"other"}`)
			results = append(results, c.create("two", "2"))
			if runs < 3 {
				panic(thrown("broken after both calls"))
			}
		})
		w.deploy()
		w.run()
		w.deploy()
		w.run()
		w.deploy()
		w.run()
		want := []string{`{"id":7}`, `{"id":"other"}`}
		if want = slices.Concat(want, want, want); !slices.Equal(results, want) || w.service.calls != 2 {
			t.Errorf("results %v by %d calls, want %v by 2", results, w.service.calls, want)
		}
		if got := w.item("a"); got.Status != keep.ItemDone || got.Attempt != 1 {
			t.Errorf("item = %s, attempt %d; want done in attempt 1: a repair is no attempt", got.Status, got.Attempt)
		}
	})
}

// §14.4: while the outcome of a call is unknown the item is blocked: its handler
// isn't run and nothing is sent, whatever a new version says. Every answer but "it
// happened" leads on as that answer says.
func TestReplayIsBlockedByAnUnknownOutcome(t *testing.T) {
	for _, tt := range []struct {
		level  keep.Level
		action keep.Action
		calls  int
		status keep.ItemStatus
	}{
		{keep.LevelNone, keep.DidNotHappen, 2, keep.ItemDone},
		{keep.LevelNone, keep.Skip, 1, keep.ItemSkipped},
		{keep.LevelWitness, keep.CheckAgain, 1, keep.ItemDone},
	} {
		t.Run(string(tt.level)+" "+string(tt.action), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newJobWorld(t)
				w.service.level = tt.level
				runs := 0
				w.oneItem(func(c *call, isDone bool) {
					runs++
					if !isDone {
						c.create("a", "hello")
					}
				})
				w.service.onCall = func(n int) (bool, error) {
					if n == 1 {
						return tt.action == keep.CheckAgain, errReset
					}
					return true, nil
				}
				w.service.onAsk = func(int) (connector.Verdict, error) { return "", errReset }
				w.deploy()
				w.run()
				w.deploy()
				w.run()
				if m := w.mutation(); m.State != keep.Indeterminate || runs != 1 || w.service.calls != 1 {
					t.Fatalf("mutation %s, handler ran %d times, %d calls; want indeterminate, 1, 1", m.State, runs, w.service.calls)
				}
				w.service.onAsk = nil
				if err := w.decide(tt.action); err != nil {
					t.Fatal(err)
				}
				w.run()
				if got := w.item("a").Status; got != tt.status || runs != 2 || w.service.calls != tt.calls {
					t.Errorf("item %s, handler ran %d times, %d calls; want %s, 2, %d", got, runs, w.service.calls, tt.status, tt.calls)
				}
			})
		})
	}
}

// §14.5: what the tool says of two payloads decides; no answer, no method and
// nonsense mean significant. Nothing is ever sent again.
func TestPayloadComparison(t *testing.T) {
	is := func(d connector.Difference) func(_, _ []byte) connector.Difference {
		return func(_, _ []byte) connector.Difference { return d }
	}
	for _, tt := range []struct {
		name, tool string
		compare    func(old, new []byte) connector.Difference
		status     keep.ItemStatus
	}{
		{"Equivalent", "svc.edit", is(connector.Equivalent), keep.ItemDone},
		{"Minor", "svc.edit", is(connector.Minor), keep.ItemDone},
		{"Significant", "svc.edit", is(connector.Significant), keep.ItemAttention},
		{"Nonsense", "svc.edit", is("perhaps"), keep.ItemAttention},
		{"Nothing", "svc.edit", is(""), keep.ItemAttention},
		{"Panic", "svc.edit", func(_, _ []byte) connector.Difference { panic("odd") }, keep.ItemAttention},
		{"NoMethod", "svc.create", nil, keep.ItemAttention},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newJobWorld(t)
				w.service.compare = tt.compare
				text, broken := "old", true
				var results []string
				w.oneItem(func(c *call, _ bool) {
					results = append(results, string(c.do(tt.tool, map[string]any{"id": "a", "text": text})))
					if broken {
						panic(thrown("broken after the call"))
					}
				})
				w.deploy()
				w.run()
				text, broken = "new", false
				w.deploy()
				w.run()
				if got := w.item("a").Status; got != tt.status || w.service.calls != 1 {
					t.Errorf("item %s after %d calls, want %s after 1", got, w.service.calls, tt.status)
				}
				if m := w.mutation(); m.State != keep.Applied || !strings.Contains(string(m.Payload), "old") {
					t.Errorf("record = %s with %s, want applied with what was sent", m.State, m.Payload)
				}
				if tt.status == keep.ItemDone && !slices.Equal(results, []string{`{"id":7}`, `{"id":7}`}) {
					t.Errorf("results %v, want the stored one twice", results)
				}
			})
		})
	}
}

// §14.6: whatever stops a handler, the item is failed, what was applied before
// stays applied, the run ends, and its class decides what comes next.
func TestFailuresInsideItems(t *testing.T) {
	for _, tt := range []struct {
		name   string
		err    error // of the second call; nil: the handler throws
		status keep.RunStatus
		kind   keep.EscalationKind // empty: nobody is asked
	}{
		{"Transient", transient(), keep.StatusTransient, ""},
		{"Permission", permission(), keep.StatusPerson, keep.AskPermission},
		{"Precondition", keep.Failf(keep.ClassPrecondition, "gone", "no such table"), keep.StatusPerson, keep.AskPrecondition},
		{"Logic", keep.Failf(keep.ClassLogic, "http-422", "no"), keep.StatusLogic, keep.AskLogic},
		{"Exception", nil, keep.StatusLogic, keep.AskLogic},
		{"Indeterminate", errReset, keep.StatusReconciliation, keep.AskUnknownOutcome},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newJobWorld(t)
				w.service.level = keep.LevelNone
				after := false
				w.oneItem(func(c *call, isDone bool) {
					if isDone {
						return
					}
					c.create("one", "1")
					if tt.err == nil {
						panic(thrown("broken"))
					}
					c.create("two", "2")
					after = true
				})
				w.service.onCall = func(n int) (bool, error) { return n == 1, map[bool]error{false: tt.err}[n == 1] }
				w.deploy()
				_ = w.runFor(5 * time.Second) // transient: a backoff is pending
				if r := w.lastRun(); r.Status != tt.status || after {
					t.Errorf("run = %s (%v), continued: %t; want %s, false", r.Status, r.Error, after, tt.status)
				}
				if got := w.item("a").Status; got != keep.ItemFailed {
					t.Errorf("item is %s, want failed", got)
				}
				ms, _, err := w.store.Mutations(t.Context(), keep.MutationFilter{State: keep.Applied}, keep.Page{})
				if err != nil || len(ms) != 1 {
					t.Errorf("%d applied records, %v; want the first call's", len(ms), err)
				}
				qs := w.questions()
				if tt.kind == "" {
					if len(qs) != 0 {
						t.Errorf("questions %v, want none", qs)
					}
					return
				}
				if len(qs) != 1 || qs[0].Kind != tt.kind || qs[0].Item != "a" {
					t.Fatalf("questions %+v, want one %s about item a", qs, tt.kind)
				}
				// §14.6: "User can choose to skip an item during escalation."
				if err := w.decide(keep.Skip); err != nil {
					t.Fatal(err)
				}
				w.run()
				if got := w.item("a").Status; got != keep.ItemSkipped || w.lastRun().Status != keep.StatusCommitted {
					t.Errorf("after the skip the item is %s, the run %s; want skipped, committed", got, w.lastRun().Status)
				}
			})
		})
	}
}

// §14.6: an item that failed stays failed, also while its handler runs again,
// until that completes.
func TestItemStaysFailedDuringRetry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newJobWorld(t)
		var during []keep.ItemStatus
		w.oneItem(func(c *call, _ bool) {
			if w.service.calls > 0 {
				during = append(during, w.item("a").Status)
			}
			c.create("a", "hello")
			during = append(during, w.item("a").Status)
		})
		w.service.onCall = func(n int) (bool, error) {
			if n < 3 {
				return false, transient()
			}
			return true, nil
		}
		w.deploy()
		w.run()
		want := []keep.ItemStatus{keep.ItemFailed, keep.ItemFailed, keep.ItemFailed}
		if !slices.Equal(during, want) || w.item("a").Status != keep.ItemDone {
			t.Errorf("during the retries the item was %v, then %s; want failed, then done", during, w.item("a").Status)
		}
	})
}

// §14.7, clear and bounded user intervention points: whatever an item waits for,
// either a time is planned or exactly one question is open, and each of its
// choices says what it causes.
func TestBlockedItemsAreExplained(t *testing.T) {
	for _, err := range []error{transient(), permission(), errReset, keep.Failf(keep.ClassLogic, "http-422", "no")} {
		synctest.Test(t, func(t *testing.T) {
			w := newJobWorld(t, "a", "b")
			w.service.level = keep.LevelNone
			w.service.onCall = func(int) (bool, error) { return false, err }
			w.deploy()
			w.run() // retries are spent, too
			qs := w.questions()
			if len(qs) != 1 {
				t.Fatalf("%v: %d questions, want 1", err, len(qs))
			}
			q := qs[0]
			if q.Question == "" || q.Attempted == "" || q.Why == "" || len(q.Choices) < 2 {
				t.Errorf("%v: question %+v, want what, how, why and choices", err, q)
			}
			for _, c := range q.Choices {
				if c.Label == "" || c.Effect == "" {
					t.Errorf("%v: choice %+v, want what it causes", err, c)
				}
			}
		})
	}
}

// An item that is begun twice in one run is the same item: done the second time.
func TestSameItemTwiceInOneRun(t *testing.T) {
	for _, calls := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			w := newJobWorld(t)
			var seen []bool
			w.script["jobs.remind"] = func(c *call) any {
				for _, id := range []string{"a", "b", "a", "a"} {
					c.withItem(id, func(c *call, isDone bool) {
						seen = append(seen, isDone)
						if calls && !isDone {
							c.create(id, "hello")
						}
					})
				}
				return nil
			}
			w.deploy()
			w.run()
			if want := []bool{false, false, true, true}; !slices.Equal(seen, want) {
				t.Errorf("isDone %v, want %v", seen, want)
			}
			if r := w.lastRun(); r.Status != keep.StatusCommitted || len(w.runs()) != 1 {
				t.Errorf("run %s of %d, want committed of 1", r.Status, len(w.runs()))
			}
		})
	}
}

// §14.3: attempts are independent: the next one sends everything again, with other
// keys, and every attempt stays on record.
func TestAttemptsAreIndependent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newJobWorld(t, "a")
		w.deploy()
		for range 3 {
			w.run()
			if err := w.engine().ReprocessItem(t.Context(), "w", "a", keep.Decision{By: "ann"}); err != nil {
				t.Fatal(err)
			}
			time.Sleep(2 * time.Hour)
		}
		w.run()
		ms, _, err := w.store.Mutations(t.Context(), keep.MutationFilter{Workflow: "w", Item: "a"}, keep.Page{})
		if err != nil || len(ms) != 4 || len(w.service.effects) != 4 {
			t.Fatalf("%d records, %d tokens, %v; want 4 of each", len(ms), len(w.service.effects), err)
		}
		for i, m := range ms {
			if m.Attempt != 4-i {
				t.Errorf("record %d is of attempt %d, want %d", i, m.Attempt, 4-i)
			}
		}
	})
}

package engine_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector"
	law "github.com/keep-run/keep/law/account"
	"github.com/keep-run/keep/law/ledger"
	"github.com/keep-run/keep/law/policy"
)

// newSettingWorld has a tool whose calls say what is to be, and a consumer that says with each event what that is.
func newSettingWorld(t *testing.T) *world {
	w := newWorld(t)
	w.service.level, w.service.sets, w.service.keyLasts = keep.LevelKey, true, time.Hour
	w.script["consumers.act.mutate"] = func(c *call) any {
		var p struct{ Data struct{ ID string } }
		c.arg(0, &p)
		c.do("svc.create", map[string]any{"id": "file", "text": p.Data.ID})
		return nil
	}
	return w
}

// settingWorld is one in which the call of event "v1" is in doubt: it did not reach the service, which cannot be asked yet.
func settingWorld(t *testing.T) *world {
	w := newSettingWorld(t)
	w.connect = func() []connector.Connection {
		c := w.service.connection()
		c.Was = connector.Names{"hub"}
		return []connector.Connection{c}
	}
	w.service.onCall = func(int) (bool, error) { return false, errReset }
	w.service.onAskContext = unreachable
	w.deploy()
	w.publish("in", "v1")
	if err := w.runFor(time.Second / 2); err == nil {
		t.Fatal("idle with a lookup planned")
	}
	if m := w.mutation(); m.State != keep.NeedsReconcile {
		t.Fatalf("the first call is %s, want needs_reconcile", m.State)
	}
	w.service.onCall = nil
	return w
}

// unreachable is what a lookup gets of a service that cannot be reached: nothing arrives.
func unreachable(_ context.Context, _ keep.Mutation) error { return errors.New("no route to host") }

// sets records a call of another workflow that sets something else on what v1 set, or the same, and has the service do it.
func (w *world) sets(key keep.MutationKey, state keep.MutationState, text string, change func(*keep.Mutation)) keep.Mutation {
	w.t.Helper()
	ms, _, err := w.store.Mutations(w.t.Context(), keep.MutationFilter{Workflow: w.def.Name}, keep.Page{})
	if err != nil {
		w.t.Fatal(err)
	}
	m, err := w.store.Mutation(w.t.Context(), ms[len(ms)-1].Key)
	if err != nil {
		w.t.Fatal(err)
	}
	m.Rev, m.Key, m.State, m.Workflow, m.Run, m.ResolvedBy, m.Error = 0, key, state, keep.WorkflowName("other_"+key), keep.RunID("run_"+key), "call", nil
	m.Payload = json.RawMessage(`{"id":"file","text":"` + text + `"}`)
	m.PayloadHash, m.Token = ledger.Hash(m.Payload), string(key)
	m.CreatedAt = time.Now().UTC().Truncate(time.Millisecond)
	m.UpdatedAt, m.CallDeadline, m.NextReconcileAt, m.Doubted = m.CreatedAt, m.CreatedAt.Add(time.Second), time.Time{}, false
	if state != keep.Applied && state != keep.Failed {
		m.ResolvedBy = ""
	}
	if change != nil {
		change(&m)
	}
	w.other(m)
	w.service.mu.Lock()
	defer w.service.mu.Unlock()
	if state != keep.Failed {
		w.service.perform(m)
	}
	return m
}

// A call in doubt that sets something is not sent again once a later one may have set something else: a person is asked, who reads
// what that was. A later call that did not happen, one that set the same, and an earlier one do not matter (law: once).
func TestSettingIsNotUndone(t *testing.T) {
	for name, c := range map[string]struct {
		state  keep.MutationState
		text   string
		change func(*keep.Mutation)
		want   string // what is set in the end
	}{
		"applied":        {keep.Applied, "v2", nil, "v2"},
		"in doubt":       {keep.InFlight, "v2", nil, "v2"},
		"another subkey": {keep.Applied, "v2", func(m *keep.Mutation) { m.Subkey = "s" }, "v2"},
		"a former name":  {keep.Applied, "v2", func(m *keep.Mutation) { m.Tool = "hub.create" }, "v2"},
		"failed":         {keep.Failed, "v2", nil, "v1"},
		"the same":       {keep.Applied, "v1", nil, "v1"},
		"earlier":        {keep.Applied, "v0", func(m *keep.Mutation) { m.CreatedAt = m.CreatedAt.Add(-time.Minute); m.UpdatedAt = m.CreatedAt }, "v1"},
		"another thing":  {keep.Applied, "v2", func(m *keep.Mutation) { m.Identity = json.RawMessage(`{"id":"other"}`) }, "v1"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := settingWorld(t)
				later := w.sets("mut_later", c.state, c.text, c.change)
				w.service.onAskContext = nil
				w.run()
				w.run() // a restart changes nothing
				m, err := w.store.Mutation(t.Context(), w.runs()[0].Mutation)
				if err != nil {
					t.Fatal(err)
				}
				if got := w.service.set["file"]; got != c.want {
					t.Errorf("the service has %q, want %q", got, c.want)
				}
				if c.want == "v1" {
					if m.State != keep.Applied || len(w.questions()) != 0 {
						t.Errorf("the call is %s, questions %+v; want applied, none", m.State, w.questions())
					}
					return
				}
				qs := w.questions()
				if m.State != keep.Indeterminate || len(qs) != 1 || qs[0].Kind != keep.AskUnknownOutcome || w.service.asked != 0 {
					t.Fatalf("the call is %s after %d lookups, questions %+v; want indeterminate after none, one about its outcome", m.State, w.service.asked, qs)
				}
				for _, part := range []string{string(later.Key), later.CreatedAt.Format(time.DateTime), string(later.Run), string(later.Workflow), `"text":"v2"`, "was asked once"} {
					if !strings.Contains(qs[0].Why, part) {
						t.Errorf("the question does not say %q: %s", part, qs[0].Why)
					}
				}
				if effect := effectOf(qs[0], keep.CheckAgain); !strings.Contains(effect, "sends nothing") {
					t.Errorf("check-again says %q", effect)
				}
				if effect := effectOf(qs[0], keep.DidNotHappen); !strings.Contains(effect, "asks you once more") {
					t.Errorf("did-not-happen says %q", effect)
				}
			})
		})
	}
}

// Each answer does what it says. After "it didn't happen" the call is not sent over the later one before a person
// who sees that agrees.
func TestSettingAfterAnAnswer(t *testing.T) {
	for _, action := range []keep.Action{keep.DoAgain, keep.TreatAsDone, keep.Skip} {
		t.Run(string(action), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := settingWorld(t)
				later := w.sets("mut_later", keep.Applied, "v2", nil)
				w.service.onAskContext = nil
				w.run()
				if err := w.decide(keep.DidNotHappen); err != nil {
					t.Fatal(err)
				}
				w.run()
				w.run()
				qs := w.questions()
				if len(qs) != 1 || qs[0].Kind != keep.AskAlreadyDone || qs[0].Mutation != later.Key || w.service.calls != 1 || w.service.set["file"] != "v2" {
					t.Fatalf("questions %+v after %d calls, the service has %q; want already_done about the later call after 1, v2", qs, w.service.calls, w.service.set["file"])
				}
				if !strings.Contains(qs[0].Question, "later") || !strings.Contains(qs[0].Attempted, `"text":"v2"`) {
					t.Errorf("the question does not say what was set since: %+v", qs[0])
				}
				if err := w.decide(action); err != nil {
					t.Fatal(err)
				}
				w.run()
				w.run()
				want, calls := "v2", 1
				if action == keep.DoAgain {
					want, calls = "v1", 2
				}
				if w.service.set["file"] != want || w.service.calls != calls || len(w.questions()) != 0 {
					t.Errorf("the service has %q after %d calls, questions %+v; want %q after %d, none", w.service.set["file"], w.service.calls, w.questions(), want, calls)
				}
			})
		})
	}
}

// A person wants the call made again over the later one, and its answer is lost once more: that one is earlier now, and the
// call is asked about by sending it again.
func TestSettingAgainOverALaterOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := settingWorld(t)
		w.sets("mut_later", keep.Applied, "v2", nil)
		w.service.onAskContext = nil
		w.run()
		for _, action := range []keep.Action{keep.DidNotHappen, keep.DoAgain} {
			w.service.onCall = func(int) (bool, error) { return false, errReset }
			time.Sleep(time.Minute) // people are slow
			if err := w.decide(action); err != nil {
				t.Fatal(err)
			}
			w.run()
		}
		if m := w.newest(); m.State != keep.Applied || w.service.set["file"] != "v1" || w.service.asked != 1 {
			t.Errorf("the call is %s, the service has %q after %d lookups; want applied, v1, 1", m.State, w.service.set["file"], w.service.asked)
		}
	})
}

// The later call is recorded after this one was found to be alone, and before it is sent again: whichever is recorded first goes
// on. The other one is not sent, or waits until the first is not being sent any more.
func TestSettingInTheCommit(t *testing.T) {
	t.Run("the later one first", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w := settingWorld(t)
			w.service.onAskContext = nil
			w.onCommit = func(c keep.Commit, do func() error) error {
				if slices.ContainsFunc(c.Changes, func(change keep.Change) bool { _, sets := change.(keep.Setting); return sets }) {
					w.onCommit = nil
					w.sets("mut_later", keep.Applied, "v2", nil)
				}
				return do()
			}
			w.run()
			if w.service.set["file"] != "v2" || len(w.questions()) != 1 || w.service.asked != 0 {
				t.Errorf("the service has %q after %d lookups, questions %+v; want v2 after none, one", w.service.set["file"], w.service.asked, w.questions())
			}
		})
	})
	t.Run("the one in doubt first", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w := newSettingWorld(t)
			w.deploy()
			w.def.Name = "w2"
			w.deploy()
			e := w.engine()
			var order []string
			w.service.onCall = func(n int) (bool, error) {
				order = append(order, "call")
				if n == 1 {
					return false, errReset
				}
				return true, nil
			}
			w.service.onAskContext = func(context.Context, keep.Mutation) error { // it hangs, and arrives late
				w.publish("in", "b1")
				e.Wake("w2")
				time.Sleep(10 * time.Second)
				order = append(order, "again")
				return nil
			}
			w.def.Name = "w"
			w.publish("in", "a1")
			w.def.Name = "w2"
			if err := w.runEngine(e, time.Hour); err != nil {
				t.Fatal(err)
			}
			if want := []string{"call", "again", "call"}; !slices.Equal(order, want) || w.service.set["file"] != "b1" {
				t.Errorf("the service got %q and has %q, want %q and b1", order, w.service.set["file"], want)
			}
			if qs := w.questions(); len(qs) != 0 {
				t.Errorf("questions %+v, want none", qs)
			}
		})
	})
}

// A person, or an account that was connected, wants the service asked about a call at once that is being sent again at this moment: it
// is being asked, and a later call waits all the same until the first is not being sent any more.
func TestSettingIsAskedAboutSooner(t *testing.T) {
	lost := keep.Failf(keep.ClassPermission, keep.CodeReconnect, "the account mail must be connected again")
	lost.Account, lost.Generation = "mail", 3
	account := keep.Account{Kind: keep.AccountConnected, Name: "mail"}
	connected := account
	connected.Generation = 3
	for name, c := range map[string]struct {
		answer error // of the lookup before
		sooner func(t *testing.T, e *host, run keep.RunID) error
	}{
		"a person": {errors.New("no route to host"), func(t *testing.T, e *host, run keep.RunID) error {
			_, err := e.DoRun(t.Context(), run, keep.Decision{Action: keep.Retry, By: "ann", From: "test"}, false)
			return err
		}},
		"an account": {lost, func(t *testing.T, e *host, _ keep.RunID) error {
			return e.SettleAccounts(t.Context(), having(law.Connect(connected, account, time.Now())))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := settingWorld(t)
				w.service.onAskContext = func(context.Context, keep.Mutation) error { return c.answer }
				_ = w.runFor(time.Minute)
				run := w.lastRun().ID
				w.def.Name = "w2"
				w.deploy()
				e := w.engine()
				w.service.onAskContext = func(context.Context, keep.Mutation) error { // it hangs, and arrives late
					w.service.onAskContext = nil
					if err := c.sooner(t, e, run); err != nil {
						t.Error(err)
					}
					w.publish("in", "v2")
					e.Wake("w2")
					time.Sleep(10 * time.Second)
					return nil
				}
				if err := w.runEngine(e, 24*time.Hour); err != nil {
					t.Fatal(err)
				}
				if qs := w.questions(); w.service.set["file"] != "v2" || len(qs) != 0 {
					t.Errorf("the service has %q, questions %+v; want v2, none", w.service.set["file"], qs)
				}
			})
		})
	}
}

// The call in doubt is recorded to be sent again after the later one looked, and before that is recorded: it is not, until the other may not be
// sent any more.
func TestSettingIsRecordedBesideOneThatIsSentAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := settingWorld(t)
		doubt, err := w.store.Mutation(t.Context(), w.mutation().Key)
		if err != nil {
			t.Fatal(err)
		}
		w.def.Name = "w2"
		w.deploy()
		w.publish("in", "v2")
		var until, called time.Time
		w.onCommit = func(c keep.Commit, do func() error) error {
			for _, change := range c.Changes {
				if put, ok := change.(keep.PutMutation); ok && put.Mutation.Workflow == "w2" && until.IsZero() {
					until = time.Now().Add(20 * time.Second).UTC().Truncate(time.Millisecond)
					again := ledger.SendAgain(doubt, until, time.Now())
					if err := w.store.Commit(t.Context(), keep.Commit{Workflow: "w", At: time.Now(), Changes: []keep.Change{keep.PutMutation{Mutation: again}}}); err != nil {
						t.Error(err)
					}
				}
			}
			return do()
		}
		w.service.onCallContext = func(context.Context) error { called = time.Now(); return nil }
		if err := w.store.Commit(t.Context(), keep.Commit{Workflow: "w", At: time.Now(), Changes: []keep.Change{keep.SetPaused{Paused: true}}}); err != nil {
			t.Fatal(err)
		}
		_ = w.runFor(time.Hour)
		if m := w.newest(); m.State != keep.Applied || called.Before(until) || until.IsZero() {
			t.Errorf("the later call is %s, and was sent at %s; want applied, not before %s", m.State, called, until)
		}
	})
}

// While a call is sent again the ledger says so, and has the whole history of its record: the host may die at any moment.
func TestSettingIsOnRecordWhileItIsSentAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.service.level, w.service.sets, w.service.keyLasts = keep.LevelKey, true, time.Hour
		w.service.onCall = lose(1, false)
		n := 0
		w.service.onAskContext = func(ctx context.Context, m keep.Mutation) error {
			w.check()
			stored, err := w.store.Mutation(t.Context(), m.Key)
			ends, limited := ctx.Deadline()
			if err != nil || !limited || ends.After(stored.SentAgainUntil()) {
				t.Errorf("it is sent again until %s, and on record until %s, %v", ends, stored.SentAgainUntil(), err)
			}
			if n++; n == 1 {
				return errors.New("no route to host")
			}
			return nil
		}
		w.deploy()
		w.publish("in", "a")
		w.run()
		if m := w.mutation(); m.State != keep.Applied || n != 2 || !m.SentAgainUntil().IsZero() {
			t.Errorf("the call is %s after %d lookups, want applied after 2", m.State, n)
		}
	})
}

// The host dies while it sends a call again: until that may not arrive any more, a later one waits, and then the first is not sent again.
func TestSettingAfterAHostDiedSendingAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := settingWorld(t)
		stored := w.mutation()
		until := time.Now().Add(20 * time.Second).UTC().Truncate(time.Millisecond)
		stored, err := w.store.Mutation(t.Context(), stored.Key)
		if err != nil {
			t.Fatal(err)
		}
		again := ledger.SendAgain(stored, until, time.Now())
		if err := w.store.Commit(t.Context(), keep.Commit{Workflow: "w", At: time.Now(), Changes: []keep.Change{keep.PutMutation{Mutation: again}}}); err != nil {
			t.Fatal(err)
		}
		asked := time.Time{}
		w.service.onAskContext = func(context.Context, keep.Mutation) error { asked = time.Now(); return nil }
		w.run()
		if m := w.mutation(); m.State != keep.Applied || asked.Before(until) {
			t.Errorf("the call is %s, and was sent again at %s; want applied, and not before %s", m.State, asked, until)
		}
	})
}

// A call is to be sent again on a person's word, and the clock is set back before it is: a later one, which the clock would take for an
// earlier one, waits until it is not. Then the first one is not sent over it without a word (law: once).
func TestSettingAfterTheClockWasSetBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := settingWorld(t)
		w.run()
		pause := func(on bool) {
			if err := w.store.Commit(t.Context(), keep.Commit{Workflow: "w", At: time.Now(), Changes: []keep.Change{keep.SetPaused{Paused: on}}}); err != nil {
				t.Fatal(err)
			}
		}
		pause(true)
		if err := w.decide(keep.DidNotHappen); err != nil {
			t.Fatal(err)
		}
		back := func() time.Time { return time.Now().Add(-time.Hour) }
		w.clock = back
		w.def.Name = "w2"
		w.deploy()
		w.publish("in", "v2")
		_ = w.runFor(10 * time.Minute)
		if now := w.service.set["file"]; now != "" {
			t.Errorf("the service has %q while the later call would be recorded as an earlier one", now)
		}
		pause(false)
		_ = w.runFor(3 * time.Hour)
		if qs := w.questions(); len(qs) != 1 || qs[0].Kind != keep.AskAlreadyDone || w.service.set["file"] != "v2" || w.service.calls != 2 {
			t.Errorf("the service has %q after %d calls, questions %+v; want v2 after 2, already_done", w.service.set["file"], w.service.calls, qs)
		}
	})
}

// A detached doubt, of an item, is not sent again either.
func TestSettingOfAnItem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newJobWorld(t)
		w.service.level, w.service.sets, w.service.keyLasts = keep.LevelKey, true, time.Hour
		w.script["jobs.remind"] = func(c *call) any {
			for _, id := range []string{"a", "b"} {
				c.withItem(id, func(c *call, done bool) {
					if !done {
						c.do("svc.create", map[string]any{"id": "file", "text": id})
					}
				})
			}
			return nil
		}
		w.service.onCall = func(n int) (bool, error) {
			if n == 1 {
				return false, errReset
			}
			return true, nil
		}
		n := 0
		w.service.onAskContext = func(context.Context, keep.Mutation) error {
			if n++; n < 3 {
				return errors.New("no route to host")
			}
			return nil
		}
		w.policy.OnItemBlocked = policy.Continue
		w.deploy()
		w.run()
		w.run()
		if items := w.items(); items["b"] != keep.ItemDone || w.service.set["file"] != "b" || len(w.questions()) != 1 {
			t.Errorf("items %v, the service has %q, questions %+v; want b done, b, one about a", items, w.service.set["file"], w.questions())
		}
	})
}

package engine_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector"
	"github.com/keep-run/keep/law/account"
)

// sendAs gives the connection of w a secret, as it is now. While an engine runs, mu of the service protects it.
func sendAs(w *world, secret *string) {
	w.connect = func() []connector.Connection {
		c := w.service.connection()
		c.Sender = func(_ context.Context, mac func(string) string) (map[string]string, error) {
			w.service.mu.Lock()
			defer w.service.mu.Unlock()
			return map[string]string{keep.SecretRef("bank"): mac(*secret)}, nil
		}
		return []connector.Connection{c}
	}
}

// Law: bound-to-its-world. After a doubt, nothing is sent again and no absence counts with credentials that
// may be another user's, until a person has said whose they are: once, for all calls.
func TestDoubtUnderAnotherUser(t *testing.T) {
	for _, level := range []keep.Level{keep.LevelKey, keep.LevelWitness} {
		for _, answer := range []keep.Action{keep.Approve, keep.Reject} {
			synctest.Test(t, func(t *testing.T) {
				w, secret := newWorld(t), "of ann"
				w.service.level = level
				w.service.onCall = func(n int) (bool, error) {
					if n == 1 {
						return false, errors.New("connection reset")
					}
					return true, nil
				}
				w.service.onAsk = func(int) (connector.Verdict, error) { return "", errors.New("down") }
				sendAs(w, &secret)
				w.deploy()
				w.publish("in", "a")
				w.runUntil(time.Second)
				m := w.mutation()
				if m.State != keep.NeedsReconcile || len(m.SentAs().As) != 1 || strings.Contains(string(m.Pin), secret) {
					t.Fatalf("the record is %s, pinned as %s", m.State, m.Pin)
				}
				w.service.onAsk, secret = func(int) (connector.Verdict, error) { return connector.Absent, nil }, "of bob"
				w.runUntil(time.Hour)
				asked := w.service.asked
				qs := w.questions()
				if len(qs) != 1 || qs[0].Kind != keep.AskPermission || qs[0].Run != "" || w.service.calls != 1 {
					t.Fatalf("%s: %d calls, questions %+v; want one, about whose the secret is", level, w.service.calls, qs)
				}
				if err := w.decide(answer); err != nil {
					t.Fatal(err)
				}
				w.run()
				m, qs = w.mutation(), w.questions()
				switch {
				case answer == keep.Approve && (m.State != keep.Applied && w.service.calls < 2 || len(qs) != 0):
					t.Errorf("%s: the same user: the record is %s after %d calls, questions %+v", level, m.State, w.service.calls, qs)
				case answer == keep.Reject && (m.State != keep.Indeterminate || w.service.calls != 1 || len(qs) != 1 || qs[0].Kind != keep.AskUnknownOutcome):
					t.Errorf("%s: another user: the record is %s after %d calls, questions %+v", level, m.State, w.service.calls, qs)
				case level == keep.LevelKey && answer == keep.Reject && w.service.asked != asked:
					t.Errorf("it was sent again")
				case answer == keep.Reject:
					if not, again := effectOf(qs[0], keep.DidNotHappen), effectOf(qs[0], keep.CheckAgain); !strings.Contains(not, "happens twice") || !strings.Contains(again, "sends nothing") {
						t.Errorf("%s: another user: the answers do %q, %q", level, not, again)
					}
				}
			})
		}
	}
}

// A question about the user is withdrawn when no call waits for its answer, which says nothing of the user: a call that
// waits later asks anew.
func TestUserQuestionIsWithdrawn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, secret := newWorld(t), "of ann"
		w.service.level = keep.LevelWitness
		w.service.onCall = func(int) (bool, error) { return true, errors.New("connection reset") }
		down := func(int) (connector.Verdict, error) { return "", errors.New("down") }
		absent := func(int) (connector.Verdict, error) { return connector.Absent, nil }
		sendAs(w, &secret)
		w.deploy()
		var asked []keep.EscalationID
		for _, id := range []string{"a", "b"} {
			secret, w.service.onAsk = "of ann", down
			w.publish("in", id)
			w.runUntil(time.Second)
			secret, w.service.onAsk = "of bob", absent
			w.runUntil(time.Hour)
			h := w.engine()
			if err := h.SettleUsers(t.Context()); err != nil {
				t.Fatal(err)
			}
			qs := w.questions()
			if len(qs) != 1 || !account.IsUserQuestion(qs[0]) || slices.Contains(asked, qs[0].ID) {
				t.Fatalf("%s: questions %+v, want one about the user, which is none of %q", id, qs, asked)
			}
			asked = append(asked, qs[0].ID)
			w.service.onAsk = nil // it shows the effect, whoever asks
			w.run()
			if err := h.SettleUsers(t.Context()); err != nil {
				t.Fatal(err)
			}
			if qs := w.questions(); len(qs) != 0 {
				t.Errorf("%s: questions %+v, want none", id, qs)
			}
		}
		if n := w.service.total(); n != 2 {
			t.Errorf("%d effects, want 2", n)
		}
	})
}

// An answer that is given while a lookup is out is taken by the next one.
func TestSameUserSaidDuringALookup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, secret := newWorld(t), "of ann"
		w.service.level = keep.LevelWitness
		w.service.onCall = func(n int) (bool, error) {
			if n == 1 {
				return false, errors.New("connection reset")
			}
			return true, nil
		}
		w.service.onAsk = func(int) (connector.Verdict, error) { return "", errors.New("down") }
		sendAs(w, &secret)
		w.deploy()
		w.publish("in", "a")
		w.runUntil(time.Second)
		secret = "of ann, renewed"
		w.service.onAsk = func(int) (connector.Verdict, error) {
			if qs := w.questions(); len(qs) == 1 {
				if err := w.decide(keep.Approve); err != nil {
					t.Error(err)
				}
			}
			return connector.Absent, nil
		}
		w.runUntil(time.Hour)
		if m, qs := w.mutation(), w.questions(); m.State != keep.Applied || w.service.calls != 2 || len(qs) != 0 {
			t.Errorf("the record is %s after %d calls, questions %+v; want applied after two", m.State, w.service.calls, qs)
		}
	})
}

// effectOf returns what a question says of one of its answers.
func effectOf(q keep.Escalation, a keep.Action) string {
	for _, c := range q.Choices {
		if c.Action == a {
			return c.Effect
		}
	}
	return ""
}

// Law: bound-to-its-world. Who says that a call did not happen may be wrong, and another user's key is another
// one: what goes out with credentials that may be another user's, a person sees first, and those alone.
func TestDidNotHappenUnderAnotherUser(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, secret := newWorld(t), "of ann"
		w.service.level = keep.LevelKey
		w.service.onCall = func(n int) (bool, error) { return true, map[bool]error{true: errReset}[n == 1] }
		w.service.onAsk = func(int) (connector.Verdict, error) {
			return "", keep.Failf(keep.ClassPermission, keep.CodeForbidden, "the service answered 403 Forbidden")
		}
		sendAs(w, &secret)
		w.deploy()
		w.publish("in", "a")
		w.run()
		if m := w.mutation(); m.State != keep.Indeterminate {
			t.Fatalf("the record is %s", m.State)
		}
		secret = "of bob"
		if err := w.decide(keep.DidNotHappen); err != nil {
			t.Fatal(err)
		}
		for _, next := range []string{"of carol", ""} {
			w.run()
			qs := w.questions()
			if len(qs) != 1 || qs[0].Kind != keep.AskApproval || !strings.Contains(qs[0].Why, "the secret bank was replaced since") || w.service.calls != 1 {
				t.Fatalf("as %s: %d calls, questions %+v; want one call, and a question about the secret", secret, w.service.calls, qs)
			}
			if err := w.decide(keep.Approve); err != nil {
				t.Fatal(err)
			}
			if next != "" {
				secret = next
			}
		}
		w.run()
		if m, qs := w.mutation(), w.questions(); m.State != keep.Applied || w.service.calls != 2 || len(qs) != 0 {
			t.Errorf("the record is %s after %d calls, questions %+v; want applied after two", m.State, w.service.calls, qs)
		}
	})
}

// What was agreed to for some credentials is not sent with others: the call is admitted anew.
func TestCredentialsChangeWhileACallWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, asked := newWorld(t), 0
		w.connect = func() []connector.Connection {
			c := w.service.connection()
			c.Sender = func(context.Context, func(string) string) (map[string]string, error) {
				if asked++; asked == 1 {
					return map[string]string{keep.AccountRef("shop"): ""}, nil
				}
				return map[string]string{keep.AccountRef("shop"): "ann"}, nil
			}
			return []connector.Connection{c}
		}
		w.deploy()
		w.publish("in", "a")
		w.run()
		if m := w.mutation(); w.service.calls != 1 || m.SentAs().As[keep.AccountRef("shop")] != "ann" || len(w.runs()) != 2 {
			t.Errorf("%d calls in %d runs, recorded as %v; want one as ann, in the second run", w.service.calls, len(w.runs()), m.SentAs().As)
		}
	})
}

// An absence that another user was shown early counts at no time, whichever reading of the clock is the first
// one after the effect would have settled.
func TestEarlyAbsenceOfAnotherUser(t *testing.T) {
	for early := range 5 {
		synctest.Test(t, func(t *testing.T) {
			w, secret, left := newWorld(t), "of ann", -1
			var mu sync.Mutex
			w.clock = func() time.Time {
				mu.Lock()
				defer mu.Unlock()
				switch {
				case left < 0:
					return time.Now()
				case left > 0:
					left--
					return time.Now()
				}
				return time.Now().Add(time.Minute)
			}
			w.service.onCall = func(n int) (bool, error) { return true, map[bool]error{true: errReset}[n == 1] }
			w.service.onAsk = func(n int) (connector.Verdict, error) {
				if n == 1 {
					secret = "of bob"
					return "", errReset
				}
				mu.Lock()
				defer mu.Unlock()
				if left < 0 {
					left = early
				}
				return connector.Absent, nil
			}
			sendAs(w, &secret)
			w.deploy()
			w.publish("in", "a")
			w.runUntil(time.Hour)
			if qs := w.questions(); len(qs) != 1 || qs[0].Kind != keep.AskPermission || w.service.calls != 1 {
				t.Errorf("%d readings: %d calls, questions %+v; want one call, and a question about the user", early, w.service.calls, qs)
			}
		})
	}
}

// What a lookup finds by its target, with another user's credentials, may be that user's own: it is no effect of
// a call, and so not of one that is out.
func TestAnotherUsersTargetWhileACallIsOut(t *testing.T) {
	for _, target := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			w, secret := newWorld(t), "of ann"
			w.service.target = target
			w.deaf(time.Hour, func() error { return nil })
			w.service.onAsk = func(int) (connector.Verdict, error) { return connector.Happened, nil }
			sendAs(w, &secret)
			w.deploy()
			w.publish("in", "a")
			time.AfterFunc(time.Second, func() {
				w.service.mu.Lock()
				defer w.service.mu.Unlock()
				secret = "of bob"
			})
			w.run()
			want := map[bool]string{true: "call", false: "reconcile"}[target]
			if m := w.mutation(); m.State != keep.Applied || m.ResolvedBy != want {
				t.Errorf("by target %t: the record is %s by %q, want applied by %q", target, m.State, m.ResolvedBy, want)
			}
		})
	}
}

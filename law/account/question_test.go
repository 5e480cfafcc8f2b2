package account

import (
	"testing"
	"time"

	"github.com/keep-run/keep"
)

func TestNeedsPerson(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*keep.Account)
		want   bool
	}{
		"works":              {func(*keep.Account) {}, false},
		"needs reconnect":    {func(a *keep.Account) { a.Status = keep.AccountNeedsReconnect }, true},
		"revoked":            {func(a *keep.Account) { a.Status = keep.AccountRevoked }, false},
		"ends, renews":       {func(a *keep.Account) { a.ExpiresAt = t0.Add(time.Minute) }, false},
		"ends soon":          {func(a *keep.Account) { a.Renews, a.ExpiresAt = false, t0.Add(Notice) }, true},
		"ended":              {func(a *keep.Account) { a.Renews, a.ExpiresAt = false, t0.Add(-time.Hour) }, true},
		"ends later":         {func(a *keep.Account) { a.Renews, a.ExpiresAt = false, t0.Add(Notice+time.Second) }, false},
		"a secret, no login": {func(a *keep.Account) { a.Kind, a.Status = keep.AccountSecret, keep.AccountNeedsReconnect }, false},
	} {
		a := hour()
		c.change(&a)
		if got := NeedsPerson(a, t0); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

// Each credential of an account has a question of its own, so that the next one is asked about.
func TestQuestionID(t *testing.T) {
	a := hour()
	seen := map[keep.EscalationID]bool{QuestionID(a): true}
	a.Refreshes = []keep.Refresh{{Generation: a.Generation, State: keep.RefreshSent, Host: "h"}}
	next, _ := Done(a, "h", a.Generation, Tokens{Sealed: []byte{2}}, t0)
	first := Connect(keep.Account{}, a, t0.Add(time.Hour)) // after it was deleted
	for _, b := range []keep.Account{next, Connect(a, a, t0), Revoke(a), first} {
		if id := QuestionID(b); seen[id] {
			t.Errorf("two questions have the id %s", id)
		}
	}
	if lost := NeedsReconnect(a, "lost"); !seen[QuestionID(lost)] {
		t.Error("another question about the same credential")
	}
	if Question(a, t0).Kind != keep.AskReconnect || Question(a, t0).Workflow != "" {
		t.Errorf("%+v", Question(a, t0))
	}
}

// The id of a question names its account, whatever that is called.
func TestAsked(t *testing.T) {
	for _, name := range []string{"mail", "work-mail", "a_b_1_2", "_", "esc_reconnect_x"} {
		if got := Asked(QuestionID(keep.Account{Name: name, Generation: 7, ConnectedAt: time.Unix(1, 0)})); got != name {
			t.Errorf("the question about %s is about %q", name, got)
		}
	}
	for _, id := range []keep.EscalationID{"", "esc_36aagtdmsnzqbd7rejge7z5zdv", "esc_reconnect_", "esc_reconnect_1"} {
		if got := Asked(id); got != "" {
			t.Errorf("%s is about %q", id, got)
		}
	}
}

func TestContinues(t *testing.T) {
	f := &keep.Failure{Account: "mail", Generation: 3}
	for name, c := range map[string]struct {
		a    keep.Account
		want bool
	}{"as it was": {hour(), false}, "needs reconnect": {NeedsReconnect(hour(), "x"), false}, "connected": {Connect(hour(), hour(), t0), true},
		"revoked": {Revoke(hour()), true}, "gone": {keep.Account{}, true}} {
		if Continues(f, c.a) != c.want {
			t.Errorf("%s: want %t", name, c.want)
		}
	}
	if Continues(&keep.Failure{Account: "mail"}, keep.Account{}) || Continues(&keep.Failure{Generation: 3}, keep.Account{}) || Continues(nil, keep.Account{}) {
		t.Error("a run continues that waits for an account which still is not there, or for none")
	}
}

// What comes from a backup is tried once more, whatever was on the way when it was made.
func TestRestored(t *testing.T) {
	for _, before := range [][]keep.RefreshState{nil, {keep.RefreshSent}, {keep.RefreshLost}, {keep.RefreshRefused}, {keep.RefreshUnsent}} {
		a := hour()
		for _, s := range before {
			a.Refreshes = append(a.Refreshes, keep.Refresh{Generation: 3, State: s, Host: "other", SentAt: t0})
		}
		a, _ = Restored(a, t0)
		a, changed := Restored(a, t0.Add(time.Second)) // a second time
		if changed {
			t.Errorf("%v: restored twice differs", before)
		}
		now := t0.Add(time.Minute)
		if step, _ := Next(a, true, now); step != Send || a.LeaseHost != "" {
			t.Errorf("%v: %s, lease of %q", before, step, a.LeaseHost)
		}
		if due := DueAt(a); due.After(now) && len(before) == 0 {
			t.Errorf("%v: due at %s", before, due)
		}
		a.LeaseHost = "h"
		if a, err := Begin(a, "h", true, now); err != nil {
			t.Errorf("%v: %v", before, err)
		} else if a, _ = Failed(a, "h", 3, keep.RefreshRefused, "used up", now); a.Status != keep.AccountNeedsReconnect {
			t.Errorf("%v: after a refusal it is %s", before, a.Status)
		}
	}
	for name, change := range map[string]func(*keep.Account){"nothing renews": func(a *keep.Account) { a.Renews = false },
		"revoked": func(a *keep.Account) { a.Status = keep.AccountRevoked }} {
		a := hour()
		change(&a)
		if _, changed := Restored(a, t0); changed {
			t.Errorf("%s: changed", name)
		}
	}
}

package account

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/keep-run/keep"
)

var t0 = time.Date(2026, 5, 4, 3, 2, 1, 0, time.UTC)

// hour returns an account with tokens of an hour that were made at t0.
func hour() keep.Account {
	return keep.Account{Kind: keep.AccountConnected, Name: "mail", Generation: 3, Renews: true, Status: keep.AccountOK,
		ExpiresAt: t0.Add(time.Hour), Lifetime: time.Hour, LeaseHost: "h", Sealed: []byte{1}, Rev: 1}
}

func TestDueAt(t *testing.T) {
	for _, c := range []struct {
		name     string
		lifetime time.Duration
		want     time.Duration // before the end
	}{{"an hour: a fifth is less than 15 minutes", time.Hour, 12 * time.Minute}, {"a day: 15 minutes", 24 * time.Hour, 15 * time.Minute},
		{"a minute: a fifth", time.Minute, 12 * time.Second}, {"a lifetime that nobody said: 15 minutes", 0, 15 * time.Minute}} {
		a := hour()
		a.Lifetime = c.lifetime
		if got := a.ExpiresAt.Sub(DueAt(a)); got != c.want {
			t.Errorf("%s: due %s before the end, want %s", c.name, got, c.want)
		}
	}
	for name, change := range map[string]func(*keep.Account){
		"no end": func(a *keep.Account) { a.ExpiresAt = time.Time{} }, "nothing renews": func(a *keep.Account) { a.Renews = false },
		"reconnect": func(a *keep.Account) { a.Status = keep.AccountNeedsReconnect }} {
		a := hour()
		change(&a)
		if at := DueAt(a); !at.IsZero() {
			t.Errorf("%s: due at %s", name, at)
		}
	}
}

// Each line is what became of the requests of one generation, and what follows.
func TestNext(t *testing.T) {
	now := t0.Add(50 * time.Minute)
	for _, c := range []struct {
		before []keep.RefreshState
		want   Step
	}{
		{nil, Send},
		{[]keep.RefreshState{keep.RefreshSent}, Send}, // its host is gone
		{[]keep.RefreshState{keep.RefreshLost}, Send}, // the old token once more
		{[]keep.RefreshState{keep.RefreshUnsent, keep.RefreshUnsent, keep.RefreshUnsent}, Send},
		{[]keep.RefreshState{keep.RefreshRefused}, Send},
		{[]keep.RefreshState{keep.RefreshLost, keep.RefreshRefused}, Ask},
		{[]keep.RefreshState{keep.RefreshLost, keep.RefreshLost}, Send},
		{[]keep.RefreshState{keep.RefreshLost, keep.RefreshSent}, Send},
		{[]keep.RefreshState{keep.RefreshRefused, keep.RefreshRefused}, Ask},
		{[]keep.RefreshState{keep.RefreshRefused, keep.RefreshSent}, Send},
		{[]keep.RefreshState{keep.RefreshRefused, keep.RefreshLost, keep.RefreshRefused}, Ask},
		{[]keep.RefreshState{keep.RefreshUnsent, keep.RefreshLost, keep.RefreshUnsent}, Send},
	} {
		a := hour()
		for _, s := range c.before {
			a.Refreshes = append(a.Refreshes, keep.Refresh{Generation: 3, State: s, Host: "other", SentAt: t0, EndedAt: t0})
		}
		a.Refreshes = append(a.Refreshes, keep.Refresh{Generation: 2, State: keep.RefreshRefused}, keep.Refresh{Generation: 2, State: keep.RefreshRefused})
		if got, _ := Next(a, false, now); got != c.want {
			t.Errorf("after %v: %s, want %s", c.before, got, c.want)
		}
	}
	a := hour()
	if step, until := Next(a, false, t0); step != Wait || until != DueAt(a) {
		t.Errorf("early: %s until %s", step, until)
	}
	if step, _ := Next(a, true, t0); step != Send {
		t.Errorf("early and forced: %s", step)
	}
	b, err := Begin(a, "h", true, now)
	b, lost := Failed(b, "h", 3, keep.RefreshLost, "HTTP 503", now)
	if step, until := Next(b, true, now.Add(9*time.Second)); err != nil || !lost || step != Wait || until != now.Add(10*time.Second) || DueAt(b) != until {
		t.Errorf("just lost: %s until %s, due %s, %v", step, until, DueAt(b), err)
	}
	if step, _ := Next(WithoutPauses(b), true, now); step != Send || b.Refreshes[0].NextAt.IsZero() {
		t.Errorf("just lost, and a person asks: %s", step)
	}
	if step, _ := Next(b, false, now.Add(10*time.Second)); step != Send {
		t.Errorf("lost a while ago: %s", step)
	}
	if !Usable(b, now) || Due(b, now) || !Due(b, now.Add(10*time.Second)) {
		t.Error("what can be used is due before the one more request may follow, or not then")
	}
	if b.ExpiresAt = now; !Due(b, now) {
		t.Error("what cannot be used is not due while the one more request waits")
	}
	a.Refreshes = []keep.Refresh{{Generation: 3, State: keep.RefreshRefused, EndedAt: now}}
	if step, until := Next(a, true, now); step != Wait || until != now.Add(5*time.Second) {
		t.Errorf("just refused: %s until %s", step, until)
	}
}

// After each lost answer the next request waits twice as long, up to half an hour, and after a day a person is asked. The first
// one that was lost is remembered.
func TestLostForADay(t *testing.T) {
	a, now := hour(), t0.Add(50*time.Minute)
	var waits []time.Duration
	for a.Status == keep.AccountOK {
		a.LeaseHost = "h"
		b, err := Begin(a, "h", false, now)
		if err != nil {
			t.Fatal(err)
		}
		a, _ = Failed(b, "h", 3, keep.RefreshLost, "HTTP 503", now)
		if since, _ := Failing(a); a.Status == keep.AccountOK && !since.Equal(t0.Add(50*time.Minute)) || len(a.Refreshes) > remembered+1 {
			t.Fatalf("failing since %s, %d requests are remembered", since, len(a.Refreshes))
		}
		if asks := now.Sub(t0.Add(50*time.Minute)) >= noticeOutage; asks != NeedsPerson(a, now) {
			t.Fatalf("after %s a person is asked: %t", now.Sub(t0), !asks)
		} else if text := Question(a, now).Question; asks && a.Status == keep.AccountOK && !strings.Contains(text, "cannot be renewed since 2026-05-04T03:52:01Z") {
			t.Fatalf("the question is %s", text)
		}
		next := DueAt(a)
		if a.Status == keep.AccountOK {
			waits = append(waits, next.Sub(now))
		}
		now = next
	}
	want := []time.Duration{10 * time.Second, 20 * time.Second, 40 * time.Second, 80 * time.Second, 160 * time.Second, 320 * time.Second, 640 * time.Second, 1280 * time.Second, 30 * time.Minute, 30 * time.Minute}
	if len(waits) < 50 || len(waits) > 60 || !slices.Equal(waits[:len(want)], want) || slices.Max(waits) != 30*time.Minute || a.Error != "HTTP 503" {
		t.Errorf("%d requests, with pauses of %v; then: %s", len(waits)+1, waits, a.Error)
	}
}

// The one more request waits for the latest of all pauses, but not for what a clock that was ahead recorded.
func TestPauses(t *testing.T) {
	now := t0.Add(50 * time.Minute)
	lost := keep.Refresh{Generation: 3, State: keep.RefreshLost, EndedAt: now.Add(-time.Hour), NextAt: now.Add(-time.Hour)}
	refused := keep.Refresh{Generation: 3, State: keep.RefreshRefused, EndedAt: now.Add(-time.Hour)}
	unsent := keep.Refresh{Generation: 3, State: keep.RefreshUnsent, EndedAt: now}
	ahead := keep.Refresh{Generation: 3, State: keep.RefreshLost, EndedAt: now.Add(time.Hour), NextAt: now.Add(time.Hour)}
	for _, c := range []struct {
		name   string
		before []keep.Refresh
		want   Step
		wait   time.Duration
	}{
		{"lost, then unsent", []keep.Refresh{lost, unsent}, Wait, 30 * time.Second},
		{"refused, then unsent", []keep.Refresh{refused, unsent}, Wait, 30 * time.Second},
		{"unsent, then just lost", []keep.Refresh{{Generation: 3, State: keep.RefreshUnsent, EndedAt: now.Add(-25 * time.Second)},
			{Generation: 3, State: keep.RefreshLost, EndedAt: now, NextAt: now.Add(10 * time.Second)}}, Wait, 10 * time.Second},
		{"lost by a clock that was ahead", []keep.Refresh{ahead}, Send, 0},
		{"lost by a clock that was ahead, then unsent", []keep.Refresh{ahead, unsent}, Wait, 30 * time.Second},
	} {
		a := hour()
		a.Refreshes = c.before
		for _, force := range []bool{true, false} {
			if step, until := Next(a, force, now); step != c.want || step == Wait && until != now.Add(c.wait) {
				t.Errorf("%s: %s until %s, want %s for %s", c.name, step, until, c.want, c.wait)
			}
		}
	}
}

func TestBegin(t *testing.T) {
	now := t0.Add(50 * time.Minute)
	a := hour()
	if _, err := Begin(a, "other", false, now); !errors.Is(err, ErrNotAllowed) {
		t.Errorf("without the lease: %v", err)
	}
	a, err := Begin(a, "h", false, now)
	if err != nil {
		t.Fatal(err)
	}
	b, err := Begin(a, "h", false, now)
	if err != nil || b.Refreshes[0].State != keep.RefreshLost || b.Refreshes[1].State != keep.RefreshSent || a.Refreshes[0].State != keep.RefreshSent {
		t.Errorf("after a request whose host is gone: %v, %v", b.Refreshes, err)
	}
	if _, err := Begin(b, "h", true, now.Add(19*time.Second)); !errors.Is(err, ErrNotAllowed) {
		t.Errorf("a third request at once: %v", err)
	}
}

func TestAnswers(t *testing.T) {
	now := t0.Add(50 * time.Minute)
	a, err := Begin(hour(), "h", false, now)
	if err != nil {
		t.Fatal(err)
	}
	fresh := Tokens{ExpiresAt: now.Add(time.Hour), Lifetime: time.Hour, Renews: true, Sealed: []byte{2}}
	done, ok := Done(a, "h", 3, fresh, now)
	if !ok || done.Generation != 4 || done.LeaseHost != "" || done.Refreshes[0].State != keep.RefreshDone || !slices.Equal(done.Sealed, fresh.Sealed) {
		t.Errorf("done: %+v", done)
	}
	if late, ok := Done(done, "other", 3, Tokens{Sealed: []byte{9}}, now); ok || late.Generation != 4 {
		t.Error("an answer for an older generation was taken")
	}
	// A person connects while the answer is out.
	moved := Connect(a, keep.Account{Kind: a.Kind, Name: a.Name, Renews: true, Sealed: []byte{3}}, now)
	if late, ok := Done(moved, "h", 3, fresh, now); ok || late.Generation != 4 || !slices.Equal(late.Sealed, moved.Sealed) {
		t.Errorf("an answer to what was sent before a person connected was taken: %+v", late)
	}
	lost, _ := Failed(a, "h", 3, keep.RefreshLost, "no answer", now)
	if lost.Status != keep.AccountOK || lost.Refreshes[0].State != keep.RefreshLost {
		t.Errorf("lost once: %+v", lost)
	}
	lost.LeaseHost = "h2"
	again, err := Begin(lost, "h2", false, now.Add(10*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	refused, _ := Failed(again, "h2", 3, keep.RefreshRefused, "invalid_grant", now)
	if refused.Status != keep.AccountNeedsReconnect || refused.Error != "invalid_grant" {
		t.Errorf("refused after a lost one: %+v", refused)
	}
	back := Connect(refused, keep.Account{Kind: a.Kind, Name: a.Name, Renews: true, Sealed: []byte{3}}, now)
	if back.Status != keep.AccountOK || back.Generation != 4 || back.Rev != refused.Rev {
		t.Errorf("connected anew: %+v", back)
	}
	if step, _ := Next(back, true, now); step != Send {
		t.Errorf("after connecting anew: %s", step)
	}
	if r := Revoke(back); r.Sealed != nil || r.Status != keep.AccountRevoked || Usable(r, now) {
		t.Errorf("revoked: %+v", r)
	}
}

// However requests end, none of a generation follows a refusal that was not the first answer, nor the end of a day
// of lost answers, and after the second that was lost they are apart. So they are few.
func TestRequestsOfAGeneration(t *testing.T) {
	type spent struct {
		n, lost     int
		first, last time.Time
		over        bool
	}
	rapid.Check(t, func(t *rapid.T) {
		a, now := hour(), t0.Add(50*time.Minute)
		all := map[int64]*spent{}
		for range rapid.IntRange(1, 200).Draw(t, "steps") {
			now = now.Add(time.Duration(rapid.OneOf(rapid.IntRange(0, 30), rapid.IntRange(0, 4000)).Draw(t, "seconds")) * time.Second)
			host := rapid.SampledFrom([]string{"h1", "h2", "h3"}).Draw(t, "host")
			a.LeaseHost = host
			begun, err := Begin(a, host, rapid.Bool().Draw(t, "force"), now)
			if err != nil {
				continue
			}
			a = begun
			state := rapid.SampledFrom([]keep.RefreshState{keep.RefreshSent, keep.RefreshLost, keep.RefreshLost, keep.RefreshLost, keep.RefreshDone, keep.RefreshRefused, keep.RefreshUnsent}).Draw(t, "state")
			s := all[a.Generation]
			if s == nil {
				s = &spent{first: now}
				all[a.Generation] = s
			}
			switch {
			case s.over:
				t.Fatalf("generation %d is sent once more after %d requests", a.Generation, s.n)
			case s.lost >= 2 && now.Sub(s.last) < outage:
				t.Fatalf("request %d of generation %d follows after %s", s.n+1, a.Generation, now.Sub(s.last))
			case s.n > 70 || len(a.Refreshes) > keep.MaxRefreshes:
				t.Fatalf("request %d of generation %d, %d are remembered", s.n+1, a.Generation, len(a.Refreshes))
			}
			if state != keep.RefreshUnsent {
				s.n, s.last = s.n+1, now
				if state == keep.RefreshSent || state == keep.RefreshLost {
					s.lost++
				}
				s.over = s.n > 1 && (state == keep.RefreshRefused || now.Sub(s.first) >= patience+2*longest)
			} else if s.n == 0 {
				delete(all, a.Generation)
			}
			switch generation := a.Generation; state {
			case keep.RefreshDone:
				a, _ = Done(a, host, generation, Tokens{ExpiresAt: now.Add(time.Hour), Lifetime: time.Hour, Renews: true, Sealed: []byte{1}}, now)
			case keep.RefreshSent: // the host dies
			default:
				a, _ = Failed(a, host, generation, state, "why", now)
			}
		}
	})
}

// A host that was frozen with its answer, or with its failure, records neither once another
// host has begun a request for the same tokens: that one's answer is the newer one.
func TestLateAnswer(t *testing.T) {
	a, err := Begin(hour(), "h", true, t0)
	if err != nil {
		t.Fatal(err)
	}
	a.LeaseHost = "next" // the lease of the first one has ended
	if a, err = Begin(a, "next", true, t0.Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	if _, counts := Done(a, "h", a.Generation, Tokens{Sealed: []byte{1}}, t0); counts {
		t.Error("the answer of the first one is recorded")
	}
	if _, counts := Failed(a, "h", a.Generation, keep.RefreshLost, "frozen", t0); counts {
		t.Error("the failure of the first one is recorded")
	}
	if next, counts := Done(a, "next", a.Generation, Tokens{Sealed: []byte{2}}, t0); !counts || next.Generation != a.Generation+1 {
		t.Errorf("the answer of the second one is not recorded: %+v", next)
	}
}

// What may be renewed elsewhere is neither used nor renewed here, whatever happens then, and
// nothing moves while the answer to a request is open.
func TestMove(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	a := keep.Account{Kind: keep.AccountConnected, Name: "mail", Generation: 3, Renews: true, Status: keep.AccountOK, ExpiresAt: now, Lifetime: time.Hour, Sealed: []byte{1}}
	for _, state := range []keep.RefreshState{keep.RefreshSent, keep.RefreshLost} {
		b := a.Clone()
		b.Refreshes = []keep.Refresh{{Generation: 3, State: state, Host: "h"}}
		if _, ok := Move(b, "h", now); ok {
			t.Errorf("it moves while a request is %s", state)
		}
		b.Refreshes[0].Generation = 2
		if _, ok := Move(b, "h", now); !ok {
			t.Errorf("it does not move after a request of another generation was %s", state)
		}
	}
	for range keep.MaxRefreshes + 1 {
		a.Refreshes = append(a.Refreshes, keep.Refresh{Generation: 2, State: keep.RefreshDone})
	}
	a.LeaseHost = "h"
	moved, ok := Move(a, "h", now)
	if !ok || !Moved(moved) || Moved(a) || !NeedsPerson(moved, now) || len(moved.Refreshes) != keep.MaxRefreshes || moved.LeaseHost != "" {
		t.Fatalf("moved is %+v, %v", moved, ok)
	}
	if again, ok := Move(moved, "h", now); !ok || len(again.Refreshes) != len(moved.Refreshes) {
		t.Errorf("moved again is %+v, %v", again, ok)
	}
	moved.LeaseHost = "h"
	for _, force := range []bool{true, false} {
		if step, _ := Next(moved, force, now.Add(time.Hour)); step != Rest {
			t.Errorf("the next step is %s", step)
		}
		if _, err := Begin(moved, "h", force, now.Add(time.Hour)); err == nil {
			t.Error("a request for new tokens begins")
		}
	}
	if b, ok := Restored(moved, now); ok || Usable(moved, now.Add(-time.Hour)) || !DueAt(moved).IsZero() {
		t.Errorf("it can be used: %+v", b)
	}
	if back := Connect(moved, keep.Account{Name: "mail"}, now); Moved(back) || back.Status != keep.AccountOK {
		t.Errorf("brought back it is %+v", back)
	}
	needs := NeedsReconnect(a, "lost")
	if _, ok := Move(needs, "h", now); ok {
		t.Error("what must be connected again moves")
	}
}

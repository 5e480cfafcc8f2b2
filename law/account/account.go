// Package account decides how an account may change. A refresh of its tokens is a change
// outside whose answer may be lost, so it is recorded before it is sent, and these
// functions say what each record allows. They are pure: the time is an argument.
//
// # The law
//
//   - One generation of tokens is spent by one request, made under the lease of the
//     account. Another request of the same generation is made only if the answer of the
//     one before was lost, or if the service refused the first one although nothing was lost:
//     some services refuse for a moment.
//   - A refusal that follows another request ends the generation, and a person is asked.
//   - After each lost answer the next request waits longer, from ten seconds to half an hour, unless the
//     first one was lost with its host. When answers were lost for a day, a person is asked.
//   - A request that provably never left, or that failed and had nothing to use up, does not count.
//
// A lost answer, such as a 5xx, does not say whether the old token was used up: the next answer does. If it was not,
// it is as good as before, however long the service is out. If it was, a service that replaces refresh tokens
// takes the old one again, for a while or until the new one is used, as FAPI 2.0 wants (5.3.2.1), or refuses it and may
// end all tokens of the family (RFC 9700, 4.14.2): then nothing is lost that giving up would have kept. A refusal is
// final, so a service sees no more than one request with a token that it refused as used up.
//
//   - Whoever has an answer records it if the account still has the generation that was
//     spent and nobody has begun another request since: the service may have ended the
//     tokens of the first answer with the second. Any other answer is discarded.
package account

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/keep-run/keep"
)

// Bounds of when tokens are renewed.
const (
	early      = 15 * time.Minute // before they end, but
	part       = 5                // no earlier than a fifth of their lifetime before
	second     = 5 * time.Second  // between a refusal and the one more request
	outage     = 10 * time.Second // between a lost answer and the next request, doubled by each that is lost: services that take the old token do so for 10 s to a minute
	longest    = 30 * time.Minute // of these pauses
	patience   = 24 * time.Hour   // for which requests are made whose answers are lost
	remembered = 9                // lost requests of a generation
	again      = 30 * time.Second // between a request that could not be sent and the next
	ahead      = time.Minute      // a pause that ends later than this from now was recorded by a clock that was ahead, and delays nothing
)

// Margin is how long before its end an access token is not used any more.
const Margin = 10 * time.Second

// DueAt returns when the tokens are to be renewed; zero: at no time by themselves. They are
// due as soon as that may be if a request for them was lost: whether they are still good shows when they
// are used.
func DueAt(a keep.Account) time.Time {
	for _, r := range slices.Backward(a.Refreshes) {
		if r.Generation == a.Generation && r.State == keep.RefreshLost && a.Renews && a.Status == keep.AccountOK {
			if !r.NextAt.IsZero() {
				return r.NextAt
			}
			return r.EndedAt
		}
	}
	if !a.Renews || a.ExpiresAt.IsZero() || a.Status != keep.AccountOK {
		return time.Time{}
	}
	before := early
	if a.Lifetime > 0 {
		before = min(early, a.Lifetime/part)
	}
	return a.ExpiresAt.Add(-before)
}

// Due reports whether the tokens are to be renewed: their time has come, or they cannot be used meanwhile.
func Due(a keep.Account, now time.Time) bool {
	due := DueAt(a)
	return !due.IsZero() && (!now.Before(due) || !Usable(a, now))
}

// Usable reports whether the access token may be sent.
func Usable(a keep.Account, now time.Time) bool {
	return a.Status == keep.AccountOK && (a.ExpiresAt.IsZero() || now.Add(Margin).Before(a.ExpiresAt))
}

// A Step is what is to be done about an account.
type Step string

const (
	Rest Step = "rest" // nothing
	Wait Step = "wait" // nothing before a time
	Send Step = "send" // one request, after it is recorded
	Ask  Step = "ask"  // a person must connect it anew
)

// Next returns the next step, and until when to wait. Force asks for new tokens although
// those that are there may still be good. It is for the host that has the lease: a record
// that says sent is then one whose host is gone.
func Next(a keep.Account, force bool, now time.Time) (Step, time.Time) {
	if a.Status != keep.AccountOK || !a.Renews {
		return Rest, time.Time{}
	}
	var lost, refused, unsent int
	var over bool
	var next time.Time // when the last of their pauses ends
	for _, r := range a.Refreshes {
		if r.Generation != a.Generation {
			continue
		}
		ends := r.NextAt
		switch r.State {
		case keep.RefreshSent:
			if lost++; lost > 1 { // the first one that is lost with its host is made again at once
				ends = r.SentAt.Add(pause(lost))
			}
		case keep.RefreshLost:
			lost++
		case keep.RefreshRefused:
			over = lost+refused > 0
			refused++
			ends = r.EndedAt.Add(second)
		case keep.RefreshUnsent:
			unsent++
			ends = r.EndedAt.Add(again)
		}
		if ends.After(next) && !cmp.Or(r.EndedAt, r.SentAt).After(now.Add(ahead)) {
			next = ends
		}
	}
	_, failing := Failing(a)
	switch {
	case over || failing >= patience:
		return Ask, time.Time{}
	case lost+refused+unsent > 0:
		return waitOrSend(next, now)
	case force:
		return Send, time.Time{}
	}
	due := DueAt(a)
	if due.IsZero() {
		return Rest, time.Time{}
	}
	return waitOrSend(due, now)
}

// WithoutPauses returns a without the pauses after lost answers and requests that did not leave, for a person who
// asks for new tokens.
func WithoutPauses(a keep.Account) keep.Account {
	a = a.Clone()
	for i := range a.Refreshes {
		a.Refreshes[i].NextAt = time.Time{}
	}
	a.Refreshes = slices.DeleteFunc(a.Refreshes, func(r keep.Refresh) bool { return r.State == keep.RefreshUnsent })
	return a
}

func waitOrSend(at, now time.Time) (Step, time.Time) {
	if now.Before(at) {
		return Wait, at
	}
	return Send, time.Time{}
}

// pause returns how long the next request waits after the nth lost answer.
func pause(n int) time.Duration { return min(outage<<(min(n, remembered)-1), longest) }

// Failing returns since when requests for new tokens are lost, and how long after the first of them the last one was sent;
// zero: none was.
func Failing(a keep.Account) (since time.Time, span time.Duration) {
	if a.Status != keep.AccountOK || !a.Renews {
		return since, 0
	}
	for _, r := range a.Refreshes {
		if r.Generation != a.Generation || r.State != keep.RefreshLost && r.State != keep.RefreshSent {
			continue
		}
		if since.IsZero() {
			since = r.SentAt
		}
		span = r.SentAt.Sub(since)
	}
	return since, span
}

// ErrNotAllowed is returned for a change that the law refuses.
var ErrNotAllowed = errors.New("the law of accounts does not allow this")

// Begin records a request of a host that has the lease. It is put on disk before the
// request is sent.
func Begin(a keep.Account, host string, force bool, now time.Time) (keep.Account, error) {
	if step, _ := Next(a, force, now); step != Send || host == "" || a.LeaseHost != host {
		return a, fmt.Errorf("account %s: refresh generation %d by %q, lease of %q: %w", a.Name, a.Generation, host, a.LeaseHost, ErrNotAllowed)
	}
	a = a.Clone()
	lost := 0
	for i := range a.Refreshes {
		r := &a.Refreshes[i]
		if r.State == keep.RefreshSent { // its host is gone
			r.State, r.EndedAt = keep.RefreshLost, now
		}
		if r.State == keep.RefreshLost && r.Generation == a.Generation {
			lost++
		}
	}
	n := 0                                                                   // the first of those that were lost says since when, and the last ones how often
	a.Refreshes = slices.DeleteFunc(a.Refreshes, func(r keep.Refresh) bool { // many of them must not crowd out what counts
		if r.State == keep.RefreshLost && r.Generation == a.Generation {
			n++
			return n > 1 && n <= lost-remembered+1
		}
		return r.State == keep.RefreshUnsent && r.Generation == a.Generation
	})
	a.Refreshes = append(a.Refreshes, keep.Refresh{Generation: a.Generation, State: keep.RefreshSent, Host: host, SentAt: now})
	if over := len(a.Refreshes) - keep.MaxRefreshes; over > 0 {
		a.Refreshes = a.Refreshes[over:]
	}
	return a, nil
}

// Tokens is what is known of new tokens without seeing them.
type Tokens struct {
	ExpiresAt time.Time
	Lifetime  time.Duration
	Scopes    []string // nil: as before
	Subject   string   // empty: as before
	Renews    bool
	Sealed    []byte
}

// Done records the answer to the request of a host for a generation, and gives the lease
// back. It reports false if the account has moved on: then the answer is discarded.
func Done(a keep.Account, host string, generation int64, t Tokens, now time.Time) (keep.Account, bool) {
	if a.Generation != generation || a.Status == keep.AccountRevoked || !Awaited(a, host, generation) {
		return a, false
	}
	a = end(a, host, generation, keep.RefreshDone, now)
	a.Generation, a.Sealed, a.Renews = a.Generation+1, t.Sealed, t.Renews
	a.ExpiresAt, a.Lifetime, a.LastRefreshAt = t.ExpiresAt, t.Lifetime, now
	a.Status, a.Error = keep.AccountOK, ""
	if t.Scopes != nil {
		a.Scopes = t.Scopes
	}
	if t.Subject != "" {
		a.Subject = t.Subject
	}
	return a, true
}

// Failed records what else became of the request of a host for a generation, and gives the
// lease back. The state is lost, refused or unsent. If that leaves a person as the only
// one who can help, the account says so.
func Failed(a keep.Account, host string, generation int64, state keep.RefreshState, why string, now time.Time) (keep.Account, bool) {
	if a.Generation != generation || a.Status != keep.AccountOK || !Awaited(a, host, generation) {
		return a, false
	}
	a = end(a, host, generation, state, now)
	if step, _ := Next(a, true, now); step == Ask {
		return NeedsReconnect(a, why), true
	}
	if since, _ := Failing(a); !since.IsZero() {
		a.Error = fmt.Sprintf("renewing fails since %s, and is tried again: %s", since.UTC().Format(time.RFC3339), why)
	}
	return a, true
}

// Awaited reports whether the answer to the request of a host for a generation counts: it is
// recorded as sent, and nobody has begun another one since.
func Awaited(a keep.Account, host string, generation int64) bool {
	return slices.ContainsFunc(a.Refreshes, func(r keep.Refresh) bool {
		return r.State == keep.RefreshSent && r.Host == host && r.Generation == generation
	})
}

// NeedsReconnect records that only a person can help, and why.
func NeedsReconnect(a keep.Account, why string) keep.Account {
	a.Status, a.Error = keep.AccountNeedsReconnect, why
	return a
}

// Move records that the tokens of an account are to be renewed elsewhere: from then on they
// are neither used nor renewed here. It is put on disk before another place can have them,
// so that a process that dies in between leaves them to one place at most. It reports false
// while a request for new tokens has no answer.
func Move(a keep.Account, host string, now time.Time) (keep.Account, bool) {
	for _, r := range a.Refreshes {
		if r.Generation == a.Generation && (r.State == keep.RefreshSent || r.State == keep.RefreshLost) {
			return a, false
		}
	}
	if a.Status != keep.AccountOK || Moved(a) {
		return a, Moved(a)
	}
	a = Release(a.Clone())
	a.Refreshes = append(a.Refreshes, keep.Refresh{Generation: a.Generation, State: keep.RefreshMoved, Host: host, SentAt: now, EndedAt: now})
	if over := len(a.Refreshes) - keep.MaxRefreshes; over > 0 {
		a.Refreshes = a.Refreshes[over:]
	}
	return NeedsReconnect(a, fmt.Sprintf("its move to a file was interrupted, and it is not used here any more: complete it with keep accounts export %s --move --out FILE, "+
		"bring it back with keep accounts import FILE, or forget it here with keep accounts revoke %[1]s --yes, which does not tell the service", a.Name)), true
}

// Moved reports whether another place may have the tokens of an account.
func Moved(a keep.Account) bool {
	return a.Status == keep.AccountNeedsReconnect && slices.ContainsFunc(a.Refreshes, func(r keep.Refresh) bool {
		return r.Generation == a.Generation && r.State == keep.RefreshMoved
	})
}

// end ends the newest request of a host for a generation.
func end(a keep.Account, host string, generation int64, state keep.RefreshState, now time.Time) keep.Account {
	a = a.Clone()
	for i := len(a.Refreshes) - 1; i >= 0; i-- {
		if r := &a.Refreshes[i]; r.Generation == generation && r.Host == host && r.EndedAt.IsZero() {
			if r.State, r.EndedAt = state, now; state == keep.RefreshLost {
				r.NextAt = now.Add(pause(lostOf(a)))
			}
			break
		}
	}
	if a.LeaseHost == host {
		a = Release(a)
	}
	return a
}

// lostOf returns how many requests of the generation of an account were lost.
func lostOf(a keep.Account) (n int) {
	for _, r := range a.Refreshes {
		if r.State == keep.RefreshLost && r.Generation == a.Generation {
			n++
		}
	}
	return n
}

// Release gives the lease back.
func Release(a keep.Account) keep.Account {
	a.LeaseHost, a.LeaseUntil = "", time.Time{}
	return a
}

// Connect returns the account that a person connected: a new one if old is zero, else the
// next generation of it. What other hosts still wait for is then of an older one.
func Connect(old, fresh keep.Account, now time.Time) keep.Account {
	fresh.Generation, fresh.Rev = old.Generation+1, old.Rev
	fresh.Status, fresh.Error, fresh.ConnectedAt = keep.AccountOK, "", now
	fresh.Refreshes, fresh.LastUsedAt = old.Refreshes, old.LastUsedAt
	return Release(fresh)
}

// Revoke forgets what the account held.
func Revoke(a keep.Account) keep.Account {
	a = Release(a.Clone())
	a.Generation++
	a.Status, a.Sealed, a.Renews, a.Error = keep.AccountRevoked, nil, false, ""
	a.ExpiresAt, a.Lifetime = time.Time{}, 0
	return a
}

package storetest

import (
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/keep-run/keep"
)

// anAccount returns a new account of a name.
func anAccount(name string) keep.Account {
	return keep.Account{Kind: keep.AccountConnected, Name: name, Pack: "gmail", Style: "oauth2", Subject: odd, Scopes: []string{"a", odd}, Generation: 1,
		Renews: true, Status: keep.AccountOK, ExpiresAt: kept(oddTime), Lifetime: time.Hour, ConnectedBy: "ada", ConnectedAt: kept(oddTime),
		Sealed: []byte{0, 1, 0xff}}
}

// account returns the account of a name, which must be there.
func (w *world) account(name string) keep.Account {
	w.Helper()
	list := get[[]keep.Account](w)(w.Accounts(w.ctx, keep.AccountConnected, name))
	if len(list) != 1 {
		w.Fatalf("%d accounts of the name %s", len(list), name)
	}
	return list[0]
}

// put writes accounts, which must be accepted.
func (w *world) put(as ...keep.Account) {
	w.Helper()
	if err := w.PutAccounts(w.ctx, as); err != nil {
		w.Fatal(err)
	}
}

func isStale(err error) bool { return errors.Is(err, keep.ErrStale) }

var accountPromises = []promise{
	{"accounts come back as they were put, by kind and name", func(w *world) {
		a, b, secret := anAccount("b"), anAccount("a"), anAccount("a")
		b.Scopes, b.Refreshes = nil, []keep.Refresh{{Generation: 1, State: keep.RefreshSent, Host: "h", SentAt: oddTime}}
		secret.Kind = keep.AccountSecret
		w.put(a, b, secret)
		a.Rev, b.Rev, secret.Rev = 1, 1, 1
		b.Refreshes[0].SentAt = kept(oddTime)
		w.same("all", get[[]keep.Account](w)(w.Accounts(w.ctx, keep.AccountConnected)), []keep.Account{b, a})
		w.same("named", get[[]keep.Account](w)(w.Accounts(w.ctx, keep.AccountConnected, "b", "nobody")), []keep.Account{a})
		for _, none := range []string{"a\x00b", "\xff", "\x1a"} {
			w.same("of no name", get[[]keep.Account](w)(w.Accounts(w.ctx, keep.AccountConnected, none)), []keep.Account(nil))
			_, _, err := w.LeaseAccount(w.ctx, keep.AccountConnected, none, "h", time.Now(), time.Hour)
			w.fails("the lease of none", err, func(err error) bool { return errors.Is(err, keep.ErrNotFound) })
		}
		w.same("secrets", get[[]keep.Account](w)(w.Accounts(w.ctx, keep.AccountSecret)), []keep.Account{secret})
		a.Status, a.Sealed, a.Generation = keep.AccountRevoked, nil, 2
		w.put(a)
		a.Rev = 2
		w.same("revoked", w.account("b"), a)
		w.fails("dropped as it was", w.DropAccount(w.ctx, keep.AccountConnected, "b", 1), isStale)
		w.same("it is there", w.account("b"), a)
		if err := w.DropAccount(w.ctx, keep.AccountConnected, "b", 2); err != nil {
			w.Error(err)
		}
		w.fails("dropped twice", w.DropAccount(w.ctx, keep.AccountConnected, "b", 0), func(err error) bool { return errors.Is(err, keep.ErrNotFound) })
		w.same("left", get[[]keep.Account](w)(w.Accounts(w.ctx, keep.AccountConnected)), []keep.Account{b})
	}},
	{"an account that moved since it was read is not written, and none with it", func(w *world) {
		w.put(anAccount("a"), anAccount("b"))
		w.fails("a second one of a name", w.PutAccounts(w.ctx, []keep.Account{anAccount("a")}), isStale)
		a, b := w.account("a"), w.account("b")
		w.put(a)
		a.Error, b.Error = "old", "old"
		w.fails("stale", w.PutAccounts(w.ctx, []keep.Account{b, a}), isStale)
		w.same("the other one", w.account("b").Error, "")
		gone := anAccount("c")
		gone.Rev = 1
		w.fails("gone", w.PutAccounts(w.ctx, []keep.Account{gone}), isStale)
		w.fails("twice", w.PutAccounts(w.ctx, []keep.Account{b, b}), isStale)
		w.same("the one that was named twice", w.account("b").Error, "")
		for what, wrong := range map[string]func(*keep.Account){
			"no name": func(a *keep.Account) { a.Name = "" }, "kind": func(a *keep.Account) { a.Kind = "x" },
			"status": func(a *keep.Account) { a.Status = "x" }, "generation": func(a *keep.Account) { a.Generation = 0 },
			"nothing sealed": func(a *keep.Account) { a.Sealed = nil }, "revoked and sealed": func(a *keep.Account) { a.Status = keep.AccountRevoked },
		} {
			bad := anAccount("d")
			wrong(&bad)
			w.fails(what, w.PutAccounts(w.ctx, []keep.Account{bad}), invalid)
		}
	}},
	{"one host at a time has the lease of an account", func(w *world) {
		w.put(anAccount("a"))
		now := time.Now()
		lease := func(host string, at time.Time, ttl time.Duration) bool {
			w.Helper()
			a, got, err := w.LeaseAccount(w.ctx, keep.AccountConnected, "a", host, at, ttl)
			if err != nil {
				w.Error(err)
			}
			if got && a.LeaseHost != host {
				w.Errorf("host %s has the lease, and it says %s", host, a.LeaseHost)
			}
			return got
		}
		before := w.account("a")
		if !lease("h1", now, time.Hour) {
			w.Error("a lease that nobody has is not free")
		}
		taken := w.account("a")
		if lease("h2", now.Add(time.Minute), time.Hour) {
			w.Error("h2 has the lease of h1")
		}
		w.same("after a lease that was refused", w.account("a"), taken)
		if !lease("h1", now.Add(time.Minute), time.Hour) {
			w.Error("the lease of h1 is not its own")
		}
		w.fails("a writer without the lease", w.PutAccounts(w.ctx, []keep.Account{before}), isStale)
		a := w.account("a")
		a.LeaseHost, a.LeaseUntil = "", time.Time{}
		w.put(a)
		if !lease("h2", now, 0) || !lease("h1", now.Add(time.Millisecond), time.Hour) {
			w.Error("a lease that was given back or ran out is not free")
		}
		used := w.account("a").Rev
		if err := w.UseAccount(w.ctx, keep.AccountConnected, "a", oddTime); err != nil {
			w.Error(err)
		}
		w.same("used", w.account("a").LastUsedAt, kept(oddTime))
		w.same("the revision after a use", w.account("a").Rev, used)
		_, _, err := w.LeaseAccount(w.ctx, keep.AccountConnected, "nobody", "h", now, time.Hour)
		w.fails("no account", err, func(err error) bool { return errors.Is(err, keep.ErrNotFound) })
	}},
	{"a host that gets the lease of an account gets the account as it is then, whoever takes it next", func(w *world) {
		w.put(anAccount("a"))
		var wg sync.WaitGroup
		for _, host := range []string{"1", "2", "3", "4"} {
			wg.Go(func() {
				for range 50 {
					a, got, err := w.LeaseAccount(w.ctx, keep.AccountConnected, "a", host, time.Now(), 0)
					if err != nil || got && a.LeaseHost != host {
						w.Errorf("host %s has the lease, %t, and it says %s, %v", host, got, a.LeaseHost, err)
					}
				}
			})
		}
		wg.Wait()
	}},
	{"of hosts that want the lease of an account at once, one gets it", func(w *world) {
		w.put(anAccount("a"))
		var got atomic.Int32
		var wg sync.WaitGroup
		for _, host := range []string{"1", "2", "3", "4", "5", "6", "7", "8"} {
			wg.Go(func() {
				_, ok, err := w.LeaseAccount(w.ctx, keep.AccountConnected, "a", host, time.Now(), time.Hour)
				if err != nil {
					w.Error(err)
				}
				if ok {
					got.Add(1)
				}
			})
		}
		wg.Wait()
		w.same("hosts with the lease", got.Load(), int32(1))
	}},
}

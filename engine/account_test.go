package engine_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector"
	law "github.com/keep-run/keep/law/account"
	"github.com/keep-run/keep/law/lifecycle"
)

// A lookup that cannot be made because its account is lost proves nothing and uses nothing
// up, for days: nobody is asked about the call, and it continues at once when the account is
// connected again.
func TestLookupWaitsForItsAccount(t *testing.T) {
	for _, level := range []keep.Level{keep.LevelKey, keep.LevelWitness} {
		t.Run(string(level), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				w.service.level = level
				w.service.onCall = func(int) (bool, error) { return true, errReset }
				lost := keep.Failf(keep.ClassPermission, keep.CodeReconnect, "the account mail must be connected again")
				lost.Account, lost.Generation = "mail", 3
				w.service.onAsk = func(int) (connector.Verdict, error) { return "", lost }
				w.deploy()
				w.publish("in", "a")
				if err := w.runFor(5 * 24 * time.Hour); err == nil {
					t.Fatal("idle with a lookup that waits")
				}
				m, run := w.newest(), w.lastRun()
				if m.State != keep.NeedsReconcile || m.ReconcileAttempts != 0 || len(w.questions()) != 0 {
					t.Fatalf("the record is %s after %d lookups that count, with questions %+v", m.State, m.ReconcileAttempts, w.questions())
				}
				if got := lifecycle.WaitOf(run, m); got.Kind != lifecycle.WaitsForAccount {
					t.Errorf("it says: %s", got)
				}
				w.service.onAsk = nil
				e := w.engine()
				connected := law.Connect(keep.Account{Kind: keep.AccountConnected, Name: "mail", Generation: 3}, keep.Account{Kind: keep.AccountConnected, Name: "mail"}, time.Now())
				if err := e.SettleAccounts(t.Context(), having(connected)); err != nil {
					t.Fatal(err)
				}
				begun := time.Now()
				if err := w.runEngine(e, time.Minute); err != nil {
					t.Errorf("a minute after the account was connected: %v", err)
				}
				if m = w.newest(); m.State != keep.Applied || w.service.calls != 1 || w.service.total() != 1 || time.Since(begun) > time.Minute {
					t.Errorf("the record is %s, with %d effects of %d calls", m.State, w.service.total(), w.service.calls)
				}
			})
		})
	}
}

// A call in doubt about which a service refused to be asked with a credential is asked about
// again when there is another one, and its question ends by that.
func TestRefusedLookupContinues(t *testing.T) {
	for _, of := range []string{"an account", "secrets"} {
		t.Run(of, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				w.service.level = keep.LevelKey
				w.secrets = "first"
				w.service.onCall = func(int) (bool, error) { return true, errReset }
				w.service.onAsk = func(int) (connector.Verdict, error) {
					f := keep.Failf(keep.ClassPermission, keep.CodeUnauthenticated, "the service answered 401 Unauthorized")
					if of == "an account" {
						f.Account, f.Generation = "mail", 3
					}
					return "", f
				}
				w.deploy()
				w.publish("in", "a")
				w.run()
				if qs := w.questions(); len(qs) != 1 || qs[0].Kind != keep.AskPermission {
					t.Fatalf("the questions are %+v", qs)
				}
				w.service.onAsk = nil
				account := keep.Account{Kind: keep.AccountConnected, Name: "mail", Generation: 3, Status: keep.AccountOK}
				settle := func(e *host) {
					if err := e.SettleAccounts(t.Context(), having(account)); err != nil {
						t.Fatal(err)
					}
				}
				e := w.engine()
				settle(e)
				if qs := w.questions(); len(qs) != 1 {
					t.Errorf("nothing is another one, and the questions are %+v", qs)
				}
				w.secrets, account.Generation = "second", 4
				e = w.engine()
				settle(e)
				if err := w.runEngine(e, time.Minute); err != nil {
					t.Error(err)
				}
				if m := w.newest(); m.State != keep.Applied || w.service.total() != 1 || len(w.questions()) != 0 {
					t.Errorf("the record is %s, with %d effects and questions %+v", m.State, w.service.total(), w.questions())
				}
			})
		})
	}
}

// having returns what reads accounts.
func having(accounts ...keep.Account) func(context.Context) ([]keep.Account, error) {
	return func(context.Context) ([]keep.Account, error) { return accounts, nil }
}

package transfer_test

import (
	"errors"
	"testing"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/store"
)

// Whoever opens a database that was restored finds the tokens of its accounts as ones that may be used up, also if the process that
// restored it died at once: there is no moment between. Law: once.
func TestRestoredAccounts(t *testing.T) {
	each(t, func(t *testing.T, make func(testing.TB) place) {
		p := make(t)
		db, closeDB := p.make(t)
		account := func(name string, renews bool) keep.Account {
			return keep.Account{Kind: keep.AccountConnected, Name: name, Status: keep.AccountOK, Generation: 3, Renews: renews, Sealed: []byte("sealed"),
				ConnectedAt: time.UnixMilli(1), LeaseHost: "of before", LeaseUntil: time.UnixMilli(9_000_000_000_000)}
		}
		if err := errors.Join(db.(store.Accounts).PutAccounts(ctx, account("mail", true), account("shop", false)), closeDB()); err != nil {
			t.Fatal(err)
		}
		for range 2 { // given twice, it is no other thing
			if err := mover.Restore(ctx, p); err != nil {
				t.Fatal(err)
			}
		}
		list, err := p.open(t).(store.Accounts).Accounts(ctx, keep.AccountConnected)
		if err != nil || len(list) != 2 {
			t.Fatalf("%+v, %v", list, err)
		}
		mail, shop := list[0], list[1]
		if len(mail.Refreshes) != 1 || mail.Refreshes[0].State != keep.RefreshLost || mail.Refreshes[0].Generation != 3 || !mail.Refreshes[0].EndedAt.Equal(mover.Now) || mail.LeaseHost != "" {
			t.Errorf("the account that is renewed is %+v", mail)
		}
		if len(shop.Refreshes) != 0 {
			t.Errorf("the account that nothing renews is %+v", shop)
		}
	})
}

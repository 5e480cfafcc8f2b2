package transfer_test

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/store"
	"github.com/keep-run/keep/store/transfer"
)

// A restore says of each workflow who paused it, when and why, once, also beside what was decided before. Who copies the database copies that.
func TestRestoredDecisions(t *testing.T) {
	each(t, func(t *testing.T, make func(testing.TB) place) {
		p := make(t)
		db, closeDB := p.make(t)
		w, at := keep.WorkflowName("w"), time.UnixMilli(5).UTC()
		before := keep.Decided{About: w.Subject(), Decision: keep.Decision{Action: keep.Pause, By: "bob", From: "web", Note: "it pays twice", At: at}}
		if err := db.Commit(ctx, keep.Commit{Workflow: w, At: at, Changes: []keep.Change{
			keep.Deploy{Deployment: keep.Deployment{Workflow: w, Version: keep.Version{Major: 1}, Hash: "h", CreatedAt: at, Definition: keep.Definition{Name: w}}},
			keep.SetPaused{Paused: true, Note: before.Decision.Note}, keep.AppendDecision{Decided: before}}}); err != nil {
			t.Fatal(err)
		}
		if err := closeDB(); err != nil {
			t.Fatal(err)
		}
		by := mover
		by.By = "ann"
		for range 2 { // given twice, it is no other thing
			if err := by.Restore(ctx, p); err != nil {
				t.Fatal(err)
			}
		}
		want := []keep.Decided{before, {About: w.Subject(), Decision: keep.Decision{Action: keep.Pause, By: "ann", From: "cli", Note: transfer.RestoredNote(by.Now), At: by.Now.UTC()}}}
		got, err := p.open(t).Decided(ctx, w.Subject())
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("recorded (-want +got):\n%s%v", diff, err)
		}
		resumed := before
		resumed.Decision.Action = keep.Resume
		if err := p.beside(t).Commit(ctx, keep.Commit{Workflow: w, At: at, Changes: []keep.Change{keep.SetPaused{}, keep.AppendDecision{Decided: resumed}}}); err != nil {
			t.Errorf("a decision after the restore: %v", err)
		}
	})
}

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
		if err := errors.Join(db.(store.Accounts).PutAccounts(ctx, []keep.Account{account("mail", true), account("shop", false)}), closeDB()); err != nil {
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

// What people did beside workflows is copied, in its order, and continues at the new place.
func TestActsAreCopied(t *testing.T) {
	each(t, func(t *testing.T, make func(testing.TB) place) {
		for _, way := range [][2]place{{file(t), make(t)}, {make(t), file(t)}} {
			act := func(note string, at int64) keep.Decided {
				return keep.Decided{About: keep.Subject{Kind: keep.AboutToken, ID: "abc"}, Decision: keep.Decision{Action: keep.Revoke, By: "ada", Note: note, At: time.UnixMilli(at).UTC()}}
			}
			want := []keep.Decided{act("third", 1), act("second", 3), act("first", 5)} // by a clock that was set back
			db, closeDB := way[0].make(t)
			if err := errors.Join(db.(store.Accounts).PutAccounts(ctx, nil, want[2], want[1]), closeDB()); err != nil {
				t.Fatal(err)
			}
			if _, err := mover.Copy(ctx, way[0], way[1]); err != nil {
				t.Fatal(err)
			}
			to := way[1].beside(t)
			if err := to.(store.Accounts).PutAccounts(ctx, nil, want[0]); err != nil {
				t.Fatal(err)
			}
			got, _, err := to.(store.Decisions).Decisions(ctx, keep.DecisionFilter{Global: true}, keep.Page{})
			if diff := cmp.Diff(want, got); err != nil || diff != "" {
				t.Errorf("recorded (-want +got):\n%s%v", diff, err)
			}
			for err := range to.Check(ctx) {
				t.Error(err)
			}
		}
	})
}

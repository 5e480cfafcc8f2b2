package transfer_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/store"
	"github.com/keep-run/keep/store/transfer"
	"github.com/keep-run/keep/testkit/storetest"
)

// kinds are places of each kind of database.
var kinds = map[string]func(testing.TB) place{
	"file":   func(tb testing.TB) place { return file(tb) },
	"schema": func(tb testing.TB) place { return schema(tb) },
}

func each(t *testing.T, f func(t *testing.T, make func(testing.TB) place)) {
	t.Parallel()
	for name, make := range kinds {
		t.Run(name, func(t *testing.T) { t.Parallel(); f(t, make) })
	}
}

// A host keeps a copy from beginning, and the database as it is.
func TestCopyBesideAHost(t *testing.T) {
	each(t, func(t *testing.T, make func(testing.TB) place) {
		from, to := make(t), file(t)
		fill(t, from)
		db, closeDB := from.make(t)
		if p, ok := db.(store.Leaser); ok { // a file has its lock
			if _, err := p.Heartbeat(ctx, keep.Host{ID: "host_1", Name: "other"}, time.Minute); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := mover.Copy(ctx, from, to); !errors.Is(err, keep.ErrLocked) {
			t.Errorf("copy beside a host: %v, want ErrLocked", err)
		}
		if p, ok := db.(store.Leaser); ok {
			if err := p.Deregister(ctx, "host_1"); err != nil {
				t.Fatal(err)
			}
		}
		if err := closeDB(); err != nil {
			t.Fatal(err)
		}
		if got := state(t, from); got != transfer.Plain {
			t.Errorf("the source is %q", got)
		}
		if got := state(t, to); got != missing {
			t.Errorf("the target is %q", got)
		}
	})
}

// Whoever opened a database before it was sealed can't write to it after. That includes
// hosts that were suspended, who would claim workflows again.
func TestFence(t *testing.T) {
	each(t, func(t *testing.T, make func(testing.TB) place) {
		from, to := make(t), file(t)
		fill(t, from)
		late := from.beside(t)
		if _, err := mover.Copy(ctx, from, to); err != nil {
			t.Fatal(err)
		}
		l := storetest.NewLoad("late", 9)
		if err := late.Commit(ctx, l.Deploy()); err == nil {
			t.Error("a commit to a sealed database was accepted")
		}
		if p, ok := late.(store.Leaser); ok {
			if _, err := p.Heartbeat(ctx, keep.Host{ID: "host_1", Name: "late"}, time.Minute); err == nil {
				t.Error("a host came back to a sealed database")
			}
		}
		if _, err := late.Workflows(ctx); err != nil {
			t.Errorf("look at a sealed database: %v", err)
		}
	})
}

// A database that holds something is not copied over.
func TestTargetIsUsed(t *testing.T) {
	each(t, func(t *testing.T, make func(testing.TB) place) {
		from, to := file(t), make(t)
		fill(t, from)
		fill(t, to)
		want := digest(t, to)
		if _, err := mover.Copy(ctx, from, to); err == nil {
			t.Error("a copy replaced a database")
		}
		if digest(t, to) != want || state(t, to) != transfer.Plain || state(t, from) != transfer.Plain {
			t.Error("a refused copy left something behind")
		}
		if _, err := mover.Copy(ctx, to, to); !errors.Is(err, transfer.ErrSame) {
			t.Errorf("copy to itself: %v", err)
		}
	})
}

// What a person wrote before there was a host is not copied over either.
func TestTargetHasAnAccount(t *testing.T) {
	each(t, func(t *testing.T, make func(testing.TB) place) {
		from, to := file(t), make(t)
		fill(t, from)
		db, closeDB := to.make(t)
		secret := keep.Account{Kind: keep.AccountSecret, Name: "crm", Status: keep.AccountOK, Generation: 1, Sealed: []byte("sealed"), ConnectedAt: time.UnixMilli(1)}
		if err := errors.Join(db.(store.Accounts).PutAccounts(ctx, []keep.Account{secret}), closeDB()); err != nil {
			t.Fatal(err)
		}
		want := digest(t, to)
		if _, err := mover.Copy(ctx, from, to); err == nil || digest(t, to) != want || state(t, from) != transfer.Plain {
			t.Errorf("a copy replaced an account: %v", err)
		}
	})
}

// Only a copy on which nothing was recorded can be undone.
func TestUndo(t *testing.T) {
	each(t, func(t *testing.T, make func(testing.TB) place) {
		from, to := make(t), make(t)
		fill(t, from)
		if err := mover.Undo(ctx, from, to); err == nil {
			t.Error("undo without a copy")
		}
		if _, err := mover.Copy(ctx, from, to); err != nil {
			t.Fatal(err)
		}
		other := make(t)
		fill(t, other)
		if err := mover.Undo(ctx, from, other); err == nil {
			t.Error("undo with another database")
		}
		db, closeDB := to.make(t)
		l := storetest.NewLoad("three", 3)
		if err := db.Commit(ctx, l.Deploy()); err != nil {
			t.Fatal(err)
		}
		if err := closeDB(); err != nil {
			t.Fatal(err)
		}
		if err := mover.Undo(ctx, from, to); !errors.Is(err, transfer.ErrUsed) {
			t.Errorf("undo after a commit to the copy: %v, want ErrUsed", err)
		}
		atMostOne(t, from, to, 0)
		if err := transfer.Unseal(ctx, from); err != nil {
			t.Fatal(err)
		}
		if err := from.work(); err != nil {
			t.Errorf("work on an unsealed database: %v", err)
		}
	})
}

// A target that cannot be verified leaves the source as it is.
func TestVerify(t *testing.T) {
	each(t, func(t *testing.T, make func(testing.TB) place) {
		from, to := file(t), make(t)
		fill(t, from)
		if _, err := mover.Copy(ctx, from, forgetful{to}); err == nil {
			t.Error("a copy without its log was accepted")
		}
		if err := from.work(); err != nil {
			t.Errorf("work on the source: %v", err)
		}
		if got := state(t, to); got != transfer.Incoming {
			t.Errorf("the target is %q", got)
		}
		if _, err := mover.Copy(ctx, from, to); err != nil {
			t.Errorf("the same copy again: %v", err)
		}
	})
}

// A source that breaks a law stays the one to work on.
func TestBrokenLaw(t *testing.T) {
	each(t, func(t *testing.T, make func(testing.TB) place) {
		from, to := make(t), make(t)
		db, closeDB := from.make(t)
		l := storetest.NewLoad("w", 1)
		lost := keep.Run{ID: "run_2", Chain: "run_1", Workflow: "w", Version: keep.Version{Major: 1}, Handler: "h", Kind: keep.Consumer,
			Phase: keep.Preparing, Status: keep.StatusActive}
		for _, c := range []keep.Commit{l.Deploy(), {Workflow: "w", At: l.At.Add(time.Hour), Changes: []keep.Change{keep.PutRun{Run: lost}}}} {
			c.At = time.UnixMilli(1)
			if err := db.Commit(ctx, c); err != nil {
				t.Fatal(err)
			}
		}
		if err := closeDB(); err != nil {
			t.Fatal(err)
		}
		var v *keep.Violation
		if _, err := mover.Copy(ctx, from, to); !errors.As(err, &v) || v.Law != "pinned" {
			t.Errorf("copy of a broken law: %v", err)
		}
		if state(t, from) != transfer.Plain || state(t, to) != transfer.Incoming {
			t.Errorf("the source is %q, the target %q", state(t, from), state(t, to))
		}
	})
}

// A forgetful place loses an event on the way.
type forgetful struct{ transfer.Place }

func (p forgetful) Receive(ctx context.Context, m transfer.Mark, fill func(transfer.Sink) error) error {
	return p.Place.Receive(ctx, m, func(s transfer.Sink) error { return fill(forgetfulSink{s}) })
}

type forgetfulSink struct{ transfer.Sink }

func (s forgetfulSink) Add(ctx context.Context, records []transfer.Record) error {
	if _, ok := records[0].(keep.Event); ok {
		records = records[1:]
	}
	return s.Sink.Add(ctx, records)
}

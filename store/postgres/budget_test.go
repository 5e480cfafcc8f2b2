package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/internal/pgtest"
	"github.com/keep-run/keep/store/postgres"
	"github.com/keep-run/keep/testkit/storetest"
)

// Two hosts whose workflows spend one budget at the same moment, in which there is room for one
// call: one of them records it, the other one learns what is spent.
func TestBudgetOfTwoHosts(t *testing.T) {
	t.Parallel()
	url := pgtest.SchemaURL(t)
	hosts := []*postgres.DB{openDB(t, url, postgres.Config{}), openDB(t, url, postgres.Config{})}
	at := time.UnixMilli(1)
	for round := range 30 {
		errs := make([]error, len(hosts))
		var wg sync.WaitGroup
		for i, db := range hosts {
			w := keep.WorkflowName(fmt.Sprint("w", round, "-", i))
			id := keep.RunID(fmt.Sprint("run_", w))
			s := keep.Spent{Budget: fmt.Sprint("round ", round), Amount: 2, Limit: 3, Per: time.Hour}
			m := keep.Mutation{Key: keep.MutationKey("mut_" + w), Workflow: w, Run: id, Tool: "bank.pay", Level: keep.LevelNone, Token: "t",
				State: keep.InFlight, Attempts: 1, CallDeadline: time.UnixMilli(9), Spent: []keep.Spent{s}, SpentAt: at}
			wg.Go(func() {
				errs[i] = db.Commit(t.Context(), keep.Commit{Workflow: w, At: at, Changes: []keep.Change{
					keep.PutRun{Run: keep.Run{ID: id, Chain: id, Workflow: w, Handler: "h", Kind: keep.Consumer, Phase: keep.Mutating, Status: keep.StatusActive, Mutation: m.Key}},
					keep.Within{Key: m.Key, Spent: s},
					keep.PutMutation{Mutation: m, Moves: []keep.Move{{By: "call", To: keep.InFlight}}},
				}})
			})
		}
		wg.Wait()
		refused := 0
		for _, err := range errs {
			if e, ok := errors.AsType[*keep.OverBudgetError](err); ok && e.Others == 2 {
				refused++
			} else if err != nil {
				t.Fatal(err)
			}
		}
		if refused != 1 {
			t.Fatalf("round %d: %v, want one host to record the call and one to be refused (law: within-budget)", round, errs)
		}
	}
}

// Check adds up windows of budgets in a time that does not grow with the square of their calls.
func TestCheckOfManyCalls(t *testing.T) {
	t.Parallel()
	db := openDB(t, pgtest.SchemaURL(t), postgres.Config{})
	l := storetest.NewLoad("w", 0)
	for _, err := range []error{
		db.Commit(t.Context(), l.Deploy()),
		storetest.SpendingLoad{Load: l, Per: 24 * time.Hour}.Run(t.Context(), db),
		db.Exec(t.Context(), storetest.CopySpent(20_000, time.Millisecond)),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for err := range db.Check(ctx) {
		if _, ok := errors.AsType[*keep.Violation](err); !ok { // copies of a record have no history
			t.Fatal(err)
		}
	}
}

// Who takes calls out of sums, or sweeps some, waits for whoever writes to sums before it locks any of them. Who only
// sums what is there waits for nobody, and has the right sum all the same.
func TestSumsAreWrittenByOne(t *testing.T) {
	t.Parallel()
	url := pgtest.SchemaURL(t)
	db, other := openDB(t, url, postgres.Config{}), connect(t, url)
	s := keep.Spent{Budget: "money", Amount: 2, Limit: keep.MaxAmount, Per: time.Hour}
	var all []keep.Mutation
	for _, w := range []keep.WorkflowName{"a", "b"} {
		id := keep.RunID("run_" + w)
		open := keep.Commit{Workflow: w, At: time.UnixMilli(1)}
		open.Changes = []keep.Change{keep.PutRun{Run: keep.Run{ID: id, Chain: id, Workflow: w, Handler: "h", Kind: keep.Job, Phase: keep.Running, Status: keep.StatusActive}}}
		settle := keep.Commit{Workflow: w, At: time.UnixMilli(2)}
		for i := range 100 {
			m := keep.Mutation{Key: keep.MutationKey(fmt.Sprint("mut_", w, i)), Workflow: w, Run: id, Tool: "bank.pay", Level: keep.LevelNone, Token: "t",
				State: keep.InFlight, Attempts: 1, CallDeadline: time.UnixMilli(9), Spent: []keep.Spent{s}, SpentAt: time.UnixMilli(1)}
			open.Changes = append(open.Changes, keep.PutMutation{Mutation: m, Moves: []keep.Move{{By: "call", To: keep.InFlight}}})
			m.Rev, m.State, m.ResolvedBy = 1, keep.Applied, "call"
			settle.Changes = append(settle.Changes, keep.PutMutation{Mutation: m, Moves: []keep.Move{{By: "call", From: keep.InFlight, To: keep.Applied, Evidence: "happened"}}})
			m.Rev = 2
			all = append(all, m)
		}
		if err := errors.Join(db.Commit(t.Context(), open), db.Commit(t.Context(), settle)); err != nil {
			t.Fatal(err)
		}
	}
	summed := func() (n int) {
		t.Helper()
		sum, err := db.Spent(t.Context(), s.Names(), time.Time{}, "")
		if err != nil || sum.All != 400 {
			t.Fatalf("Spent = %+v, %v, want 400", sum, err)
		}
		if err := other.QueryRow(t.Context(), `SELECT count(*) FROM mutation WHERE summed_at <> 0`).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	lock := func(what string) {
		t.Helper()
		if _, err := other.Exec(t.Context(), `SELECT pg_advisory_`+what+`(`+postgres.SumsLock+`)`); err != nil {
			t.Fatal(err)
		}
	}
	lock("lock")
	if n := summed(); n != 0 {
		t.Errorf("%d calls were summed while another writes to sums", n)
	}
	lock("unlock")
	if n := summed(); n != 200 {
		t.Errorf("%d calls were summed, want all 200", n)
	}
	lock("lock")
	m := all[0]
	m.Title = "changed"
	done := make(chan error, 1)
	go func() {
		done <- db.Commit(t.Context(), keep.Commit{Workflow: m.Workflow, At: time.UnixMilli(3), Changes: []keep.Change{keep.PutMutation{Mutation: m}}})
	}()
	for waits := 0; waits == 0; { // until it waits
		select {
		case err := <-done:
			t.Fatalf("Commit = %v while another writes to sums, want it to wait", err)
		default:
		}
		err := other.QueryRow(t.Context(), `SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted
			AND (classid::bigint << 32) | objid::bigint = `+postgres.SumsLock+` AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`).Scan(&waits)
		if err != nil {
			t.Fatal(err)
		}
	}
	lock("unlock")
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if n := summed(); n != 199 {
		t.Errorf("%d calls are summed after one changed, want 199", n)
	}
	for _, want := range []int{0, 4} {
		found := 0
		for err := range db.Check(t.Context()) {
			if strings.Contains(err.Error(), "budget money: its sum of the piece 0 of level ") {
				found++
			}
		}
		if found != want {
			t.Errorf("Check found %d sums that are too small, want %d", found, want)
		}
		exec(t, url, `UPDATE spent_sum SET low = low - 1`)
	}
}

// Hosts that sum, and workflows whose settled calls change, do not block each other, and the sums are right.
func TestSumsBesideChanges(t *testing.T) {
	t.Parallel()
	url := pgtest.SchemaURL(t)
	s := keep.Spent{Budget: "money", Amount: 2, Limit: keep.MaxAmount, Per: time.Hour}
	const workflows, calls = 3, 150
	var wg sync.WaitGroup
	host := openDB(t, url, postgres.Config{})
	for i := range workflows {
		db := openDB(t, url, postgres.Config{})
		w := keep.WorkflowName(fmt.Sprint("w", i))
		id := keep.RunID("run_" + w)
		wg.Go(func() {
			commit := func(changes []keep.Change) {
				if err := db.Commit(t.Context(), keep.Commit{Workflow: w, At: time.UnixMilli(1), Changes: changes}); err != nil {
					t.Errorf("%s: %v", w, err)
				}
			}
			changes := []keep.Change{keep.PutRun{Run: keep.Run{ID: id, Chain: id, Workflow: w, Handler: "h", Kind: keep.Job, Phase: keep.Running, Status: keep.StatusActive}}}
			list := make([]keep.Mutation, calls)
			for j := range list {
				list[j] = keep.Mutation{Key: keep.MutationKey(fmt.Sprint("mut_", w, "_", j)), Workflow: w, Run: id, Tool: "bank.pay", Level: keep.LevelNone, Token: "t",
					State: keep.InFlight, Attempts: 1, CallDeadline: time.UnixMilli(9), Spent: []keep.Spent{s}, SpentAt: time.UnixMilli(1 + int64(j)<<16)}
				changes = append(changes, keep.PutMutation{Mutation: list[j], Moves: []keep.Move{{By: "call", To: keep.InFlight}}})
			}
			commit(changes)
			for round := range 12 {
				changes = nil
				for j := range list {
					m := &list[j]
					if m.Rev++; round > 0 && (j+round)%3 > 0 {
						m.Rev--
						continue
					}
					if m.State = keep.Applied; round > 0 && j%2 == 0 { // not by the law: what settled does not change
						m.SpentAt = m.SpentAt.Add(time.Millisecond)
					}
					m.ResolvedBy = "call"
					changes = append(changes, keep.PutMutation{Mutation: *m})
				}
				commit(changes)
				if _, err := db.Spent(t.Context(), s.Names(), time.Time{}, ""); err != nil {
					t.Errorf("%s: %v", w, err)
				}
			}
		})
	}
	wg.Wait()
	for _, since := range []int64{0, 1 << 20, 1<<22 + 3} {
		n := 0
		err := connect(t, url).QueryRow(t.Context(), `SELECT 2 * count(*) FROM mutation WHERE spent_at > $1`, since).Scan(&n)
		if sum, err2 := host.Spent(t.Context(), s.Names(), time.UnixMilli(since), ""); err != nil || err2 != nil || sum.All != keep.Amount(n) {
			t.Errorf("since %d: %+v is spent, want %d: %v, %v", since, sum, n, err, err2)
		}
	}
}

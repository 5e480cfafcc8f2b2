package postgres_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/internal/pgtest"
	"github.com/keep-run/keep/store/postgres"
)

// Two hosts that are about to make the same call for different workflows at the same
// moment: one of them records it, the other one learns of the first.
func TestRivalsOfTwoHosts(t *testing.T) {
	t.Parallel()
	url := pgtest.SchemaURL(t)
	hosts := []*postgres.DB{openDB(t, url, postgres.Config{}), openDB(t, url, postgres.Config{})}
	for round := range 30 {
		errs := make([]error, len(hosts))
		var wg sync.WaitGroup
		for i, db := range hosts {
			w := keep.WorkflowName(fmt.Sprint("w", round, "-", i))
			id := keep.RunID(fmt.Sprint("run_", w))
			m := keep.Mutation{Key: keep.MutationKey("mut_" + w), Workflow: w, Run: id, Tool: "crm.once", Level: keep.LevelNone, Token: "t",
				Identity: json.RawMessage(fmt.Sprintf(`{"id":%d}`, round)), State: keep.InFlight, Attempts: 1, CallDeadline: time.UnixMilli(9)}
			wg.Go(func() {
				errs[i] = db.Commit(t.Context(), keep.Commit{Workflow: w, At: time.UnixMilli(1), Changes: []keep.Change{
					keep.PutRun{Run: keep.Run{ID: id, Chain: id, Workflow: w, Handler: "h", Kind: keep.Consumer, Phase: keep.Mutating, Status: keep.StatusActive, Mutation: m.Key}},
					keep.Unlike{Key: m.Key, Tools: []keep.ToolName{m.Tool}, Identity: m.Identity},
					keep.PutMutation{Mutation: m, Moves: []keep.Move{{By: "call", To: keep.InFlight}}},
				}})
			})
		}
		wg.Wait()
		refused := 0
		for _, err := range errs {
			if _, ok := errors.AsType[*keep.RivalError](err); ok {
				refused++
			} else if err != nil {
				t.Fatal(err)
			}
		}
		if refused != 1 {
			t.Fatalf("round %d: %v, want one host to record the call and one to be refused (law: once)", round, errs)
		}
	}
}

// What a commit reads after it waited for an identity is what is there then, whatever isolation the server or the URL
// begins transactions with.
func TestRivalsInAnyIsolation(t *testing.T) {
	t.Parallel()
	for _, level := range []string{"repeatable%20read", "serializable"} {
		t.Run(level, func(t *testing.T) {
			t.Parallel()
			url := pgtest.SchemaURL(t)
			openDB(t, url, postgres.Config{})
			other := connect(t, url)
			u := keep.Unlike{Tools: []keep.ToolName{"crm.once"}, Identity: json.RawMessage(`{"id":1}`)}
			lock := postgres.IdentityLock("crm.once", u)
			if _, err := other.Exec(t.Context(), `SELECT pg_advisory_lock($1)`, lock); err != nil {
				t.Fatal(err)
			}
			errs := make(chan error, 2)
			for i := range cap(errs) {
				db := openDB(t, url+"&default_transaction_isolation="+level, postgres.Config{})
				w := keep.WorkflowName(fmt.Sprint("w", i))
				id := keep.RunID(fmt.Sprint("run_", w))
				m := keep.Mutation{Key: keep.MutationKey("mut_" + w), Workflow: w, Run: id, Tool: "crm.once", Level: keep.LevelNone, Token: "t",
					Identity: u.Identity, State: keep.InFlight, Attempts: 1, CallDeadline: time.UnixMilli(9)}
				go func() {
					errs <- db.Commit(t.Context(), keep.Commit{Workflow: w, At: time.UnixMilli(1), Changes: []keep.Change{
						keep.PutRun{Run: keep.Run{ID: id, Chain: id, Workflow: w, Handler: "h", Kind: keep.Consumer, Phase: keep.Mutating, Status: keep.StatusActive, Mutation: m.Key}},
						keep.Unlike{Key: m.Key, Tools: []keep.ToolName{m.Tool}, Identity: m.Identity},
						keep.PutMutation{Mutation: m, Moves: []keep.Move{{By: "call", To: keep.InFlight}}},
					}})
				}()
			}
			for waits := 0; waits < cap(errs); { // until both have begun
				err := other.QueryRow(t.Context(), `SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted
					AND (classid::bigint << 32) | objid::bigint = $1 AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`, lock).Scan(&waits)
				if err != nil {
					t.Fatal(err)
				}
			}
			if _, err := other.Exec(t.Context(), `SELECT pg_advisory_unlock($1)`, lock); err != nil {
				t.Fatal(err)
			}
			first, second := <-errs, <-errs
			var rival *keep.RivalError
			if refused := errors.As(errors.Join(first, second), &rival); !refused || first != nil && second != nil {
				t.Errorf("%v and %v, want one host to record the call and one to be refused (law: once)", first, second)
			}
		})
	}
}

// A commit waits for whoever has the identity under any name of its tool.
func TestRivalsUnderEachName(t *testing.T) {
	t.Parallel()
	url := pgtest.SchemaURL(t)
	db, other := openDB(t, url, postgres.Config{}), connect(t, url)
	u := keep.Unlike{Key: "mut", Tools: []keep.ToolName{"crm.once", "svc.once", "hub.once"}, Identity: json.RawMessage(`{"id":1}`)}
	s := keep.Setting{Key: "mut", Tools: u.Tools, Identity: u.Identity}
	for i := range 2 * len(u.Tools) {
		tool := u.Tools[i/2]
		lock, change := postgres.IdentityLock(tool, u), keep.Change(u)
		if i%2 == 1 {
			lock, change = postgres.SettingLock(tool, s), s
		}
		if _, err := other.Exec(t.Context(), `SELECT pg_advisory_lock($1)`, lock); err != nil {
			t.Fatal(err)
		}
		done := make(chan error, 1)
		go func() {
			done <- db.Commit(t.Context(), keep.Commit{Workflow: "w", At: time.UnixMilli(1), Changes: []keep.Change{change}})
		}()
		for waits := 0; waits == 0; { // until it waits
			select {
			case err := <-done:
				t.Fatalf("Commit = %v while another has the identity under %s, want it to wait (law: once)", err, tool)
			default:
			}
			err := other.QueryRow(t.Context(), `SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted
				AND (classid::bigint << 32) | objid::bigint = $1 AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`, lock).Scan(&waits)
			if err != nil {
				t.Fatal(err)
			}
		}
		if _, err := other.Exec(t.Context(), `SELECT pg_advisory_unlock($1)`, lock); err != nil {
			t.Fatal(err)
		}
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	}
}

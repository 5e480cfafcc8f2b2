package postgres_test

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/internal/pgtest"
	"github.com/keep-run/keep/store/postgres"
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

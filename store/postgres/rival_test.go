package postgres_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/internal/pgtest"
	"github.com/keep-run/keep/store/postgres"
)

// Two hosts that are about to make the same call for different workflows at the same
// moment: one of them records it, the other one learns of the first. So it is if one makes a
// call again whose record has a former name of the tool.
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
			names := []keep.ToolName{"crm.once", "svc.once"}
			if i%2 == 1 {
				slices.Reverse(names)
			}
			m := keep.Mutation{Key: keep.MutationKey("mut_" + w), Workflow: w, Run: id, Tool: names[0], Level: keep.LevelNone, Token: "t",
				Identity: json.RawMessage(fmt.Sprintf(`{"id":%d}`, round)), State: keep.InFlight, Attempts: 1, CallDeadline: time.UnixMilli(9)}
			wg.Go(func() {
				errs[i] = db.Commit(t.Context(), keep.Commit{Workflow: w, At: time.UnixMilli(1), Changes: []keep.Change{
					keep.PutRun{Run: keep.Run{ID: id, Chain: id, Workflow: w, Handler: "h", Kind: keep.Consumer, Phase: keep.Mutating, Status: keep.StatusActive, Mutation: m.Key}},
					keep.Unlike{Key: m.Key, Tools: names, Identity: m.Identity},
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

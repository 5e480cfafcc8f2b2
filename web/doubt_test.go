package web_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/store/memory"
)

// Of a call in doubt whose tool is gone no page says that the service is asked.
func TestADoubtWithoutItsTool(t *testing.T) {
	db := memory.New()
	now := keepNow()
	run := keep.Run{ID: "run_1", Chain: "run_1", Workflow: "w", Version: keep.Version{Major: 1}, Handler: "add", Kind: keep.Consumer, Phase: keep.Mutating,
		Status: keep.StatusReconciliation, Mutation: "mut_1", Error: keep.Failf(keep.ClassUnknown, "no-answer", "reset"), CreatedAt: now, UpdatedAt: now}
	m := keep.Mutation{Key: "mut_1", Workflow: "w", Run: run.ID, Tool: "crm.add", Target: "id=c1", Level: keep.LevelKey, Token: "t", Identity: []byte(`{"id":"c1"}`),
		Payload: []byte(`{"id":"c1"}`), State: keep.NeedsReconcile, Doubted: true, Attempts: 1, CallDeadline: now, CreatedAt: now, UpdatedAt: now, CanReconcile: true,
		NextReconcileAt: now.Add(time.Hour), Error: keep.Failf(keep.ClassUnknown, keep.CodeToolMissing, "reset; there is no tool crm.add in this program or its keep.toml")}
	commit(t, db, "w", now, keep.Deploy{Deployment: keep.Deployment{Workflow: "w", Version: keep.Version{Major: 1}, Code: []byte("x"), CreatedAt: now}}, keep.PutRun{Run: run},
		keep.PutMutation{Mutation: m, Moves: []keep.Move{{At: now, By: "call", To: keep.InFlight}, {At: now, By: "call", From: keep.InFlight, To: keep.NeedsReconcile}}})
	ask := pagesWith(t, db)
	for _, path := range []string{"/", "/runs/run_1", "/runs", "/mutations", "/mutations/mut_1", "/workflows/w"} {
		page := ask("GET", path, nil)
		if page.want(t, http.StatusOK, "there is no tool crm.add"); strings.Contains(page.body, "asked again") {
			t.Errorf("%s says that the service is asked again", path)
		}
	}
}

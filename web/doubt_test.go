package web_test

import (
	"fmt"
	"net/http"
	"net/url"
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

// doubts makes n calls of one tool and one outage that a person is asked about.
func doubts(t *testing.T, db *memory.Store, n int, change func(i int, m *keep.Mutation, q *keep.Escalation)) {
	t.Helper()
	now := keepNow()
	for i := range n {
		id := fmt.Sprint(i)
		w := keep.WorkflowName("w" + id)
		run := keep.Run{ID: keep.RunID("run_" + id), Chain: keep.RunID("run_" + id), Workflow: w, Version: keep.Version{Major: 1}, Handler: "pay", Kind: keep.Consumer, Phase: keep.Mutating,
			Status: keep.StatusReconciliation, Mutation: keep.MutationKey("mut_" + id), Error: &keep.Failure{Class: keep.ClassUnknown, Code: "no-answer", Tool: "bank.pay", Message: "reset"}, CreatedAt: now, UpdatedAt: now}
		m := keep.Mutation{Key: run.Mutation, Workflow: w, Run: run.ID, Tool: "bank.pay", Target: "to=" + id, Level: keep.LevelNone, Token: "t" + id, Identity: []byte(`{"to":"` + id + `"}`),
			Payload: []byte(`{"to":"` + id + `"}`), State: keep.Indeterminate, Doubted: true, Attempts: 1, CallDeadline: now, CreatedAt: now, UpdatedAt: now}
		q := keep.Escalation{ID: keep.EscalationID("esc_" + id), Kind: keep.AskUnknownOutcome, Workflow: w, Run: run.ID, Mutation: m.Key, Question: "Did bank.pay on to=" + id + " happen?",
			Title: "Invoice " + id, Attempted: "bank.pay on to=" + id + " with {}", VerifyByHand: "Look at statement " + id, CreatedAt: now, Choices: []keep.Choice{
				{Action: keep.DidNotHappen, Label: "It didn't happen", Effect: "sends it again"}, {Action: keep.Happened, Label: "It happened", Effect: "sends nothing", Result: keep.ResultOptional}}}
		if change != nil {
			change(i, &m, &q)
		}
		h := keep.Handler{Name: "pay", Kind: keep.Consumer, IgnoresResult: true}
		commit(t, db, w, now, keep.Deploy{Deployment: keep.Deployment{Workflow: w, Version: keep.Version{Major: 1}, Code: []byte("x"), Definition: keep.Definition{Name: w, Handlers: []keep.Handler{h}}, CreatedAt: now}},
			keep.PutRun{Run: run}, keep.PutMutation{Mutation: m, Moves: []keep.Move{{At: now, By: "call", To: keep.InFlight}, {At: now, By: "call", From: keep.InFlight, To: m.State}}}, keep.OpenEscalation{Escalation: q})
	}
}

// Many calls in doubt of one outage are said to have happened at once: those that the person saw, and each for itself. One
// that needs a result, or is over by then, is not answered, and named.
func TestManyDoubtsHappened(t *testing.T) {
	db := memory.New()
	doubts(t, db, 5, func(i int, _ *keep.Mutation, q *keep.Escalation) {
		switch i {
		case 3:
			q.Choices[1].Result = keep.ResultRequired
		case 4:
			q.Attempted += strings.Repeat("x", 3000)
		}
	})
	ask := pagesWith(t, db)
	list := ask("GET", "/inbox/together?cause="+url.QueryEscape("unknown_outcome bank.pay no-answer"), nil)
	list.want(t, http.StatusOK, `value="happened"`, "bank.pay on to=0 with {}", "Invoice 0", "Look at statement 0", `value="esc_0" checked`, `value="esc_3" checked`,
		"needs what the call would have answered", "too long for a list", "those chosen")
	if strings.Contains(list.body, `value="esc_4"`) || strings.Count(list.body, "needs what the call would have answered") != 1 {
		t.Error("the list has a box for what it hides, or says of others than esc_3 that they need a result")
	}
	ask("POST", "/inbox/esc_1", url.Values{"action": {"happened"}, "note": {"first"}}).want(t, http.StatusSeeOther)
	form := url.Values{"action": {"happened"}, "id": {"esc_0", "esc_1", "esc_3", "esc_4"}, "note": {"on the statement"}}
	ask("POST", "/inbox/together", form).want(t, http.StatusBadRequest, "1 of 4 were answered", "esc_1: ", "already decided", "esc_3: ", "esc_4: ", "does not show all")
	for i, want := range []keep.MutationState{keep.Applied, keep.Applied, keep.Indeterminate, keep.Indeterminate, keep.Indeterminate} {
		m, err := db.Mutation(t.Context(), keep.MutationKey(fmt.Sprint("mut_", i)))
		if err != nil || m.State != want {
			t.Errorf("call %d is %s, %v; want %s", i, m.State, err, want)
		}
	}
}

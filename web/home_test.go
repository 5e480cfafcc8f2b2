package web_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/law/lifecycle"
	"github.com/keep-run/keep/store/memory"
)

// stopped puts runs of the handler pay with one event each, which stopped by f.
func stopped(t *testing.T, db *memory.Store, w keep.WorkflowName, n int, status keep.RunStatus, f keep.Failure, at time.Time, more ...keep.Change) {
	t.Helper()
	changes := []keep.Change{keep.Deploy{Deployment: keep.Deployment{Workflow: w, Version: keep.Version{Major: 1}, Hash: string(w), Code: []byte("x"), CreatedAt: at}}}
	for i := range n {
		r := keep.Run{ID: keep.RunID(fmt.Sprintf("run_%s%d", w, i)), Workflow: w, Version: keep.Version{Major: 1}, Handler: "pay", Kind: keep.Consumer, Phase: keep.Preparing, Status: status,
			Error: &f, Lane: keep.KeyLane("pay", fmt.Sprint(i)), Trigger: keep.EventRef{Topic: "due", MessageID: keep.MessageID(fmt.Sprintf("%s-%d", w, i))}, CreatedAt: at, UpdatedAt: at}
		if r.Chain = r.ID; status == keep.StatusTransient {
			r.RetryAt = at.Add(time.Hour)
		}
		changes = append(changes, keep.PutRun{Run: r})
	}
	commit(t, db, w, at, append(changes, more...)...)
}

// The home page lists runs about which nobody is asked, and few of them. What waits for one question with
// others leads to it from each of its pages, and outcomes that are not known from where they are counted.
func TestHomeOfManyThatWait(t *testing.T) {
	db := memory.New()
	now := keepNow()
	spent := keep.Failure{Class: keep.ClassPermission, Code: keep.CodeBudget, Tool: "svc.fax", Budget: "faxes", Message: "it is spent"}
	stopped(t, db, "faxes", 7, keep.StatusApproval, spent, now, keep.OpenEscalation{Escalation: keep.Escalation{
		ID: "esc_budget_faxes_1", Kind: keep.AskBudget, Budget: "faxes", Workflow: "faxes", Run: "run_faxes0", Question: "May it?", CreatedAt: now}})
	stopped(t, db, "flaky", 7, keep.StatusTransient, keep.Failure{Class: keep.ClassTransient, Code: "http-503", Tool: "svc.pay", Message: "503"}, now)
	m := keep.Mutation{Key: "mut_1", Workflow: "flaky", Run: "run_flaky0", Tool: "svc.pay", Level: keep.LevelNone, Token: "t", Identity: []byte(`{}`), Payload: []byte(`{}`),
		State: keep.Indeterminate, Attempts: 1, CallDeadline: now, Doubted: true, CreatedAt: now, UpdatedAt: now}
	commit(t, db, "flaky", now, keep.PutMutation{Mutation: m, Moves: []keep.Move{{At: now, By: "call", To: keep.InFlight}, {At: now, By: "call", From: keep.InFlight, To: keep.Indeterminate}}})
	ask := pagesWith(t, db)
	home := ask("GET", "/", nil)
	home.want(t, http.StatusOK, "Failing, with nothing to decide", "<bdi>flaky-0</bdi>", `<a href="/runs?open=1">and 2 more</a>`,
		`href="/mutations?state=indeterminate"><b>1</b>outcome that only a person can tell`, `href="/mutations?state=needs_reconcile"><b>0</b>outcomes being looked up`)
	if n := strings.Count(home.body, `id="fail-`); n != 5 || strings.Contains(home.body, `id="fail-run_faxes`) {
		t.Errorf("the home page has %d runs about which nobody is asked, or one about which somebody is", n)
	}
	ask("GET", "/runs/run_faxes3", nil).want(t, http.StatusOK, `href="/inbox/esc_budget_faxes_1">Decide`)
	if list := ask("GET", "/runs", nil); strings.Count(list.body, `<a href="/inbox/esc_budget_faxes_1">Decide</a>`) != 7 {
		t.Errorf("not each run in the list leads to the question:\n%s", list.body)
	}
	ask("GET", "/mutations?state=indeterminate", nil).want(t, http.StatusOK, "mut_1")
}

// What an attempt waited for is not what it is after another one took over: its page says which one did, and
// neither lists nor their numbers have it among those that wait.
func TestAttemptTakenOver(t *testing.T) {
	db := memory.New()
	now := keepNow()
	stopped(t, db, "pays", 2, keep.StatusApproval, keep.Failure{Class: keep.ClassPermission, Code: "approval-needed", Tool: "svc.pay", Message: "it waits"}, now)
	first, err := db.Run(t.Context(), "run_pays0")
	if err != nil {
		t.Fatal(err)
	}
	next, closed := lifecycle.NextAttempt(first, keep.Mutation{}, "run_pays9", first.Version, now)
	next.Phase, next.Status, next.Closed = keep.Committed, keep.StatusCommitted, true
	commit(t, db, "pays", now, keep.PutRun{Run: closed}, keep.PutRun{Run: next})
	ask := pagesWith(t, db)
	page := ask("GET", "/runs/run_pays0", nil)
	page.want(t, http.StatusOK, `href="/runs/run_pays9">by attempt 2</a>`, `<span class="pill ">taken over</span>`)
	if strings.Contains(page.body, `pill ask`) {
		t.Error("an attempt that is over waits for an approval")
	}
	list := ask("GET", "/runs?status=paused:approval", nil)
	list.want(t, http.StatusOK, "waits for approval (1)", "committed (1)", "/runs/run_pays1")
	if strings.Contains(list.body, "/runs/run_pays0") {
		t.Error("an attempt that is over is among those that wait for an approval")
	}
}

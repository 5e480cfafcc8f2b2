package web_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/api/access"
	"github.com/keep-run/keep/store/memory"
)

// What a page says is to be done next is a link to where it is done, and only what its reader may do is offered to him.
func TestWhatToDoNext(t *testing.T) {
	db := memory.New()
	now := keepNow()
	commit(t, db, "w", now, keep.Deploy{Deployment: keep.Deployment{Workflow: "w", Version: keep.Version{Major: 1}, Code: []byte("x"), CreatedAt: now}})
	for id, q := range map[string]struct {
		kind    keep.EscalationKind
		status  keep.RunStatus
		f       *keep.Failure
		actions []keep.Action
		call    keep.MutationKey
	}{
		"logic":   {keep.AskLogic, keep.StatusLogic, &keep.Failure{Class: keep.ClassLogic, Code: "throw"}, []keep.Action{keep.Retry, keep.Skip}, ""},
		"account": {keep.AskPermission, keep.StatusPerson, &keep.Failure{Class: keep.ClassPermission, Code: keep.CodeAccount, Account: "crm", Tool: "crm.add", Message: "there is no account crm"}, []keep.Action{keep.Retry}, "mut_1"},
		"budget":  {keep.AskBudget, keep.StatusApproval, &keep.Failure{Class: keep.ClassPermission, Code: keep.CodeBudget, Tool: "crm.add", Budget: "day"}, []keep.Action{keep.Allow, keep.Raise}, ""},
	} {
		run := keep.Run{ID: keep.RunID("run_" + id), Chain: keep.RunID("run_" + id), Workflow: "w", Version: keep.Version{Major: 1}, Handler: "add", Kind: keep.Consumer, Phase: keep.Prepared,
			Mutation: q.call, Status: q.status, Error: q.f, Lane: keep.ChainLane(keep.RunID("run_" + id)), CreatedAt: now, UpdatedAt: now}
		e := keep.Escalation{ID: keep.EscalationID("esc_" + id), Kind: q.kind, Workflow: "w", Run: run.ID, Mutation: q.call, Question: "What now?", Why: q.f.Message, CreatedAt: now}
		if q.call != "" {
			m := keep.Mutation{Key: q.call, Workflow: "w", Run: run.ID, Tool: "crm.add", Target: "id=1", Level: keep.LevelNone, Token: "t", Identity: []byte(`{}`), Payload: []byte(`{}`),
				State: keep.Failed, ResolvedBy: "call", Attempts: 1, CallDeadline: now, CreatedAt: now, UpdatedAt: now, Error: q.f}
			commit(t, db, "w", now, keep.PutMutation{Mutation: m, Moves: []keep.Move{{At: now, By: "call", To: keep.InFlight}, {At: now, By: "call", From: keep.InFlight, To: m.State}}})
		}
		for _, a := range q.actions {
			e.Choices = append(e.Choices, keep.Choice{Action: a, Label: string(a)})
		}
		commit(t, db, "w", now, keep.PutRun{Run: run}, keep.OpenEscalation{Escalation: e})
	}
	w := shown(t, db)
	const deploys, deployNot = `href="/workflows/w/deploy"`, "Who has the role author deploys"
	const raises, raiseNot = `value="raise"`, "needs the role admin"
	for role, pages := range map[access.Role]map[string]struct{ has, not []string }{
		access.Operator: {
			"/inbox/esc_logic":   {[]string{deployNot}, []string{deploys}},
			"/inbox/esc_account": {[]string{`href="/accounts"`, "not sent; looked up 0 times"}, []string{"made 1 time"}},
			"/runs/run_account":  {[]string{`href="/accounts"`}, nil},
			"/inbox/esc_budget":  {[]string{`value="allow"`, raiseNot}, []string{raises, `name="limit"`}},
			"/inbox":             {[]string{deployNot, `href="/accounts"`, raiseNot}, []string{deploys, raises}},
		},
		access.Author: {"/inbox/esc_logic": {[]string{deploys}, []string{deployNot}}},
		access.Admin: {
			"/inbox/esc_logic":  {[]string{deploys}, []string{deployNot}},
			"/inbox/esc_budget": {[]string{raises, `name="limit"`}, []string{raiseNot}},
			"/inbox":            {[]string{deploys, raises}, []string{deployNot, raiseNot}},
		},
	} {
		for path, want := range pages {
			page := w.as("ada", role).get(path)
			_, page.body, _ = strings.Cut(page.body, `<main id="main"`)
			page.body, _, _ = strings.Cut(page.body, "</main>")
			page.want(t, http.StatusOK, want.has...)
			for _, not := range want.not {
				if strings.Contains(page.body, not) {
					t.Errorf("%s for %s says %s", path, role, not)
				}
			}
		}
	}
}

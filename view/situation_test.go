package view_test

import (
	"testing"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/view"
)

// A run that waits for the answer to a question about something that it shares with other runs has that
// question, also if a run of another workflow asked it. About one that is tried again nobody is asked.
func TestSharedQuestion(t *testing.T) {
	at := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	s, commit := storeAt(t, at)
	run := func(w keep.WorkflowName, status keep.RunStatus, f keep.Failure) {
		t.Helper()
		commit(w, keep.Deploy{Deployment: keep.Deployment{Workflow: w, Version: keep.Version{Major: 1}, Hash: string(w), CreatedAt: at, Definition: keep.Definition{Name: w}}})
		r := keep.Run{ID: keep.RunID("run_" + w), Workflow: w, Version: keep.Version{Major: 1}, Handler: "act", Kind: keep.Consumer, Phase: keep.Prepared, Status: status, Error: &f, CreatedAt: at, UpdatedAt: at}
		if r.Chain = r.ID; status == keep.StatusTransient {
			r.RetryAt = at.Add(time.Hour)
		}
		commit(w, keep.PutRun{Run: r})
	}
	down := keep.Failure{Class: keep.ClassTransient, Code: "http-503", Tool: "crm.create", Message: "503", Outage: true}
	run("first", keep.StatusApproval, keep.Failure{Class: keep.ClassPermission, Code: keep.CodeBudget, Tool: "fax.send", Budget: "faxes"})
	run("budget", keep.StatusApproval, keep.Failure{Class: keep.ClassPermission, Code: keep.CodeBudget, Tool: "fax.send", Budget: "faxes"})
	run("breaker", keep.StatusPerson, keep.Failure{Class: keep.ClassPermission, Code: keep.CodeBreaker, Tool: "svc.note"})
	run("account", keep.StatusPerson, keep.Failure{Class: keep.ClassPermission, Code: keep.CodeReconnect, Tool: "mail.send", Account: "my_mail", Generation: 3})
	run("connection", keep.StatusTransient, down)
	run("alone", keep.StatusTransient, keep.Failure{Class: keep.ClassTransient, Code: "http-503", Tool: "other.create"})
	run("another", keep.StatusApproval, keep.Failure{Class: keep.ClassPermission, Code: keep.CodeBudget, Tool: "fax.send", Budget: "letters"})
	ask := func(q keep.Escalation) {
		t.Helper()
		q.Question, q.CreatedAt = "May it?", at
		commit(q.Workflow, keep.OpenEscalation{Escalation: q})
	}
	ask(keep.Escalation{ID: "esc_budget_faxes_1", Kind: keep.AskBudget, Budget: "faxes", Workflow: "first", Run: "run_first"})
	ask(keep.Escalation{ID: "esc_breaker_svc.note_1", Kind: keep.AskBreaker, Workflow: "first", Run: "run_first"})
	ask(keep.Escalation{ID: "esc_connection", Kind: keep.AskConnection, Connection: "crm", Workflow: "first", Run: "run_gone"})
	ask(keep.Escalation{ID: "esc_reconnect_my_mail_0_3", Kind: keep.AskReconnect})

	o, err := view.Read(t.Context(), s, at)
	if err != nil {
		t.Fatal(err)
	}
	var failing []keep.WorkflowName
	for _, r := range o.Failing() {
		failing = append(failing, r.Workflow)
	}
	if len(failing) != 2 || failing[0] != "alone" || failing[1] != "another" {
		t.Errorf("nobody is asked about runs of %q", failing)
	}
	for w, want := range map[keep.WorkflowName]keep.EscalationID{
		"first": "esc_budget_faxes_1", "budget": "esc_budget_faxes_1", "breaker": "esc_breaker_svc.note_1", "connection": "esc_connection",
		"account": "esc_reconnect_my_mail_0_3", "alone": "", "another": "",
	} {
		one, err := view.ReadSituation(t.Context(), s, w, 100)
		if err != nil {
			t.Fatal(err)
		}
		var got keep.EscalationID
		if q := one.Runs[w][0].Question; q != nil {
			got = q.ID
		}
		if got != want {
			t.Errorf("the run of %s waits for the answer to %q, not to %q", w, got, want)
		}
	}
}

// A call in doubt that waits for the answer whether a secret is of the same user, or whether a tool that its server changed may be
// called, has that question: nobody else is asked about it, and it says so.
func TestQuestionAboutADoubtOfMany(t *testing.T) {
	at := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	s, commit := storeAt(t, at)
	for w, code := range map[keep.WorkflowName]string{"user": keep.CodeSameUser, "other": keep.CodeSameUser, "tool": keep.CodeToolChanged} {
		r := keep.Run{ID: keep.RunID("run_" + w), Chain: keep.RunID("run_" + w), Workflow: w, Version: keep.Version{Major: 1}, Handler: "act", Kind: keep.Consumer, Phase: keep.Mutating, Status: keep.StatusReconciliation,
			Mutation: keep.MutationKey("mut_" + w), CreatedAt: at, UpdatedAt: at}
		m := keep.Mutation{Key: r.Mutation, Workflow: w, Run: r.ID, Tool: "crm.add", Level: keep.LevelKey, CanReconcile: true, Token: string(w), Identity: []byte(`{}`), Payload: []byte(`{}`), Pin: []byte(`{"as":{"secret CRM_KEY":"c0ffee"}}`), PinHash: "00",
			State: keep.NeedsReconcile, Doubted: true, Attempts: 1, CallDeadline: at, NextReconcileAt: at.Add(time.Hour), CreatedAt: at, UpdatedAt: at, Error: &keep.Failure{Class: keep.ClassPermission, Code: code, Tool: "crm.add", Message: "a person is asked"}}
		if w == "other" {
			m.Pin = []byte(`{"as":{"secret SHOP_KEY":"c0ffee"}}`)
		}
		commit(w, keep.Deploy{Deployment: keep.Deployment{Workflow: w, Version: keep.Version{Major: 1}, Hash: string(w), CreatedAt: at, Definition: keep.Definition{Name: w}}}, keep.PutRun{Run: r},
			keep.PutMutation{Mutation: m, Moves: []keep.Move{{At: at, By: "call", To: keep.InFlight}, {At: at, By: "call", From: keep.InFlight, To: keep.NeedsReconcile}}})
	}
	commit("", keep.OpenEscalation{Escalation: keep.Escalation{ID: "esc_user_1", Kind: keep.AskPermission, Connection: "crm", Title: "secret CRM_KEY", Question: "Is it of the same user?", CreatedAt: at}})
	commit("tool", keep.OpenEscalation{Escalation: keep.Escalation{ID: "esc_tool_1", Kind: keep.AskToolChanged, Workflow: "tool", Connection: "crm", Title: "crm.add", Question: "May agents call it?", CreatedAt: at}})
	o, err := view.Read(t.Context(), s, at)
	if err != nil {
		t.Fatal(err)
	}
	if failing := o.Failing(); len(failing) != 1 || failing[0].Workflow != "other" {
		t.Errorf("nobody is asked about %d runs, want that of other alone", len(failing))
	}
	for w, want := range map[keep.WorkflowName]keep.EscalationID{"user": "esc_user_1", "tool": "esc_tool_1"} {
		story, err := view.Why(t.Context(), s, "run_"+string(w))
		if err != nil || len(story.Questions) != 1 || story.Questions[0] != want {
			t.Errorf("the run of %s waits for the answers to %q, %v, want %s", w, story.Questions, err, want)
		}
	}
}

package view_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/view"
)

// A call in doubt that no open run waits for is among the doubts however many calls of open runs are newer, and one that an open run
// waits for is not.
func TestDoubtsBehindMany(t *testing.T) {
	at := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	s, commit := storeAt(t, at)
	commit("w", keep.Deploy{Deployment: keep.Deployment{Workflow: "w", Version: keep.Version{Major: 1}, Hash: "h", CreatedAt: at, Definition: keep.Definition{Name: "w"}}})
	doubt := func(id string, kind keep.Kind, item string, closed bool) {
		t.Helper()
		r := keep.Run{ID: keep.RunID("run_" + id), Chain: keep.RunID("run_" + id), Lane: keep.ChainLane(keep.RunID("run_" + id)), Workflow: "w", Version: keep.Version{Major: 1}, Handler: "act", Kind: kind,
			Phase: keep.Mutating, Status: keep.StatusReconciliation, Closed: closed, CreatedAt: at, UpdatedAt: at, Mutation: keep.MutationKey("mut_" + id)}
		if kind == keep.Job {
			r.Phase, r.Lane = keep.Running, keep.WorkflowLane
		}
		if closed {
			r.Phase, r.Status, r.Mutation = keep.Committed, keep.StatusCommitted, ""
		}
		m := keep.Mutation{Key: keep.MutationKey("mut_" + id), Workflow: "w", Run: r.ID, Item: item, Tool: "x.y", Level: keep.LevelWitness, Token: id, Pin: []byte(`{}`), PinHash: "00",
			State: keep.NeedsReconcile, Doubted: true, Attempts: 1, NextReconcileAt: at.Add(time.Hour), CallDeadline: at, CreatedAt: at, UpdatedAt: at}
		if item != "" {
			m.Attempt = 1
			commit("w", keep.PutItem{Item: keep.Item{Workflow: "w", ID: item, Status: keep.ItemProcessing, Attempt: 1, CreatedAt: at, UpdatedAt: at}})
		}
		commit("w", keep.PutRun{Run: r}, keep.PutMutation{Mutation: m})
	}
	doubt("detached", keep.Job, "17", true)
	doubt("awaited", keep.Job, "18", false)
	for i := range 1001 {
		doubt(fmt.Sprintf("later%04d", i), keep.Consumer, "", false)
	}
	o, err := view.Read(t.Context(), s, at)
	if err != nil {
		t.Fatal(err)
	}
	var keys []keep.MutationKey
	for _, m := range o.Doubts {
		keys = append(keys, m.Key)
	}
	if len(keys) != 1 || keys[0] != "mut_detached" {
		t.Errorf("the calls that no open run waits for are %v", keys)
	}
}

// A call in doubt that waits for the answer whether an account is of the same user says which question that is, however many
// questions of its kind are newer.
func TestUserQuestionBehindMany(t *testing.T) {
	at := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	s, commit := storeAt(t, at)
	commit("", keep.OpenEscalation{Escalation: keep.Escalation{ID: "esc_user_1", Kind: keep.AskPermission, Title: "account:mail", Question: "Is it the same user?", CreatedAt: at}})
	f := &keep.Failure{Class: keep.ClassPermission, Code: keep.CodeSameUser, Tool: "mail.send"}
	r := keep.Run{ID: "run_1", Chain: "run_1", Workflow: "w", Version: keep.Version{Major: 1}, Handler: "act", Kind: keep.Consumer, Phase: keep.Mutating, Status: keep.StatusReconciliation,
		Mutation: "mut_1", Error: f, CreatedAt: at, UpdatedAt: at}
	m := keep.Mutation{Key: "mut_1", Workflow: "w", Run: r.ID, Tool: "mail.send", Level: keep.LevelWitness, Token: "t", Pin: []byte(`{"as":{"account:mail":"1"}}`), PinHash: "00", State: keep.NeedsReconcile,
		CanReconcile: true, Doubted: true, Error: f, Attempts: 1, NextReconcileAt: at.Add(time.Hour), CallDeadline: at, CreatedAt: at, UpdatedAt: at}
	commit("w", keep.Deploy{Deployment: keep.Deployment{Workflow: "w", Version: keep.Version{Major: 1}, Hash: "h", CreatedAt: at, Definition: keep.Definition{Name: "w"}}},
		keep.PutRun{Run: r}, keep.PutMutation{Mutation: m})
	for i := range view.MaxQuestions {
		id := fmt.Sprintf("%04d", i)
		commit("w", keep.OpenEscalation{Escalation: keep.Escalation{ID: keep.EscalationID("esc_" + id), Kind: keep.AskPermission, Workflow: "w", Run: keep.RunID("run_of_" + id), Question: "Refused.", CreatedAt: at}})
	}
	runs, err := view.Explain(t.Context(), s, []keep.Run{r})
	if err != nil {
		t.Fatal(err)
	}
	if q := runs[0].Question; q == nil || q.ID != "esc_user_1" {
		t.Errorf("the question about the run is %+v", q)
	}
}

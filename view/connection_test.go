package view_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/law/lifecycle"
	"github.com/keep-run/keep/law/limit"
	"github.com/keep-run/keep/view"
)

// What a run waits for is what is known of its connection now, and not what was known when the
// run stopped.
func TestWaitOfALimit(t *testing.T) {
	at := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	later := at.Add(time.Hour)
	down := limit.State{Shut: &limit.Shut{Kind: limit.ByDown, Since: at, Until: later, Why: "connection refused", Tries: 3}}
	run := func(status keep.RunStatus, tool keep.ToolName, until time.Time) keep.Run {
		return keep.Run{ID: "run_1", Kind: keep.Consumer, Phase: keep.Prepared, Status: status, RetryAt: until, UpdatedAt: at,
			Error: &keep.Failure{Class: keep.ClassTransient, Code: "http-503", Tool: tool, Message: "503"}}
	}
	doubt := keep.Mutation{Key: "w/key", Tool: "crm.create", State: keep.NeedsReconcile, UpdatedAt: at, NextReconcileAt: at.Add(time.Second)}
	inDoubt := run(keep.StatusReconciliation, "crm.create", time.Time{})
	inDoubt.Mutation = doubt.Key
	for _, c := range []struct {
		name  string
		run   keep.Run
		m     keep.Mutation
		kind  lifecycle.WaitKind
		until time.Time
		why   string
	}{
		{"it was to be tried sooner", run(keep.StatusTransient, "crm.create", at.Add(time.Second)), keep.Mutation{}, lifecycle.WaitsForLimit, later, "crm, which does not answer: connection refused"},
		{"it is tried later than the connection", run(keep.StatusTransient, "crm.create", later.Add(time.Hour)), keep.Mutation{}, lifecycle.WaitsForRetry, later.Add(time.Hour), "crm.create: 503"},
		{"of another connection", run(keep.StatusTransient, "mail.send", at.Add(time.Second)), keep.Mutation{}, lifecycle.WaitsForRetry, at.Add(time.Second), "mail.send: 503"},
		{"a lookup", inDoubt, doubt, lifecycle.WaitsForLookup, later, "crm, which does not answer: connection refused"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := view.Limits{"crm": down}.WaitOf(c.run, c.m)
			if w.Kind != c.kind || !w.Until.Equal(c.until) || w.Why != c.why {
				t.Errorf("it waits for %q until %s: %q", w.Kind, w.Until, w.Why)
			}
			if w := (view.Limits{"crm": {}}).WaitOf(c.run, c.m); w != lifecycle.WaitOf(c.run, c.m) {
				t.Errorf("the connection is used, and it waits for %+v", w)
			}
		})
	}
}

// A connection has the runs that wait for it: those that wait for a limit, and while nobody uses
// it those that are tried again.
func TestReadConnections(t *testing.T) {
	at := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	s, commit := storeAt(t, at)
	for name, f := range map[keep.WorkflowName]*keep.Failure{
		"limited": {Class: keep.ClassTransient, Code: keep.CodeLimit, Tool: "crm.create", Message: "the limit of crm, 1/h"},
		"failed":  {Class: keep.ClassTransient, Code: "http-500", Tool: "crm.create", Message: "500"},
		"other":   {Class: keep.ClassTransient, Code: "http-500", Tool: "mail.send", Message: "500"},
	} {
		commit(name, keep.PutRun{Run: keep.Run{ID: keep.RunID("run_" + name), Chain: keep.RunID("run_" + name), Workflow: name, Handler: "act", Kind: keep.Consumer, Phase: keep.Preparing,
			Status: keep.StatusTransient, Error: f, RetryAt: at.Add(time.Minute), CreatedAt: at, UpdatedAt: at}})
	}
	rev := 0
	read := func(state limit.State) view.Connection {
		t.Helper()
		text, err := json.Marshal(state)
		if err == nil {
			err = s.PutGate(t.Context(), keep.Gate{Connection: "crm", State: text, Rev: rev})
			rev++
		}
		if err != nil {
			t.Fatal(err)
		}
		all, err := view.ReadConnections(t.Context(), s)
		if err != nil || len(all) != 1 {
			t.Fatalf("connections %+v, %v", all, err)
		}
		return all[0]
	}
	want := view.Connection{Name: "crm", State: view.Up, Waiting: []keep.RunID{"run_limited"}}
	if diff := cmp.Diff(want, read(limit.State{})); diff != "" {
		t.Error(diff)
	}
	want = view.Connection{Name: "crm", State: view.Slow, Since: at, NextProbe: at.Add(time.Hour), Why: "429", Waiting: []keep.RunID{"run_failed", "run_limited"}}
	if diff := cmp.Diff(want, read(limit.State{Shut: &limit.Shut{Kind: limit.BySlow, Since: at, Until: at.Add(time.Hour), Why: "429"}})); diff != "" {
		t.Error(diff)
	}
}

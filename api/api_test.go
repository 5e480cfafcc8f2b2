package api_test

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/api"
	"github.com/keep-run/keep/store/memory"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// noon has a zone and microseconds, which no object shows.
var noon = time.Date(2026, 11, 20, 13, 0, 0, 5_006_007, time.FixedZone("CET", 3600))

// full are nouns with every field set, so that nothing can be forgotten.
var (
	fullFailure = &keep.Failure{Class: keep.ClassTransient, Code: "http-503", Message: "try later", Tool: "crm.create",
		At: "a.js:1:2", RetryAfter: time.Second}

	fullRun = keep.Run{
		ID: "run_2", Chain: "run_1", RetryOf: "run_1", Workflow: "invoices", Version: keep.Version{Major: 1, Minor: 2},
		Handler: "addRow", Kind: keep.Consumer, Phase: keep.Mutating, Status: keep.StatusTransient,
		Trigger:      keep.EventRef{Topic: "email.received", MessageID: "m1"},
		Reservations: []keep.Reservation{{Topic: "email.received", IDs: []keep.MessageID{"m1"}}, {Topic: "other"}},
		Prepared:     json.RawMessage(`{"data":{"b":1,"a":2}}`), Mutation: "mut_1", Title: "Add", WakeAt: noon, SeenSeq: 4,
		Error: fullFailure, RetryAt: noon.Add(time.Minute), Retries: 1, Crashes: 1, Rev: 3, CreatedAt: noon, UpdatedAt: noon,
	}

	fullMutation = keep.Mutation{
		Key: "mut_1", Workflow: "invoices", Run: "run_2", Item: "invoice:1", Attempt: 2, Tool: "crm.create", Connector: "http",
		Level: keep.LevelWitness, Target: "contacts/1", Identity: json.RawMessage(`{"id":1}`), Subkey: "s",
		Payload: json.RawMessage(`{"id":1,"name":"Ada"}`), PayloadHash: "abc", Token: "tok", Title: "Create Ada",
		State: keep.Applied, Result: json.RawMessage(`{"ok":true}`), Warning: "cut", Error: fullFailure, Attempts: 2,
		ReconcileAttempts: 1, NextReconcileAt: noon, CallDeadline: noon, SettleAfter: time.Second, CanReconcile: true,
		ResolvedBy: "reconcile", Rev: 1, CreatedAt: noon, UpdatedAt: noon,
		Pin: json.RawMessage(`{"connector":"crm","level":"C","pack":{"name":"crm","version":"1","hash":"sha256:ab"}}`),
	}

	fullMoves = []keep.Move{
		{At: noon, By: "call", To: keep.InFlight, Evidence: "sent"},
		{At: noon, By: "reconcile", From: keep.InFlight, To: keep.Applied, Evidence: "happened", Detail: "found it"},
	}

	fullEvent = keep.Event{Workflow: "invoices", Topic: "email.received", MessageID: "m1", Seq: 7,
		Payload: json.RawMessage(`{"x":1}`), Status: keep.EventPending, ReservedBy: "run_1", CreatedBy: "run_0",
		CausedBy: []keep.InputID{"in_1"}, CreatedAt: noon, UpdatedAt: noon}

	fullInput = keep.Input{ID: "in_1", Workflow: "invoices", Source: "mail", Type: "email", ExternalID: "<1@x>",
		Title: "Email from alice", Status: keep.InputPending, CreatedAt: noon}

	fullItem = keep.Item{Workflow: "invoices", ID: "invoice:1", Title: "Remind", Status: keep.ItemAttention, Attempt: 2,
		Rev: 1, CreatedAt: noon, UpdatedAt: noon}

	fullEscalation = keep.Escalation{ID: "esc_1", Kind: keep.AskUnknownOutcome, Workflow: "invoices", Run: "run_2",
		Mutation: "mut_1", Item: "invoice:1", Title: "Create Ada", Question: "Did it happen?", Attempted: "crm.create", Why: "reset",
		CanVerify: true, VerifyByHand: "look", Choices: []keep.Choice{{Action: keep.Skip, Label: "Skip", Effect: "continues"}},
		PayloadHash: "abc", CreatedAt: noon, ClosedAt: noon, Decision: &keep.Decision{Action: keep.Skip}}

	fullDeployment = keep.Deployment{Workflow: "invoices", Version: keep.Version{Major: 1, Minor: 2}, Hash: "abc", Entry: "a.js",
		CreatedAt: noon, Definition: keep.Definition{Name: "invoices", Topics: []keep.TopicName{"email.received"},
			Handlers: []keep.Handler{
				{Name: "poll", Kind: keep.Producer, Schedule: keep.Schedule{Interval: 5 * time.Minute}},
				{Name: "addRow", Kind: keep.Consumer, Subscribe: []keep.TopicName{"email.received"}, Publishes: []keep.TopicName{}},
				{Name: "remind", Kind: keep.Job, Schedule: keep.Schedule{Cron: "0 9 * * *", Timezone: "Europe/Berlin"}},
			}}}

	fullStates = []keep.HandlerState{
		{Handler: "addRow", Kind: keep.Consumer, WakeAt: noon, LastRun: "run_1", LastAt: noon},
		{Handler: "poll", Kind: keep.Producer, NextAt: noon},
		{Handler: "remind", Kind: keep.Job, NextAt: noon.Add(time.Hour), RequestedAt: noon},
	}
)

// Each object has exactly the documented fields, also when there is
// nothing to say.
func TestGolden(t *testing.T) {
	wf := keep.Workflow{Name: "invoices", Version: fullDeployment.Version, Paused: true, CreatedAt: noon, UpdatedAt: noon}
	for name, v := range map[string]any{
		"run":              api.RunOf(fullRun, fullMutation),
		"run_empty":        api.RunOf(keep.Run{ID: "run_1", Closed: true, CreatedAt: noon, UpdatedAt: noon}, keep.Mutation{}),
		"mutation":         api.MutationOf(fullMutation).WithHistory(fullMoves),
		"mutation_listed":  api.MutationOf(fullMutation),
		"mutation_empty":   api.MutationOf(keep.Mutation{CreatedAt: noon, UpdatedAt: noon}).WithHistory(nil),
		"event":            api.EventOf(fullEvent),
		"event_empty":      api.EventOf(keep.Event{CreatedAt: noon}),
		"input":            api.InputOf(fullInput, keep.Progress{Outputs: []keep.Mutation{{Key: "mut_1"}}, Events: []keep.Event{{Status: keep.EventSkipped}, {Status: keep.EventConsumed}}}),
		"input_empty":      api.InputOf(keep.Input{CreatedAt: noon}, keep.Progress{}),
		"item":             api.ItemOf(fullItem, []keep.MutationKey{"mut_1"}),
		"item_empty":       api.ItemOf(keep.Item{UpdatedAt: noon}, nil),
		"escalation":       api.EscalationOf(fullEscalation),
		"escalation_empty": api.EscalationOf(keep.Escalation{CreatedAt: noon}),
		"host": api.HostOf(keep.Host{ID: "host_1", Name: "a:7", Version: "1.2.3", StartedAt: noon, Until: noon.Add(time.Minute), Draining: true},
			[]keep.Lease{{Workflow: "b", Host: "host_1", Epoch: 2, Since: noon}, {Workflow: "c", Host: "host_2"}, {Workflow: "a", Host: "host_1", Epoch: 1, Since: noon}}, noon),
		"topic":          api.TopicOf(keep.TopicCount{Workflow: "invoices", Topic: "t", Pending: 1, Reserved: 2, Consumed: 3, Skipped: 4}, []keep.HandlerName{"addRow"}),
		"workflow":       api.WorkflowOf(wf, fullDeployment, fullStates, []keep.Run{fullRun}),
		"workflow_empty": api.WorkflowOf(keep.Workflow{CreatedAt: noon, UpdatedAt: noon}, keep.Deployment{}, nil, nil),
		"version":        api.VersionsOf(fullDeployment.Version, []keep.Deployment{fullDeployment}, nil)[0],
		"log_line":       api.LogLineOf(keep.LogLine{Run: "run_1", At: noon, Level: "warn", Text: "hm", Where: "a.js:1:2"}),
	} {
		t.Run(name, func(t *testing.T) { golden(t, name, v) })
	}
}

func golden(t *testing.T, name string, v any) {
	t.Helper()
	got, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	got = append(got, '\n')
	file := filepath.Join("testdata", name+".json")
	if *update {
		if err := os.WriteFile(file, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("%s (-want +got; -update rewrites):\n%s", file, diff)
	}
}

func TestTimeRoundTrip(t *testing.T) {
	var back api.Time
	data, err := json.Marshal(api.Time(noon))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(data, &back); err != nil || back.String() != "2026-11-20T12:00:00.005Z" {
		t.Errorf("%s came back as %s, %v", data, back, err)
	}
}

// The lists and what they look up, over a store.
func TestRead(t *testing.T) {
	ctx := t.Context()
	s := storeWithRun(t)
	runs, next, err := api.ListRuns(ctx, s, keep.RunFilter{}, keep.Page{})
	if err != nil || next != "" || len(runs) != 1 || runs[0].WaitsFor == nil {
		t.Errorf("ListRuns = %+v, %q, %v, want one run that waits", runs, next, err)
	}
	if _, err := api.ShowRun(ctx, s, "run_none"); !errors.Is(err, keep.ErrNotFound) {
		t.Errorf("ShowRun of nothing = %v, want not found", err)
	}
	if _, err := api.ShowWorkflow(ctx, s, "nobody"); !errors.Is(err, keep.ErrNotFound) {
		t.Errorf("ShowWorkflow of nothing = %v, want not found", err)
	}
	ws, err := api.ListWorkflows(ctx, s)
	if err != nil || len(ws) != 1 || ws[0].OpenRun == nil || *ws[0].OpenRun != "run_1" {
		t.Errorf("ListWorkflows = %+v, %v, want one with an open run", ws, err)
	}
	for _, empty := range []func() (int, error){
		func() (int, error) {
			v, _, err := api.ListInputs(ctx, s, keep.InputFilter{}, keep.Page{})
			return len(v), err
		},
		func() (int, error) {
			v, _, err := api.ListItems(ctx, s, keep.ItemFilter{}, keep.Page{})
			return len(v), err
		},
		func() (int, error) {
			v, _, err := api.ListMutations(ctx, s, keep.MutationFilter{}, keep.Page{})
			return len(v), err
		},
	} {
		if n, err := empty(); n != 0 || err != nil {
			t.Errorf("a list of nothing = %d, %v", n, err)
		}
	}
}

// storeWithRun returns a store with a workflow and its open run.
func storeWithRun(t *testing.T) *memory.Store {
	t.Helper()
	s := memory.New()
	d := fullDeployment
	d.Code = []byte("x")
	run := keep.Run{ID: "run_1", Chain: "run_1", Workflow: "invoices", Version: d.Version, Handler: "poll", Kind: keep.Producer,
		Phase: keep.Running, Status: keep.StatusActive, CreatedAt: noon, UpdatedAt: noon}
	err := s.Commit(context.WithoutCancel(t.Context()), keep.Commit{Workflow: "invoices", At: noon, Changes: []keep.Change{
		keep.Deploy{Deployment: d}, keep.PutRun{Run: run},
	}})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

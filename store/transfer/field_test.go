package transfer_test

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/law/key"
	"github.com/keep-run/keep/store/transfer"
)

// TestEveryField moves a record of each kind that has a value in every field: from a file
// to Postgres, and back. A field that a store forgets is seen here.
func TestEveryField(t *testing.T) {
	t.Parallel()
	want := full()
	for i, r := range want {
		if transfer.KindOf(r) != i {
			t.Fatalf("record %d is a %T", i, r)
		}
		noZero(t, reflect.TypeOf(r).String(), reflect.ValueOf(r))
	}
	from, over, back := unchecked{file(t)}, unchecked{schema(t)}, unchecked{file(t)}
	mark := transfer.Mark{State: transfer.Incoming, Store: "store"}
	if err := from.Receive(ctx, mark, func(s transfer.Sink) error {
		for _, r := range want {
			if err := s.Add(ctx, []transfer.Record{r}); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	held, err := from.Hold(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := held.Set(ctx, transfer.Mark{}); err != nil {
		t.Fatal(err)
	}
	if err := held.Release(); err != nil {
		t.Fatal(err)
	}
	for i, p := range []place{from, over, back} {
		if i > 0 {
			if _, err := mover.Copy(ctx, []place{from, over, back}[i-1], p); err != nil {
				t.Fatal(err)
			}
		}
		if diff := cmp.Diff(want, records(t, p)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", p.Name(), diff)
		}
	}
}

// records reads all that is at a place, without what each database numbers in its own way.
func records(t *testing.T, p place) (list []transfer.Record) {
	t.Helper()
	held, err := p.Hold(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer held.Release()
	if err := held.Records(ctx, func(r transfer.Record) error {
		switch v := r.(type) {
		case keep.Event:
			v.Seq = 1
			r = v
		case transfer.Handler:
			v.IdleSeq = 1
			r = v
		case transfer.Run:
			v.SeenSeq = 1
			r = v
		}
		list = append(list, r)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return list
}

// full returns a record of each kind, with a value in each field.
func full() []transfer.Record {
	const w, run = "w", "run_1"
	at := time.UnixMilli(1_700_000_000_123).UTC()
	version := keep.Version{Major: 2, Minor: 3}
	seen := keep.EventRef{Topic: "topic", MessageID: "m"}
	failure := &keep.Failure{Class: keep.ClassLogic, Code: "code", Message: "message", Outage: true, Tool: "tool", At: "file:1:2", Account: "mail", Generation: 3, Secrets: "mark", Budget: "money", BudgetRule: "mark", BudgetAmount: 5, Item: "item", RetryAfter: 7}
	handlers := []keep.Handler{{Name: "h", Kind: keep.Consumer,
		Subscribe: []keep.TopicName{"topic"}, Publishes: []keep.TopicName{"topic"}, HasMutate: true, HasNext: true, IgnoresResult: true, Items: "first", New: true, Order: keep.OrderKey,
		Schedule: keep.Schedule{Interval: time.Minute, Cron: "* * * * *", Timezone: "UTC"}}}
	return []transfer.Record{
		keep.Workflow{Name: w, Version: version, Paused: true, PauseNote: "note", Granted: 1, CreatedAt: at, UpdatedAt: at.Add(1 * time.Second)},
		keep.Deployment{Workflow: w, Version: version, Hash: "hash", Entry: "w.js", Code: []byte("code"), Map: []byte("map"), CreatedAt: at,
			Definition: keep.Definition{Name: w, Was: "before", New: true, Topics: []keep.TopicName{"topic"}, Called: []keep.CalledTopic{{Name: "name", First: "topic"}}, NewTopics: []keep.TopicName{"new"}, Renamed: []keep.Renamed{{Kind: keep.RenamedTopic, Name: "former", First: "topic"}}, Handlers: handlers, OnBlocked: keep.BlockedPoll, Go: true, Intent: "what it is for", Writing: keep.Writing{Note: "note", Attempts: 2, Tokens: 3, Cost: 0.25, Pages: true}}},
		keep.Grant{Workflow: w, N: 1, Version: version, GivenBy: "ada", From: "cli", GivenAt: at,
			Tools: []keep.GrantedTool{{Tool: "bank.pay", When: "params.n > 1", Approve: "always"}}},
		keep.Proposal{Deployment: keep.Deployment{Workflow: w, Version: keep.Version{Major: 9, Minor: 1}, Hash: "hash2", Entry: "w.js", Code: []byte("code2"), Map: []byte("map2"),
			CreatedAt: at, Definition: keep.Definition{Name: w, Was: "before", New: true, Topics: []keep.TopicName{"topic"}, Called: []keep.CalledTopic{{Name: "name", First: "topic"}}, NewTopics: []keep.TopicName{"new"}, Renamed: []keep.Renamed{{Kind: keep.RenamedTopic, Name: "former", First: "topic"}}, OnBlocked: keep.BlockedPoll, Go: true, Intent: "what it is for", Writing: keep.Writing{Note: "note", Attempts: 2, Tokens: 3, Cost: 0.25, Pages: true}, Handlers: handlers}},
			Over: version, Tools: []keep.GrantedTool{{Tool: "bank.pay", When: "params.n > 1", Approve: "always"}}, By: "bob", From: "api",
			Question: "esc_1", State: keep.ProposalRejected, EndedAt: at.Add(time.Second)},
		keep.TopicCount{Workflow: w, Topic: "topic", Pending: 1, Reserved: 1, Consumed: 3, Skipped: 4},
		transfer.Value{Workflow: w, SetKV: keep.SetKV{Producer: "p", Key: "key", Value: json.RawMessage(`{"a":1}`)}},
		transfer.Input{Unfinished: 1, Input: keep.Input{ID: "in_1", Workflow: w, Source: "source", Type: "type", ExternalID: "external",
			Title: "title", Status: keep.InputPending, CreatedAt: at}},
		keep.Event{Workflow: w, Topic: "topic", MessageID: "m", Seq: 1, Payload: json.RawMessage(`[1.0]`), Status: keep.EventPending,
			ReservedBy: run, CreatedBy: "run_0", CausedBy: []keep.InputID{"in_1"},
			Redone: []keep.Redo{{At: at, By: "ada", From: "cli", Note: "again\x00", Chain: "run_0"}}, CreatedAt: at, UpdatedAt: at.Add(2 * time.Second)},
		transfer.Tried{Workflow: w, Event: seen, Chain: "run_0"},
		transfer.Handler{Seen: seen, HandlerState: keep.HandlerState{Workflow: w, Handler: "h", Kind: keep.Consumer, IdleSeq: 1,
			WakeAt: at, NextAt: at.Add(1 * time.Second), RequestedAt: at.Add(2 * time.Second), LastRun: run, LastAt: at.Add(3 * time.Second)}},
		transfer.Run{Seen: seen, Run: keep.Run{Lane: keep.KeyLane("h", "k"), ID: run, Chain: run, RetryOf: "run_0", Workflow: w, Version: version, Handler: "h", Kind: keep.Consumer,
			Phase: keep.Committed, Status: keep.StatusCommitted, Idle: true, Trigger: seen, Reservations: []keep.Reservation{{Topic: "topic", IDs: []keep.MessageID{"m"}, Attempts: []int{2}}},
			Prepared: json.RawMessage(`{}`), Mutation: "mut_1", Title: "title", WakeAt: at, SeenSeq: 1, Error: failure, RetryAt: at.Add(1 * time.Second),
			Retries: 2, Crashes: 3, Closed: true, Rev: 4, CreatedAt: at.Add(2 * time.Second), UpdatedAt: at.Add(3 * time.Second)}},
		keep.LogLine{Run: run, At: at, Level: "warn", Text: "text", Where: "file:1:2"},
		keep.TracePart{Run: run, At: at, Data: []byte("part")},
		keep.Item{Workflow: w, ID: "item", Title: "title", Status: keep.ItemDone, Attempt: 2, Swept: 1, Rev: 3, CreatedAt: at, UpdatedAt: at.Add(1 * time.Second)},
		keep.Mutation{Key: "mut_1", Workflow: w, Run: run, Item: "item", Attempt: 2, Tool: "tool", Connector: "http", Level: "C", Target: "target",
			Identity: json.RawMessage(`{"id":1}`), Subkey: "sub", Payload: json.RawMessage(`{"id":1,"b":2}`), PayloadHash: "hash", Token: "token",
			Pin: json.RawMessage(`{"v":1}`), PinHash: "pin", Doubted: true, SpentAt: at,
			Spent: []keep.Spent{{Budget: "money", Amount: 1, Limit: 2, Per: 3, Allowed: true, Was: []string{"purse"}}}, Title: "title", State: keep.Applied, Result: json.RawMessage(`7`),
			Warning: "warning", Error: failure, Attempts: 2, ReconcileAttempts: 3, NextReconcileAt: at, CallDeadline: at.Add(1 * time.Second),
			SettleAfter: 5 * time.Second, CanReconcile: true, ResolvedBy: "call", Rev: 6, CreatedAt: at, UpdatedAt: at.Add(2 * time.Second)},
		transfer.Move{Mutation: "mut_1", Move: keep.Move{At: at, By: "call", From: keep.InFlight, To: keep.Applied, Evidence: "evidence", Detail: "detail"}},
		keep.Escalation{ID: "esc_1", Kind: keep.AskLogic, Workflow: w, Run: run, Mutation: "mut_1", Item: "item", Connection: "crm", Budget: "money", Title: "title", Question: "question",
			Attempted: "attempted", Why: "why", CanVerify: true, VerifyByHand: "by hand", Choices: []keep.Choice{{Action: keep.Skip, Label: "label", Effect: "effect", Result: "optional"}},
			PayloadHash: "hash", CreatedAt: at, ClosedAt: at.Add(1 * time.Second), ExpiresAt: at.Add(3 * time.Second),
			Approval: &keep.Approval{Tool: "bank.pay", Target: "target", Key: "mut_2", Payload: json.RawMessage(`{"a":1}`), Pin: json.RawMessage(`{"v":1}`), Version: version,
				View:  keep.View{Kind: keep.ViewRow, Parts: []keep.ViewPart{{Role: "key", Param: "id", Text: "t"}}},
				Claim: json.RawMessage(`{"title":"t"}`), Now: json.RawMessage(`1`), NowWhy: "why"},
			Decision: &keep.Decision{Action: keep.Skip, By: "ada", From: "cli", Note: "note", At: at.Add(2 * time.Second)}},
		keep.Notice{Escalation: "esc_1", Sink: "webhook", Status: keep.NoticePending, Attempts: 1, NextAt: at, Error: "error", UpdatedAt: at.Add(1 * time.Second), Rev: 2},
		keep.Decided{About: keep.Subject{Workflow: "w", Kind: keep.AboutEvent, Topic: "t", ID: "m"}, Decision: keep.Decision{Action: keep.Skip, By: "ann", From: "cli", Note: "note", At: at}},
		key.Record{ID: key.ID{1}, Version: 2, Alias: key.ID{2}, Host: "host", Key: "key", Caller: "caller", Method: "POST", Path: "/path",
			Fingerprint: key.Fingerprint{3}, State: key.Done, Atomic: true, Fence: 4, Doubts: 5, LeaseUntil: at, DoubtAt: at.Add(1 * time.Second),
			Answer: key.Answer{Status: 201, Header: []byte("header"), Body: []byte("body")}, ResolvedBy: "owner", CreatedAt: at.Add(2 * time.Second),
			UpdatedAt: at.Add(3 * time.Second), ExpiresAt: at.Add(4 * time.Second), Rev: 6},
		keep.Credential{ID: "cred_1", Kind: keep.CredentialKind("token"), Hash: []byte(strings.Repeat("h", 32)), Name: "ada", Role: "admin", Parent: "cred_0",
			CreatedAt: at, ExpiresAt: at.Add(1 * time.Second), UsedAt: at.Add(2 * time.Second)},
		keep.HookCount{Name: "hook", Accepted: 1, Repeated: 2, Refused: 3, LastAt: at, LastRefusedAt: at.Add(1 * time.Second), LastRefusal: "refusal"},
		keep.Account{Kind: keep.AccountConnected, Name: "mail", Pack: "gmail", Style: "oauth2", Subject: "ada@example.com", Scopes: []string{"send"}, Generation: 2,
			Renews: true, Status: keep.AccountNeedsReconnect, ExpiresAt: at, Lifetime: time.Hour, Error: "refused", ConnectedBy: "ada", ConnectedAt: at.Add(1 * time.Second),
			LastRefreshAt: at.Add(2 * time.Second), LastUsedAt: at.Add(3 * time.Second), Sealed: []byte("sealed"),
			Refreshes: []keep.Refresh{{Generation: 1, State: keep.RefreshDone, Host: "h", SentAt: at, EndedAt: at.Add(1 * time.Second), NextAt: at.Add(9 * time.Second)}},
			LeaseHost: "h", LeaseUntil: at.Add(4 * time.Second), Rev: 3},
		keep.Gate{Connection: "crm", State: json.RawMessage(`{"failures": 1}`), Rev: 3},
		keep.Repair{ID: "abc", Workflow: w, State: json.RawMessage(`{"attempts": 1}`), CreatedAt: at, Rev: 2},
		keep.Counter{Step: keep.Minute, At: at.Truncate(time.Minute), Workflow: w, Committed: 1, Idle: 2, Failed: 3, Waiting: 4, Asked: 5, Took: []int{1, 0, 2}},
	}
}

// noZero fails the test for a field without a value, so that a new one is moved here, too.
func noZero(t *testing.T, path string, v reflect.Value) {
	t.Helper()
	switch {
	case path == "keep.Grant.TakenBy", path == "keep.Grant.TakenAt": // of one that allows nothing
	case strings.HasPrefix(path, "keep.Decided.Decision.") && slices.Contains([]string{"Result", "Limit", "Until"}, strings.TrimPrefix(path, "keep.Decided.Decision.")): // not kept
	case path == "key.Record.Former", path == "keep.Escalation.Decision.Result",
		path == "keep.Escalation.Decision.Limit", path == "keep.Escalation.Decision.Until": // not kept
	case v.IsZero():
		t.Errorf("%s has no value in this test", path)
	case v.Type() == reflect.TypeFor[time.Time]():
	case v.Kind() == reflect.Struct:
		for i := range v.NumField() {
			noZero(t, path+"."+v.Type().Field(i).Name, v.Field(i))
		}
	case v.Kind() == reflect.Pointer:
		noZero(t, path, v.Elem())
	case v.Kind() == reflect.Slice:
		for i := range min(v.Len(), 1) {
			noZero(t, path, v.Index(i))
		}
	}
}

package transfer_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/internal/pgtest"
	"github.com/keep-run/keep/store"
	"github.com/keep-run/keep/store/postgres"
	"github.com/keep-run/keep/store/transfer"
	"github.com/keep-run/keep/testkit/storetest"
)

// TestOddBytes moves what Postgres has no text for, numbers that JavaScript has not, and times
// with more digits than are kept.
func TestOddBytes(t *testing.T) {
	t.Parallel()
	p := file(t)
	around(t, p, schema(t), schema(t), file(t))
	odd(t, openFile(t, p))
}

// TestBouncer moves a database through a PgBouncer in transaction mode, where nothing of
// a session is kept.
func TestBouncer(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	through := pgtest.Bouncer(t)(url)
	p := file(t)
	around(t, p, schemaPlace{postgres.At(through), through}, file(t))
	odd(t, openFile(t, p))
}

// odd fills a store.
func odd(t *testing.T, db store.Store) {
	t.Helper()
	const w = "w"
	const nul, bad = "a\x00b\x1a1a\x1a", "\xff\xfe broken \x00\x1a"
	at := time.Date(2026, 2, 3, 4, 5, 6, 123_456_789, time.UTC)
	huge := json.RawMessage(`{"n":123456789012345678901234567890,"small":-0.0,"text":"` + strings.Repeat("x\\u0000", 1<<11) + `"}` + "\n")
	run := keep.Run{ID: "run_1", Chain: "run_1", Workflow: w, Version: keep.Version{Major: 1}, Handler: "h", Kind: keep.Consumer,
		Phase: keep.Prepared, Status: keep.StatusActive, Trigger: keep.EventRef{Topic: nul, MessageID: "m"}, Title: bad, Prepared: huge,
		Reservations: []keep.Reservation{{Topic: nul, IDs: []keep.MessageID{"m"}}, {Topic: "none"}},
		Error:        &keep.Failure{Class: keep.ClassLogic, Message: nul, RetryAfter: 3}, SeenSeq: 1, CreatedAt: at, UpdatedAt: at}
	for _, changes := range [][]keep.Change{
		{keep.Deploy{Deployment: keep.Deployment{Workflow: w, Version: keep.Version{Major: 1}, Code: []byte(bad),
			Definition: keep.Definition{Name: w, Topics: []keep.TopicName{nul}}, CreatedAt: at}}},
		{keep.PutInput{Input: keep.Input{ID: "in_1", Workflow: w, Source: bad, Type: nul, ExternalID: bad, Title: bad, CreatedAt: at}}},
		{keep.PutInput{Input: keep.Input{ID: nul, Workflow: w, ExternalID: "2"}}},
		{keep.Publish{Event: keep.Event{Workflow: w, Topic: nul, MessageID: "m", Payload: huge, CausedBy: []keep.InputID{"in_1", nul}}}},
		{keep.Publish{Event: keep.Event{Workflow: w, Topic: nul, MessageID: "later", Payload: json.RawMessage{}}}},
		{keep.PutRun{Run: run}, keep.Reserve{Chain: "run_1", Reservation: run.Reservations[0]}},
		{keep.AppendLogs{Lines: []keep.LogLine{{Run: "run_1", At: at, Text: bad}, {Run: "run_1", At: at, Text: nul}}}},
		{keep.SetKV{Producer: "p", Key: "\x00", Value: json.RawMessage(`1`)}, keep.SetKV{Producer: "p", Key: "\x01", Value: json.RawMessage(`"\u0000"`)}},
		{keep.PutItem{Item: keep.Item{Workflow: w, ID: bad, Title: bad, Status: keep.ItemDone, Attempt: 1, CreatedAt: at}}},
		{keep.PutHandler{State: keep.HandlerState{Workflow: w, Handler: "h", Kind: keep.Consumer, IdleSeq: 1 << 60, WakeAt: at}}},
		{keep.OpenEscalation{Escalation: keep.Escalation{ID: "esc_1", Kind: keep.AskLogic, Workflow: w, Run: "run_1", Title: bad, Why: nul,
			Choices: []keep.Choice{{Action: keep.Skip, Label: nul}}, CreatedAt: at}}},
		{keep.PutNotice{Notice: keep.Notice{Escalation: "esc_1", Sink: "webhook", Status: keep.NoticePending, Attempts: 1, NextAt: at, Error: bad}}},
	} {
		if err := db.Commit(ctx, keep.Commit{Workflow: w, At: at, Changes: changes}); err != nil {
			t.Fatalf("%T: %v", changes[0], err)
		}
	}
	if e, err := db.Event(ctx, w, nul, "m"); err != nil || !bytes.Equal(e.Payload, huge) {
		t.Fatalf("the store itself damages a payload: %v", err)
	}
}

// What a run or a handler has seen is no event that is there any more, or none that ever
// was: what counts is which events came later.
func TestSeen(t *testing.T) {
	t.Parallel()
	from, over, to := file(t), schema(t), file(t)
	db, closeDB := from.make(t)
	for i, w := range []keep.WorkflowName{"one", "two"} { // numbers 1 and 2, then 3 and 4
		l := storetest.NewLoad(w, i)
		changes := l.Deploy()
		changes.Changes = append(changes.Changes, keep.Publish{Event: keep.Event{Workflow: w, Topic: "mail.received", MessageID: "last"}})
		for handler, seq := range map[keep.HandlerName]int64{"none": 0, "first": int64(2*i + 1), "all": int64(2*i + 2), "more": 1 << 40} {
			changes.Changes = append(changes.Changes, keep.PutHandler{State: keep.HandlerState{Workflow: w, Handler: handler, Kind: keep.Consumer, IdleSeq: seq}})
		}
		if err := db.Commit(ctx, changes); err != nil {
			t.Fatal(err)
		}
	}
	if err := closeDB(); err != nil {
		t.Fatal(err)
	}
	for _, move := range [][2]transfer.Place{{from, over}, {over, to}} {
		if _, err := mover.Copy(ctx, move[0], move[1]); err != nil {
			t.Fatal(err)
		}
	}
	for _, p := range []place{from, over, to} {
		s := p.open(t)
		for _, w := range []keep.WorkflowName{"one", "two"} {
			states, err := s.Handlers(ctx, w)
			if err != nil {
				t.Fatal(err)
			}
			b, err := s.Backlog(ctx, w, []keep.TopicName{"mail.received"})
			if err != nil {
				t.Fatal(err)
			}
			for _, h := range states {
				oldest, newest := b.Oldest.Seq > h.IdleSeq, b.Newest > h.IdleSeq
				want := map[keep.HandlerName][2]bool{"none": {true, true}, "first": {false, true}, "all": {}, "more": {}}[h.Handler]
				if oldest != want[0] || newest != want[1] {
					t.Errorf("%s: %s of %s: newer than what it saw: %t and %t, want %v", p.Name(), h.Handler, w, oldest, newest, want)
				}
			}
		}
	}
}

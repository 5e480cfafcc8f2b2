package view_test

import (
	"strings"
	"testing"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/view"
)

// Events are stranded if the version in force does not declare their topic, or has no consumer for one whose events
// were handled before. A declared topic that nobody ever read is a record.
func TestStranded(t *testing.T) {
	now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	db, commitTo := storeAt(t, now)
	commit := func(changes ...keep.Change) { t.Helper(); commitTo("w", changes...) }
	version := 0
	deploy := func(declared, read []keep.TopicName) {
		version++
		commit(keep.Deploy{Deployment: keep.Deployment{Workflow: "w", Version: keep.Version{Major: version}, Hash: "h", CreatedAt: now,
			Definition: keep.Definition{Name: "w", Topics: declared, Handlers: []keep.Handler{{Name: "c", Kind: keep.Consumer, Subscribe: read}}}}})
	}
	publish := func(topic keep.TopicName, id keep.MessageID) {
		commit(keep.Publish{Event: keep.Event{Workflow: "w", Topic: topic, MessageID: id, Status: keep.EventPending, CreatedAt: now, UpdatedAt: now}})
	}
	stranded := func() string {
		t.Helper()
		o, err := view.Read(t.Context(), db, now)
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, s := range o.Stranded() {
			names = append(names, string(s.Topic))
		}
		return strings.Join(names, " ")
	}
	all := []keep.TopicName{"gone", "handled", "log"}
	deploy(all, []keep.TopicName{"gone", "handled"})
	for _, topic := range all {
		publish(topic, "1")
	}
	run := keep.Run{ID: "run_1", Chain: "run_1", Workflow: "w", Handler: "c", Kind: keep.Consumer, Phase: keep.Committed, Status: keep.StatusCommitted,
		Version: keep.Version{Major: 1}, Closed: true, CreatedAt: now, UpdatedAt: now, Reservations: []keep.Reservation{{Topic: "handled", IDs: []keep.MessageID{"1"}}}}
	commit(keep.Reserve{Chain: run.ID, Reservation: run.Reservations[0]}, keep.PutRun{Run: run}, keep.Finish{Chain: run.ID, Status: keep.EventConsumed})
	publish("handled", "2")
	if got := stranded(); got != "" {
		t.Errorf("stranded %q, and a consumer reads them, or nobody ever did", got)
	}
	deploy([]keep.TopicName{"handled", "log"}, nil)
	if got := stranded(); got != "gone handled" {
		t.Errorf("stranded %q, want what is not declared, and what was handled before", got)
	}
	o, err := view.Read(t.Context(), db, now)
	const want = `1 event of workflow w waits in topic gone, which no consumer of version 2.0 reads: deploy a version with a consumer that reads it (if the topic has another name now, write was: "gone" there)`
	if got := o.Stranded()[0].Sentence(); err != nil || !strings.HasPrefix(got, want) {
		t.Errorf("%q, %v", got, err)
	}
	commit(keep.SkipEvents{Topic: "gone", IDs: []keep.MessageID{"1"}}, keep.SkipEvents{Topic: "handled", IDs: []keep.MessageID{"2"}})
	if got := stranded(); got != "" {
		t.Errorf("stranded %q after they were skipped", got)
	}
}

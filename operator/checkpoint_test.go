package operator_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/law/policy"
	"github.com/keep-run/keep/operator"
	"github.com/keep-run/keep/store/memory"
)

// withProducer returns a store with a producer p that has run once.
func withProducer(t *testing.T) *memory.Store {
	t.Helper()
	s := memory.New()
	run := keep.Run{ID: "run_p", Chain: "run_p", Workflow: "w", Handler: "p", Kind: keep.Producer, Phase: keep.Committed, Status: keep.StatusCommitted,
		Version: keep.Version{Major: 1}, Closed: true, CreatedAt: noon, UpdatedAt: noon}
	commit(t, s, keep.Deploy{Deployment: keep.Deployment{Workflow: "w", Version: keep.Version{Major: 1}, Hash: "h", CreatedAt: noon,
		Definition: keep.Definition{Name: "w", Topics: []keep.TopicName{"t"}, Handlers: []keep.Handler{
			{Name: "p", Kind: keep.Producer, Publishes: []keep.TopicName{"t"}}, {Name: "c", Kind: keep.Consumer, Subscribe: []keep.TopicName{"t"}}}}}})
	commit(t, s, keep.PutRun{Run: run}, keep.SetKV{Producer: "p", Key: "since", Value: json.RawMessage("1")},
		keep.PutHandler{State: keep.HandlerState{Workflow: "w", Handler: "p", Kind: keep.Producer, LastRun: run.ID, LastAt: noon}})
	return s
}

// What an admin sets is shown first and changes nothing then; after it, a record says who and why, and not what: also of a producer that
// has not run yet.
func TestSetCheckpoint(t *testing.T) {
	s := withProducer(t)
	o := newOperator(t, s)
	d := keep.Decision{By: "ann", From: "cli", Note: "restored"}
	change, err := o.SetCheckpoint(t.Context(), "w", "p", "since", json.RawMessage(`"secret"`), d, true)
	if err != nil || string(change.Was) != "1" || string(change.Now) != `"secret"` || !slices.Equal(change.Publishes, []keep.TopicName{"t"}) {
		t.Errorf("preview: %+v, %v", change, err)
	}
	value := func() string {
		v, err := s.KV(t.Context(), "w", "p", "since")
		if err != nil {
			t.Fatal(err)
		}
		return string(v)
	}
	if v := value(); v != "1" {
		t.Errorf("the preview changed it to %s", v)
	}
	if _, err = o.SetCheckpoint(t.Context(), "w", "p", "since", json.RawMessage(`"secret"`), d, false); err != nil || value() != `"secret"` {
		t.Errorf("set: %v, %s", err, value())
	}
	if change, err = o.SetCheckpoint(t.Context(), "w", "p", "since", nil, d, false); err != nil || value() != "" || change.Now != nil {
		t.Errorf("delete: %v, %q", err, value())
	}
	if err := o.ResetCheckpoint(t.Context(), "w", "p", d); err != nil {
		t.Error(err)
	}
	list, err := s.Decided(t.Context(), keep.Subject{Workflow: "w", Kind: keep.AboutHandler, ID: "p"})
	var said []string
	for _, r := range list {
		said = append(said, fmt.Sprintf("%s by %s from %s: %s", r.Decision.Action, r.Decision.By, r.Decision.From, r.Decision.Note))
	}
	want := []string{`set-checkpoint by ann from cli: value "since" set; restored`, `set-checkpoint by ann from cli: value "since" deleted; restored`,
		"reset-checkpoint by ann from cli: restored"}
	if err != nil || !slices.Equal(said, want) {
		t.Errorf("recorded is %q, %v", said, err)
	}
}

// What is refused changes nothing, and says why.
func TestSetCheckpointRefused(t *testing.T) {
	s := withProducer(t)
	o := newOperator(t, s)
	limits := policy.Default().Limits
	for name, tt := range map[string]struct {
		handler keep.HandlerName
		key     string
		value   string
		want    string
	}{
		"a consumer":       {"c", "k", "1", "w/c"},
		"no handler":       {"x", "k", "1", "w/x"},
		"no key":           {"p", "", "1", "1 to 512 bytes"},
		"a long key":       {"p", strings.Repeat("k", 513), "1", "1 to 512 bytes"},
		"no JSON":          {"p", "k", "{", "no JSON"},
		"one name twice":   {"p", "k", `{"a":{"b":1,"b":2}}`, `at a: two members have the name "b"`},
		"too large":        {"p", "k", `"` + strings.Repeat("x", limits.KVValue) + `"`, "at most 65536"},
		"nothing to erase": {"p", "k", "", "not set"},
	} {
		var value json.RawMessage
		if tt.value != "" {
			value = json.RawMessage(tt.value)
		}
		if _, err := o.SetCheckpoint(t.Context(), "w", tt.handler, tt.key, value, keep.Decision{By: "ann"}, false); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %q", name, err, tt.want)
		}
	}
	full := json.RawMessage(`"` + strings.Repeat("x", limits.KVValue-2) + `"`)
	var err error
	for i := 0; err == nil && i < 20; i++ {
		_, err = o.SetCheckpoint(t.Context(), "w", "p", string(rune('a'+i)), full, keep.Decision{By: "ann"}, false)
	}
	if e, ok := errors.AsType[*operator.CheckpointError](err); !ok || !strings.Contains(e.Why, "at most 1048576") {
		t.Errorf("a checkpoint that is full: %v", err)
	}
	if _, err := o.SetCheckpoint(t.Context(), "w", "p", "a", nil, keep.Decision{By: "ann"}, false); err != nil {
		t.Errorf("delete from a full one: %v", err)
	}
	now := noon.Add(time.Minute)
	commit(t, s, keep.PutRun{Run: keep.Run{ID: "run_q", Chain: "run_q", Workflow: "w", Handler: "p", Kind: keep.Producer, Phase: keep.Running,
		Status: keep.StatusActive, Version: keep.Version{Major: 1}, CreatedAt: now, UpdatedAt: now}})
	if _, err := o.SetCheckpoint(t.Context(), "w", "p", "since", json.RawMessage("2"), keep.Decision{By: "ann"}, false); !errors.Is(err, keep.ErrRunOpen) {
		t.Errorf("while it runs: %v", err)
	}
}

// A producer that had another name has the checkpoint under the first one, and what is published to a topic by
// either of its names is one event.
func TestRenamedParts(t *testing.T) {
	s := withProducer(t)
	def := keep.Definition{Name: "w", Topics: []keep.TopicName{"new"}, Handlers: []keep.Handler{
		{Name: "fetch", Kind: keep.Producer, Items: "p", Publishes: []keep.TopicName{"new"}}, {Name: "c", Kind: keep.Consumer, Subscribe: []keep.TopicName{"new"}}}}
	commit(t, s, keep.Deploy{Deployment: keep.Deployment{Workflow: "w", Version: keep.Version{Major: 2}, Hash: "h2", CreatedAt: noon,
		Definition: def.KeepAs(map[keep.TopicName]keep.TopicName{"new": "t"})}})
	o := newOperator(t, s)
	if c, err := o.SetCheckpoint(t.Context(), "w", "fetch", "since", json.RawMessage("2"), keep.Decision{By: "ann", From: "cli"}, false); err != nil || string(c.Was) != "1" {
		t.Errorf("set: %+v, %v, want what p had set", c, err)
	}
	if v, err := s.KV(t.Context(), "w", "p", "since"); string(v) != "2" {
		t.Errorf("since = %s, %v", v, err)
	}
	if err := o.ResetCheckpoint(t.Context(), "w", "fetch", keep.Decision{By: "ann", From: "cli"}); err != nil {
		t.Error(err)
	}
	if n, err := s.KVSize(t.Context(), "w", "p"); n != 0 || err != nil {
		t.Errorf("%d bytes are left, %v", n, err)
	}
	for i, topic := range []keep.TopicName{"new", "t"} {
		ev, created, err := o.Publish(t.Context(), operator.Publication{Workflow: "w", Topic: topic, MessageID: "m", By: keep.HookPublisher("h")})
		if err != nil || ev.Topic != "t" || created != (i == 0) {
			t.Errorf("publish to %s: %+v, %t, %v", topic, ev, created, err)
		}
	}
	for id, payload := range map[keep.MessageID]string{"caf\xe9": `{}`, "bytes": "\"caf\xe9\"", "text": "{"} {
		if ev, _, err := o.Publish(t.Context(), operator.Publication{Workflow: "w", Topic: "t", MessageID: id, Payload: []byte(payload)}); err == nil {
			t.Errorf("published what is not JSON in UTF-8: %+v", ev)
		}
	}
	if _, _, err := o.Publish(t.Context(), operator.Publication{Workflow: "w", Topic: "other", MessageID: "m"}); !errors.Is(err, keep.ErrNotFound) {
		t.Errorf("publish to a topic that is not declared: %v", err)
	}
}

// What was shown is what is changed, and nothing that was set since.
func TestSetShownCheckpoint(t *testing.T) {
	o := newOperator(t, withProducer(t))
	for _, tt := range []struct {
		shown, value string
		stale        bool
	}{{"", "2", true}, {"0", "2", true}, {"1", "2", false}, {"1", "3", true}, {"1", "", true}, {"2", "", false}, {"2", "3", true}, {"", "3", false}} {
		var shown, value json.RawMessage
		if tt.shown != "" {
			shown = json.RawMessage(tt.shown)
		}
		if tt.value != "" {
			value = json.RawMessage(tt.value)
		}
		err := o.SetShownCheckpoint(t.Context(), "w", "p", "since", shown, value, keep.Decision{By: "ann"})
		if errors.Is(err, keep.ErrStale) != tt.stale || err != nil && !tt.stale {
			t.Errorf("%q in the place of %q: %v", tt.value, tt.shown, err)
		}
	}
}

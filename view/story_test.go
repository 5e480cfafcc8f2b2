package view_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/store/memory"
	"github.com/keep-run/keep/view"
)

// Of open runs only one is named that surely holds an event up. Which order key the event has, only its script says.
func TestInLine(t *testing.T) {
	at := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	const behind, taken = "Waits in line behind run_1.", "Waits for a consumer to take it."
	ann := keep.KeyLane("act", "ann")
	for name, c := range map[string]struct {
		order   keep.Order
		lane    keep.Lane
		handler keep.HandlerName
		kind    keep.Kind
		status  keep.RunStatus
		trigger keep.MessageID
		want    string
	}{
		"of the workflow":                  {lane: keep.WorkflowLane, want: behind},
		"of a job":                         {handler: "sum", kind: keep.Job, want: behind},
		"of a producer under poll":         {order: keep.OrderKey, lane: keep.HandlerLane("poll"), handler: "poll", kind: keep.Producer, want: behind},
		"of a key":                         {order: keep.OrderKey, lane: ann, want: taken + ` Events of these order keys of act wait for other runs: "ann".`},
		"of a key that is being executed":  {order: keep.OrderKey, lane: ann, status: keep.StatusActive, want: behind},
		"of a key from before":             {lane: ann, want: behind},
		"of a key of another consumer":     {order: keep.OrderKey, lane: keep.KeyLane("other", "ann"), handler: "other", want: taken},
		"of no order":                      {order: keep.OrderNone, lane: keep.ChainLane("run_1"), want: taken},
		"of no order, with another event":  {order: keep.OrderNone, lane: keep.ChainLane("run_1"), trigger: "n", want: taken},
		"of no key, with the event itself": {order: keep.OrderKey, lane: keep.ChainLane("run_1"), trigger: "m", want: behind},
		"of an alarm":                      {order: keep.OrderKey, lane: keep.HandlerLane("act"), want: taken},
	} {
		t.Run(name, func(t *testing.T) {
			if c.handler == "" {
				c.handler = "act"
			}
			if c.kind == "" {
				c.kind = keep.Consumer
			}
			if c.status == "" {
				c.status = keep.StatusPerson
			}
			phase := keep.Preparing
			if c.kind != keep.Consumer {
				phase = keep.Running
			}
			s := memory.New()
			d := keep.Deployment{Workflow: "w", Version: keep.Version{Major: 1}, Hash: "h", CreatedAt: at, Definition: keep.Definition{Name: "w", Topics: []keep.TopicName{"in", "more"}, Handlers: []keep.Handler{
				{Name: "act", Kind: keep.Consumer, Subscribe: []keep.TopicName{"in"}, Order: c.order},
				{Name: "other", Kind: keep.Consumer, Subscribe: []keep.TopicName{"more"}, Order: keep.OrderKey},
			}}}
			run := keep.Run{ID: "run_1", Chain: "run_1", Workflow: "w", Version: d.Version, Handler: c.handler, Kind: c.kind, Phase: phase, Status: c.status, Lane: c.lane, CreatedAt: at, UpdatedAt: at}
			if c.trigger != "" {
				run.Trigger = keep.EventRef{Topic: "in", MessageID: c.trigger}
			}
			changes := []keep.Change{keep.Deploy{Deployment: d}}
			for _, id := range []keep.MessageID{"m", "n"} {
				changes = append(changes, keep.Publish{Event: keep.Event{Workflow: "w", Topic: "in", MessageID: id, Payload: []byte(`{}`), Status: keep.EventPending, CreatedAt: at, CreatedBy: "test"}})
			}
			if err := s.Commit(t.Context(), keep.Commit{Workflow: "w", At: at, Changes: append(changes, keep.PutRun{Run: run})}); err != nil {
				t.Fatal(err)
			}
			story, err := view.Why(t.Context(), s, "m")
			if err != nil {
				t.Fatal(err)
			}
			if got := story.Wait; got != c.want && !(c.want == behind && strings.HasPrefix(got, behind)) {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
}

// Many keys are not all named.
func TestInLineOfKeys(t *testing.T) {
	at := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	s := memory.New()
	d := keep.Deployment{Workflow: "w", Version: keep.Version{Major: 1}, Hash: "h", CreatedAt: at, Definition: keep.Definition{Name: "w", Topics: []keep.TopicName{"in"},
		Handlers: []keep.Handler{{Name: "act", Kind: keep.Consumer, Subscribe: []keep.TopicName{"in"}, Order: keep.OrderKey}}}}
	changes := []keep.Change{keep.Deploy{Deployment: d}, keep.Publish{Event: keep.Event{Workflow: "w", Topic: "in", MessageID: "m", Payload: []byte(`{}`), Status: keep.EventPending, CreatedAt: at, CreatedBy: "test"}}}
	for n := range 5 {
		id := keep.RunID(fmt.Sprint("run_", n))
		changes = append(changes, keep.PutRun{Run: keep.Run{ID: id, Chain: id, Workflow: "w", Version: d.Version, Handler: "act", Kind: keep.Consumer, Phase: keep.Preparing, Status: keep.StatusPerson,
			Lane: keep.KeyLane("act", fmt.Sprint("k", n)), CreatedAt: at, UpdatedAt: at}})
	}
	if err := s.Commit(t.Context(), keep.Commit{Workflow: "w", At: at, Changes: changes}); err != nil {
		t.Fatal(err)
	}
	story, err := view.Why(t.Context(), s, "m")
	const want = `Waits for a consumer to take it. Events of these order keys of act wait for other runs: "k0", "k1", "k2" and 2 more.`
	if err != nil || story.Wait != want {
		t.Errorf("%q, %v; want %q", story.Wait, err, want)
	}
}

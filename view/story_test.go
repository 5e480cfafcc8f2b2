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

// What an input waits for is said also if that is older than the newest of its runs and events.
func TestWhyOfAnInputWithManyEvents(t *testing.T) {
	at := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	for name, held := range map[string]bool{"a run waits for a person": true, "an event is free": false} {
		t.Run(name, func(t *testing.T) {
			s := memory.New()
			d := keep.Deployment{Workflow: "w", Version: keep.Version{Major: 1}, Hash: "h", CreatedAt: at, Definition: keep.Definition{Name: "w", Topics: []keep.TopicName{"in"},
				Handlers: []keep.Handler{{Name: "act", Kind: keep.Consumer, Subscribe: []keep.TopicName{"in"}, Order: keep.OrderNone}}}}
			changes := []keep.Change{keep.Deploy{Deployment: d}, keep.PutInput{Input: keep.Input{ID: "in_1", Workflow: "w", Source: "s", Type: "t", ExternalID: "1", CreatedAt: at}}}
			for n := range 25 {
				id := keep.MessageID(fmt.Sprintf("m%02d", n))
				changes = append(changes, keep.Publish{Event: keep.Event{Workflow: "w", Topic: "in", MessageID: id, Payload: []byte(`{}`), Status: keep.EventPending, CreatedAt: at, CreatedBy: "test", CausedBy: []keep.InputID{"in_1"}}})
				if n == 0 && !held {
					continue
				}
				r := keep.Reservation{Topic: "in", IDs: []keep.MessageID{id}}
				run := keep.Run{ID: keep.RunID("run_" + id), Workflow: "w", Version: d.Version, Handler: "act", Kind: keep.Consumer, Phase: keep.Prepared, Status: keep.StatusPerson,
					Error: keep.Failf(keep.ClassPermission, "http-403", "no"), Reservations: []keep.Reservation{r}, CreatedAt: at, UpdatedAt: at}
				run.Chain, run.Lane = run.ID, keep.ChainLane(run.ID)
				changes = append(changes, keep.Reserve{Chain: run.Chain, Reservation: r})
				if n > 0 {
					run.Phase, run.Status, run.Error, run.Closed = keep.Committed, keep.StatusCommitted, nil, true
					changes = append(changes, keep.Finish{Chain: run.Chain, Status: keep.EventConsumed})
				}
				changes = append(changes, keep.PutRun{Run: run})
			}
			if held {
				changes = append(changes, keep.OpenEscalation{Escalation: keep.Escalation{ID: "esc_1", Kind: keep.AskPermission, Workflow: "w", Run: "run_m00", Question: "?", Choices: []keep.Choice{{Action: keep.Retry}}, CreatedAt: at}})
			}
			if err := s.Commit(t.Context(), keep.Commit{Workflow: "w", At: at, Changes: changes}); err != nil {
				t.Fatal(err)
			}
			story, err := view.Why(t.Context(), s, "in_1")
			want, asked := "Event m00 of in: Waits for a consumer to take it.", 0
			if held {
				want, asked = "Event m00 of in, which run_m00 has: ", 1
			}
			if err != nil || !strings.HasPrefix(story.Wait, want) || len(story.Questions) != asked {
				t.Errorf("%q, asked %v, %v; want %q", story.Wait, story.Questions, err, want)
			}
		})
	}
}

// An item says what it waits for although no run of it is open, or no call was made.
func TestWhyOfAnItem(t *testing.T) {
	at := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	for name, c := range map[string]struct {
		status keep.ItemStatus
		call   keep.MutationState // of a run that is over; empty: none was made
		ask    keep.EscalationKind
		want   string
	}{
		"its function failed":            {keep.ItemAttention, "", keep.AskItem, "Waits for a person to answer esc_1; see keep inbox."},
		"its call is looked up":          {keep.ItemFailed, keep.NeedsReconcile, "", "the service is asked again"},
		"a person is asked about a call": {keep.ItemFailed, keep.Indeterminate, keep.AskUnknownOutcome, "decide"},
		"it is done":                     {keep.ItemDone, keep.Applied, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := memory.New()
			run := keep.Run{ID: "run_1", Chain: "run_1", Workflow: "w", Handler: "j", Kind: keep.Job, Phase: keep.Running, Status: keep.StatusAborted, Closed: true, CreatedAt: at, UpdatedAt: at}
			changes := []keep.Change{keep.PutRun{Run: run}, keep.PutItem{Item: keep.Item{Workflow: "w", ID: "item-1", Status: c.status, Attempt: 1, CreatedAt: at, UpdatedAt: at}}}
			q := keep.Escalation{ID: "esc_1", Kind: c.ask, Workflow: "w", Run: "run_1", Item: "item-1", Question: "?", Choices: []keep.Choice{{Action: keep.Skip}}, CreatedAt: at}
			if c.call != "" {
				m := keep.Mutation{Key: "mut_1", Workflow: "w", Run: "run_1", Item: "item-1", Attempt: 1, Tool: "x.y", Target: "to", Level: keep.LevelNone, Token: "t", State: c.call,
					Pin: []byte(`{}`), PinHash: "00", Attempts: 1, CallDeadline: at, CanReconcile: true, CreatedAt: at, UpdatedAt: at}
				if c.call == keep.NeedsReconcile {
					m.NextReconcileAt = at.Add(time.Minute)
				}
				if c.call == keep.Applied {
					m.ResolvedBy = "call"
				}
				q.Mutation = m.Key
				changes = append(changes, keep.PutMutation{Mutation: m})
			}
			if c.ask != "" {
				changes = append(changes, keep.OpenEscalation{Escalation: q})
			}
			if err := s.Commit(t.Context(), keep.Commit{Workflow: "w", At: at, Changes: changes}); err != nil {
				t.Fatal(err)
			}
			story, err := view.Why(t.Context(), s, "item-1")
			if err != nil || !strings.Contains(story.Wait, c.want) || (story.Wait == "") != (c.want == "") || (len(story.Questions) == 1) != (c.ask != "") {
				t.Errorf("waits %q, asks %v, %v; want %q", story.Wait, story.Questions, err, c.want)
			}
		})
	}
}

// A run of a paused workflow says that it waits until that is resumed, and names no time; one whose call is known by now is taken up all
// the same.
func TestWhyOfARunThatIsPaused(t *testing.T) {
	at := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	s, commit := storeAt(t, at)
	v := keep.Version{Major: 1}
	commit("w", keep.Deploy{Deployment: keep.Deployment{Workflow: "w", Version: v, Hash: "h", CreatedAt: at, Definition: keep.Definition{Name: "w"}}})
	commit("w", keep.PutRun{Run: keep.Run{ID: "run_failed", Chain: "run_failed", Lane: keep.ChainLane("run_failed"), Workflow: "w", Version: v, Handler: "act", Kind: keep.Consumer, Phase: keep.Preparing,
		Status: keep.StatusTransient, RetryAt: at.Add(time.Minute), Error: &keep.Failure{Class: keep.ClassTransient, Message: "refused"}, CreatedAt: at, UpdatedAt: at}})
	for _, c := range []struct {
		paused    bool
		want, not string
	}{{false, "is tried again at 2026-11-20 12:01:00 UTC", "resumed"}, {true, "is tried again when its workflow is resumed", "12:01"}} {
		commit("w", keep.SetPaused{Paused: c.paused})
		story, err := view.Why(t.Context(), s, "run_failed")
		if err != nil || !strings.Contains(story.Wait, c.want) || strings.Contains(story.Wait, c.not) {
			t.Errorf("paused %t: it waits %q, %v; want %q", c.paused, story.Wait, err, c.want)
		}
	}
}

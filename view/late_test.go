package view_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/law/lifecycle"
	"github.com/keep-run/keep/view"
)

// What is late is what should have happened by now: not what is executed, and waits in line for the limits of a connection;
// and producers that continue while the workflow is held up are late as ever.
func TestLate(t *testing.T) {
	now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	ago := func(d time.Duration) time.Time { return now.Add(-d) }
	run := func(status keep.RunStatus, lane keep.Lane, retryAt, updated time.Time, f *keep.Failure) *view.Run {
		r := keep.Run{ID: "run_1", Workflow: "w", Handler: "c", Kind: keep.Consumer, Status: status, Lane: lane, Phase: keep.Prepared,
			RetryAt: retryAt, UpdatedAt: updated, Error: f}
		return &view.Run{Run: r, Wait: lifecycle.WaitOf(r, keep.Mutation{})}
	}
	limited := &keep.Failure{Class: keep.ClassTransient, Code: keep.CodeLimit, Tool: "chat.post", Message: "the limit of chat, 60/min", RetryAfter: time.Millisecond}
	slower := *limited
	slower.RetryAfter = 10 * time.Second // as it was when it asked
	failed := &keep.Failure{Class: keep.ClassTransient, Code: "http-503", Tool: "chat.post", Message: "503"}
	due := []keep.HandlerState{{Handler: "p", Kind: keep.Producer, NextAt: ago(2 * time.Minute)}}
	for name, c := range map[string]struct {
		on     keep.OnBlocked
		order  keep.Order // of the consumer
		paused bool
		open   []*view.Run
		want   string
	}{
		"a producer":                     {want: "p"},
		"a producer that is paused":      {paused: true},
		"in line for a limit":            {open: []*view.Run{run(keep.StatusActive, keep.WorkflowLane, time.Time{}, ago(time.Hour), limited)}},
		"in line until a time":           {open: []*view.Run{run(keep.StatusActive, keep.WorkflowLane, time.Time{}, ago(time.Hour), &slower)}},
		"an attempt":                     {open: []*view.Run{run(keep.StatusTransient, keep.WorkflowLane, ago(2*time.Minute), ago(time.Hour), failed)}, want: "run_1"},
		"an attempt that is due":         {open: []*view.Run{run(keep.StatusTransient, keep.WorkflowLane, ago(time.Second), ago(time.Hour), failed)}},
		"held up, and polls":             {on: keep.BlockedPoll, open: []*view.Run{run(keep.StatusLogic, keep.WorkflowLane, time.Time{}, ago(time.Hour), failed)}, want: "p"},
		"executed, and polls":            {on: keep.BlockedPoll, open: []*view.Run{run(keep.StatusActive, keep.WorkflowLane, time.Time{}, ago(time.Hour), nil)}},
		"a key that now holds up all":    {order: keep.OrderAll, open: []*view.Run{run(keep.StatusLogic, "key/1", time.Time{}, ago(time.Hour), failed)}},
		"held up":                        {open: []*view.Run{run(keep.StatusLogic, keep.WorkflowLane, time.Time{}, ago(time.Hour), failed)}},
		"a key is held up":               {order: keep.OrderKey, open: []*view.Run{run(keep.StatusLogic, "key/1", time.Time{}, ago(time.Hour), failed)}, want: "p"},
		"held up, and paused, and polls": {on: keep.BlockedPoll, paused: true, open: []*view.Run{run(keep.StatusLogic, keep.WorkflowLane, time.Time{}, ago(time.Hour), failed)}},
	} {
		d := keep.Deployment{Workflow: "w", Definition: keep.Definition{OnBlocked: c.on, Handlers: []keep.Handler{{Name: "p", Kind: keep.Producer}, {Name: "c", Kind: keep.Consumer, Order: c.order}}}}
		got := ""
		for _, l := range view.WorkflowOf(keep.Workflow{Name: "w", Paused: c.paused}, d, due, c.open, now).Late {
			if l.Run != "" {
				got += fmt.Sprint(l.Run)
			} else {
				got += fmt.Sprint(l.Handler)
			}
		}
		if got != c.want {
			t.Errorf("%s: late is %q, want %q", name, got, c.want)
		}
	}
}

package view_test

import (
	"testing"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/view"
)

// An input of which nothing is left says whether it was done or skipped, as far as its newest events show.
func TestInputState(t *testing.T) {
	t.Parallel()
	const p, c, s = keep.EventPending, keep.EventConsumed, keep.EventSkipped
	for _, test := range []struct {
		status keep.InputStatus
		events []keep.EventStatus
		want   string
	}{
		{keep.InputDone, nil, "done"},
		{keep.InputDone, []keep.EventStatus{c, c}, "done"},
		{keep.InputDone, []keep.EventStatus{s}, "done, all skipped"},
		{keep.InputDone, []keep.EventStatus{s, s}, "done, all skipped"},
		{keep.InputDone, []keep.EventStatus{s, c}, "done, some skipped"},
		{keep.InputDone, []keep.EventStatus{p, s}, "done, some skipped"},    // nobody reads the topic of one
		{keep.InputDone, []keep.EventStatus{s, s, s}, "done, some skipped"}, // there may be more
		{keep.InputPending, []keep.EventStatus{p, s}, "pending"},
		{keep.InputSkipped, []keep.EventStatus{s, s}, "skipped"},
	} {
		var events []keep.Event
		for _, status := range test.events {
			events = append(events, keep.Event{Status: status})
		}
		if got := view.InputState(test.status, view.SkippedOf(events, 3)); got != test.want {
			t.Errorf("%s with %v: %q, want %q", test.status, test.events, got, test.want)
		}
	}
}

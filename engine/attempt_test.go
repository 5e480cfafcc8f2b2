package engine_test

import (
	"strings"
	"testing"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/engine"
)

// A replay tries what the script may have got: each attempt of the event, and the form of before.
func TestTriggerArgs(t *testing.T) {
	got := engine.TriggerArgs(keep.Definition{}, keep.Event{Topic: "t", MessageID: "m", Redone: []keep.Redo{{By: "ann"}}})
	if len(got) != 3 || !strings.Contains(string(got[0]), `"attempt":1`) || !strings.Contains(string(got[1]), `"attempt":2`) || strings.Contains(string(got[2]), "attempt") {
		t.Errorf("TriggerArgs = %s", got)
	}
}

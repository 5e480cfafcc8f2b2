package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/keep-run/keep/api"
	"github.com/keep-run/keep/cmd/keep/internal/exit"
)

// A deploy of which a version waits for a person says so, and ends with the status for that.
func TestDeployThatWaits(t *testing.T) {
	var out, talk bytes.Buffer
	a := newApp(&out, &talk)
	waits := deployed{Workflow: "payouts", Version: "1.0", Waiting: &api.Proposed{Version: "2.0", Question: "esc_grant_payouts_2_0"}}
	if err := a.printDeployed([]deployed{{Workflow: "w", Version: "1.0", Changed: true}, waits}); exit.Of(err) != exit.NeedsPerson {
		t.Errorf("the status is %d (%v), want %d", exit.Of(err), err, exit.NeedsPerson)
	}
	for _, want := range []string{"Version 2.0 of payouts calls more than is granted", "keep inbox show esc_grant_payouts_2_0"} {
		if !strings.Contains(talk.String(), want) {
			t.Errorf("keep says %q, want %q", &talk, want)
		}
	}
	if err := a.printDeployed([]deployed{{Workflow: "w", Version: "1.0"}}); err != nil {
		t.Errorf("a deploy that does not wait ends with %v", err)
	}
}

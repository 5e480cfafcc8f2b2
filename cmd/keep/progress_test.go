package main

import (
	"io"
	"testing"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/cmd/keep/internal/terminal"
)

// Each execution of this command counts once, and what came of it.
func TestProgress(t *testing.T) {
	t.Parallel()
	run := func(id keep.RunID, status keep.RunStatus, closed bool) keep.Run {
		return keep.Run{ID: id, Workflow: "w", Status: status, Closed: closed}
	}
	deployed := run("1", keep.StatusLogic, false)
	deployed.RetryAt = time.Unix(1, 0)
	type runs = []keep.Run
	for _, tt := range []struct {
		name    string
		commits []runs
		want    runCount
	}{
		{"recovered", []runs{{run("1", keep.StatusCrashed, false)}, {run("1", keep.StatusCrashed, true), run("2", keep.StatusActive, false)},
			{run("2", keep.StatusCommitted, true)}}, runCount{Runs: 1, Committed: 1}},
		{"retried", []runs{{run("1", keep.StatusActive, false)}, {run("1", keep.StatusTransient, false)},
			{run("1", keep.StatusTransient, true), run("2", keep.StatusActive, false)}, {run("2", keep.StatusTransient, false)},
			{run("2", keep.StatusTransient, true), run("3", keep.StatusActive, false)}, {run("3", keep.StatusCommitted, true)}},
			runCount{Runs: 3, Committed: 1, Failed: 2}},
		{"failed_at_once", []runs{{run("1", keep.StatusLogic, false)}}, runCount{Runs: 1, Failed: 1}},
		{"left_failed_by_an_earlier_command", []runs{{run("1", keep.StatusTransient, true), run("2", keep.StatusActive, false)},
			{run("2", keep.StatusCommitted, true)}}, runCount{Runs: 1, Committed: 1}},
		{"unblocked_by_a_deploy", []runs{{deployed}, {run("1", keep.StatusLogic, true), run("2", keep.StatusActive, false)},
			{run("2", keep.StatusCommitted, true)}}, runCount{Runs: 1, Committed: 1}},
		{"carried_on", []runs{{run("1", keep.StatusReconciliation, false)}, {run("1", keep.StatusActive, false)},
			{run("1", keep.StatusCommitted, true)}}, runCount{Runs: 1, Committed: 1}},
		{"answered", []runs{{run("1", keep.StatusActive, false)}, {run("1", keep.StatusPerson, false)}, {run("1", keep.StatusActive, false)},
			{run("1", keep.StatusCommitted, true)}}, runCount{Runs: 1, Committed: 1}},
		{"in_doubt", []runs{{run("1", keep.StatusActive, false)}, {run("1", keep.StatusReconciliation, false)}}, runCount{Runs: 1}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := newProgress(terminal.New(io.Discard, io.Discard))
			for _, runs := range tt.commits {
				c := keep.Commit{Workflow: "w"}
				for _, r := range runs {
					c.Changes = append(c.Changes, keep.PutRun{Run: r})
				}
				p.commit(c)
			}
			tt.want.Name = "w"
			if got := p.count("w"); got != tt.want {
				t.Errorf("count = %+v, want %+v", got, tt.want)
			}
		})
	}
}

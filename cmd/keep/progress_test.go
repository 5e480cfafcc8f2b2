package main

import (
	"encoding/json"
	"io"
	"testing"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/cmd/keep/internal/terminal"
	"github.com/keep-run/keep/law/lifecycle"
)

// A run and its retries count as one, by what became of the last attempt.
func TestProgress(t *testing.T) {
	t.Parallel()
	run := func(id keep.RunID, status keep.RunStatus, closed bool) keep.Run {
		return keep.Run{ID: id, Workflow: "w", Status: status, Closed: closed}
	}
	retry := func(id, of keep.RunID, status keep.RunStatus, closed bool) keep.Run {
		r := run(id, status, closed)
		r.RetryOf = of
		return r
	}
	later := func(r keep.Run) keep.Run {
		r.RetryAt = time.Unix(1, 0)
		return r
	}
	deployed := later(run("1", keep.StatusLogic, false))
	type runs = []keep.Run
	for _, tt := range []struct {
		name    string
		commits []runs
		want    runCount
	}{
		{"taken_up_from_a_killed_command", []runs{{run("1", keep.StatusCrashed, false)}, {run("1", keep.StatusCrashed, true), retry("2", "1", keep.StatusActive, false)},
			{retry("2", "1", keep.StatusCommitted, true)}}, runCount{Runs: 1, Committed: 1, Retries: 1}},
		{"taken_up_and_sent_again", []runs{{run("1", keep.StatusCrashed, false)}, {run("1", keep.StatusCrashed, true), retry("2", "1", keep.StatusReconciliation, false)},
			{later(retry("2", "1", keep.StatusTransient, false))}, {retry("2", "1", keep.StatusTransient, true), retry("3", "2", keep.StatusActive, false)},
			{retry("3", "2", keep.StatusCommitted, true)}}, runCount{Runs: 1, Committed: 1, Retries: 2}},
		{"retried", []runs{{run("1", keep.StatusActive, false)}, {later(run("1", keep.StatusTransient, false))},
			{run("1", keep.StatusTransient, true), retry("2", "1", keep.StatusActive, false)}, {later(retry("2", "1", keep.StatusTransient, false))},
			{retry("3", "2", keep.StatusActive, false), retry("2", "1", keep.StatusTransient, true)}, {retry("3", "2", keep.StatusCommitted, true)}},
			runCount{Runs: 1, Committed: 1, Retries: 2}},
		{"to_be_retried", []runs{{run("1", keep.StatusActive, false)}, {later(run("1", keep.StatusTransient, false))}}, runCount{Runs: 1, Waiting: 1}},
		{"retries_spent", []runs{{run("1", keep.StatusActive, false)}, {later(run("1", keep.StatusTransient, false))},
			{run("1", keep.StatusTransient, true), retry("2", "1", keep.StatusActive, false)}, {retry("2", "1", keep.StatusPerson, false)}},
			runCount{Runs: 1, Failed: 1, Retries: 1}},
		{"failed_at_once", []runs{{run("1", keep.StatusLogic, false)}}, runCount{Runs: 1, Failed: 1}},
		{"left_failed_by_an_earlier_command", []runs{{run("1", keep.StatusTransient, true), retry("2", "1", keep.StatusActive, false)},
			{retry("2", "1", keep.StatusCommitted, true)}}, runCount{Runs: 1, Committed: 1, Retries: 1}},
		{"unblocked_by_a_deploy", []runs{{deployed}, {run("1", keep.StatusLogic, true), retry("2", "1", keep.StatusActive, false)},
			{retry("2", "1", keep.StatusCommitted, true)}}, runCount{Runs: 1, Committed: 1, Retries: 1}},
		{"carried_on", []runs{{run("1", keep.StatusReconciliation, false)}, {run("1", keep.StatusActive, false)},
			{run("1", keep.StatusCommitted, true)}}, runCount{Runs: 1, Committed: 1}},
		{"answered", []runs{{run("1", keep.StatusActive, false)}, {run("1", keep.StatusPerson, false)}, {run("1", keep.StatusActive, false)},
			{run("1", keep.StatusCommitted, true)}}, runCount{Runs: 1, Committed: 1}},
		{"in_doubt", []runs{{run("1", keep.StatusActive, false)}, {run("1", keep.StatusReconciliation, false)}}, runCount{Runs: 1, Waiting: 1}},
		{"interrupted", []runs{{run("1", keep.StatusActive, false)}, {lifecycle.Interrupt(run("1", keep.StatusActive, false), "stopping", time.Unix(1, 0))}},
			runCount{Runs: 1, Waiting: 1}},
		{"skipped_meanwhile", []runs{{run("1", keep.StatusActive, false)}, {run("1", keep.StatusAborted, true)}}, runCount{Runs: 1}},
		{"another_run_of_the_workflow", []runs{{run("1", keep.StatusLogic, false)}, {run("2", keep.StatusActive, false)}, {run("2", keep.StatusCommitted, true)}},
			runCount{Runs: 2, Committed: 1, Failed: 1}},
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

// The run of a killed command is taken up by the next one, which asks for its call, learns that it was
// lost, and sends it again: that is one run, which committed.
func TestProgressOfAKilledRun(t *testing.T) {
	t.Parallel()
	w := newCrashWorld(t)
	w.crm.fill(1)
	w.crm.set("lose")
	w.killAt("arrived")
	w.crm.set("ok")
	out, err := w.command("run", ".", "--json").Output()
	if err != nil {
		t.Fatalf("run: %v\n%s", err, out)
	}
	var sum runSummary
	if err := json.Unmarshal(out, &sum); err != nil || len(sum.Workflows) != 1 {
		t.Fatalf("%v in %s", err, out)
	}
	got := sum.Workflows[0]
	if got.Runs < 2 || got.Committed != got.Runs || got.Failed != 0 || got.Waiting != 0 || got.Retries < 2 {
		t.Errorf("the summary is %+v, want all runs committed, and the attempts that took one up", got)
	}
	if n := w.crm.effects("c1"); n != 1 {
		t.Errorf("c1 was created %d times, want once", n)
	}
}

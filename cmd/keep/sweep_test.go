package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/cmd/keep/internal/exit"
	"github.com/keep-run/keep/store/sqlite"
)

// keep db sweep says first what it would delete, by [retention] of each workflow,
// and then deletes it once.
func TestSweepCommand(t *testing.T) {
	dir := t.TempDir()
	config := "[retention]\nafter = \"2d\"\nworkflows = { slow = \"30d\", kept = \"0s\" }\n"
	if err := os.WriteFile(filepath.Join(dir, "keep.toml"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	now := time.Date(2026, 5, 4, 3, 2, 1, 0, time.UTC)
	db := sqlite.New(filepath.Join(dir, "keep.db"), sqlite.Config{Host: true})
	if err := db.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, w := range []keep.WorkflowName{"fast", "slow", "kept", "last"} {
		err := db.Commit(t.Context(), keep.Commit{Workflow: w, At: now, Changes: []keep.Change{keep.Deploy{Deployment: keep.Deployment{
			Workflow: w, Version: keep.Version{Major: 1}, Definition: keep.Definition{Name: w}, CreatedAt: now}}}})
		if err != nil {
			t.Fatal(err)
		}
		for i := range 50 {
			id := keep.RunID(fmt.Sprintf("run_%s%d", w, i))
			err := db.Commit(t.Context(), keep.Commit{Workflow: w, At: now, Changes: []keep.Change{keep.PutRun{Run: keep.Run{ID: id, Chain: id, Workflow: w,
				Handler: "poll", Kind: keep.Producer, Phase: keep.Committed, Status: keep.StatusCommitted, Closed: true, CreatedAt: now, UpdatedAt: now}}}})
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	t.Chdir(dir)
	command := func(status int, later time.Duration, args ...string) (out, talk string) {
		t.Helper()
		var o, e bytes.Buffer
		a := newApp(&o, &e)
		a.Clock = func() time.Time { return now.Add(later) }
		root := a.root()
		root.SetArgs(append([]string{"db"}, args...))
		cmd, err := root.ExecuteContextC(t.Context())
		if got := a.finish(cmd, err); got != status {
			t.Fatalf("keep db %v: status %d, want %d\n%s%s", args, got, status, o.String(), e.String())
		}
		return o.String(), e.String()
	}
	trace := func(id keep.RunID, at time.Time) {
		t.Helper()
		db := sqlite.New(filepath.Join(dir, "keep.db"), sqlite.Config{Host: true})
		if err := db.Open(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := db.Commit(t.Context(), keep.Commit{Workflow: "last", At: at, Changes: []keep.Change{keep.AppendTrace{Part: keep.TracePart{Run: id, At: at, Data: []byte("x")}}}}); err != nil {
			t.Fatal(err)
		}
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
	}
	sweep := func(later time.Duration, want sweepSummary, args ...string) {
		t.Helper()
		out, _ := command(exit.Done, later, append([]string{"sweep", "--json"}, args...)...)
		var got sweepSummary
		if err := json.Unmarshal([]byte(out), &got); err != nil || got.Runs != want.Runs || got.Traces != want.Traces || got.Preview != want.Preview {
			t.Errorf("keep db sweep %v after %s = %s, want %+v", args, later, out, want)
		}
	}
	const day = 24 * time.Hour
	sweep(day, sweepSummary{Preview: true})
	sweep(3*day, sweepSummary{Preview: true, Runs: 99}) // of fast and last; the newest stays
	if _, talk := command(exit.Done, 3*day, "sweep"); !strings.Contains(talk, "To delete 99 runs with 0 mutations, say --yes") {
		t.Errorf("keep db sweep says %q", talk)
	}
	sweep(3*day, sweepSummary{Runs: 99}, "--yes")
	sweep(3*day, sweepSummary{}, "--yes")
	sweep(31*day, sweepSummary{Runs: 50}, "--yes")
	sweep(400*day, sweepSummary{}, "--yes")
	command(exit.Done, 400*day, "check")
	sweep(400*day, sweepSummary{Runs: 50}, "--yes", "--older-than", "90d")
	trace("run_last49", now.Add(400*day)) // of the newest run, which stays
	sweep(407*day, sweepSummary{Preview: true})
	sweep(408*day, sweepSummary{Preview: true, Traces: 1})
	if _, talk := command(exit.Done, 408*day, "sweep"); !strings.Contains(talk, "To delete 0 runs with 0 mutations, and 1 trace, say --yes") {
		t.Errorf("keep db sweep says %q", talk)
	}
	sweep(408*day, sweepSummary{Traces: 1}, "--yes")
	sweep(408*day, sweepSummary{}, "--yes")
	command(exit.Misused, 0, "sweep", "--older-than", "1h")
	command(exit.Misused, 0, "sweep", "--older-than", "soon")
}

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/store/sqlite"
)

// items measures the real command keep items on a database with n items, each
// with one call: from the start of the process to its end.
func items(ctx context.Context, dir string, n int, out io.Writer) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	path, err := filepath.Abs(filepath.Join(dir, "keep.db"))
	if err != nil {
		return err
	}
	start := time.Now()
	if err := fillItems(ctx, path, n); err != nil {
		return err
	}
	fmt.Fprintf(out, "\nkeep items, the command, %d items with a call each (stored in %s)\n", n, time.Since(start).Round(time.Millisecond))
	bin, err := buildKeep(ctx, dir)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "%-42s %10s %10s %10s %10s\n", "", "min", "median", "max", "processor")
	for _, args := range []string{
		"version", "items", "items --workflow jobs", "items --status failed", "items --workflow jobs --status needs_attention",
		"items --limit 1000", "items --json",
	} {
		var took, cpu []time.Duration
		for range 21 {
			cmd := exec.CommandContext(ctx, bin, append(strings.Fields(args), "--db", path)...)
			cmd.Dir = dir
			start := time.Now()
			if msg, err := cmd.CombinedOutput(); err != nil {
				return fmt.Errorf("keep %s: %w: %s", args, err, msg)
			}
			took = append(took, time.Since(start))
			cpu = append(cpu, cmd.ProcessState.UserTime()+cmd.ProcessState.SystemTime())
		}
		slices.Sort(took)
		slices.Sort(cpu)
		fmt.Fprintf(out, "%-42s %10s %10s %10s %10s\n", "keep "+args, ms(took[0]), ms(took[len(took)/2]), ms(took[len(took)-1]), ms(cpu[len(cpu)/2]))
	}
	return nil
}

func ms(d time.Duration) string { return fmt.Sprintf("%.1fms", d.Seconds()*1000) }

// fillItems makes a database with n items of one job, oldest first. One in a
// thousand is failed, and the others are done.
func fillItems(ctx context.Context, path string, n int) (err error) {
	db := sqlite.New(path, sqlite.Config{Host: true})
	if err := db.Open(ctx); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	now := time.Now().UTC().Truncate(time.Millisecond)
	const w, run = keep.WorkflowName("jobs"), keep.RunID("run_1")
	first := keep.Commit{Workflow: w, At: now, Changes: []keep.Change{
		keep.Deploy{Deployment: keep.Deployment{Workflow: w, Version: keep.Version{Major: 1}, Definition: keep.Definition{Name: w}, CreatedAt: now}},
		keep.PutRun{Run: keep.Run{ID: run, Chain: run, Workflow: w, Handler: "remind", Kind: keep.Job, Phase: keep.Committed,
			Status: keep.StatusCommitted, Closed: true, CreatedAt: now, UpdatedAt: now}},
	}}
	if err := db.Commit(ctx, first); err != nil {
		return err
	}
	for i := 0; i < n; {
		c := keep.Commit{Workflow: w, At: now.Add(time.Duration(i) * time.Microsecond)}
		for range min(5000, n-i) {
			c.Changes = append(c.Changes, itemAndCall(w, run, i, c.At)...)
			i++
		}
		if err := db.Commit(ctx, c); err != nil {
			return err
		}
	}
	return nil
}

// itemAndCall returns the nth item and its applied call.
func itemAndCall(w keep.WorkflowName, run keep.RunID, n int, at time.Time) []keep.Change {
	it := keep.Item{Workflow: w, ID: fmt.Sprintf("invoice:%d", n), Title: fmt.Sprintf("Remind of invoice %d", n), Status: keep.ItemDone,
		Attempt: 1, CreatedAt: at, UpdatedAt: at}
	if n%1000 == 0 {
		it.Status = keep.ItemFailed
	}
	m := keep.Mutation{Key: keep.MutationKey(fmt.Sprintf("item_%08d", n)), Workflow: w, Run: run, Item: it.ID, Attempt: 1,
		Tool: "mail.send", Connector: "http", Level: keep.LevelKey, Target: it.ID, Token: fmt.Sprint(n),
		Identity: json.RawMessage(fmt.Sprintf(`{"to":%d}`, n)), Payload: json.RawMessage(fmt.Sprintf(`{"to":%d}`, n)), PayloadHash: "-",
		State: keep.Applied, ResolvedBy: "call", Attempts: 1, CallDeadline: at, CreatedAt: at, UpdatedAt: at}
	return []keep.Change{
		keep.PutItem{Item: it},
		keep.PutMutation{Mutation: m, Moves: []keep.Move{{At: at, By: "call", From: keep.InFlight, To: keep.Applied, Evidence: "happened"}}},
	}
}

// buildKeep builds the command into dir and returns its path.
func buildKeep(ctx context.Context, dir string) (string, error) {
	bin := filepath.Join(dir, "keep")
	if msg, err := exec.CommandContext(ctx, "go", "build", "-o", bin, "./cmd/keep").CombinedOutput(); err != nil {
		return "", fmt.Errorf("build keep: %w: %s", err, msg)
	}
	return filepath.Abs(bin)
}

package main

import (
	"bufio"
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
	"sync/atomic"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/law/policy"
	"github.com/keep-run/keep/store/sqlite"
)

// A stage is what a host does beside stored runs and events.
type stage struct {
	runs, events int
	ratio        ratio         // to a host whose database is empty, in turns
	rss          [2]int64      // at most, beside an empty database and beside this one
	start        time.Duration // of keep serve, until it says that it serves
	bytes        int64         // of the database
}

const (
	growthWorkflows = 64
	eventsPerRun    = 10
	past            = 40 * 24 * time.Hour // how long ago the stored runs ended
)

// growth stores more and more runs and events, and compares a host of them with one whose database is
// empty; then it sweeps the old runs while the host works.
func growth(ctx context.Context, dir string, s size, chart string, out io.Writer) error {
	if err := os.MkdirAll(filepath.Join(dir, "bin"), 0o700); err != nil {
		return err
	}
	bin, err := buildKeep(ctx, filepath.Join(dir, "bin"))
	if err != nil {
		return err
	}
	var sides [2]*bench
	for i, name := range []string{"empty", "full"} {
		sides[i] = &bench{dir: filepath.Join(dir, name), last: make(map[keep.WorkflowName]time.Time)}
		if err := sides[i].openReaders(ctx, growthWorkflows, ""); err != nil {
			return err
		}
		if err := sides[i].close(); err != nil {
			return err
		}
	}
	var stages []stage
	for _, runs := range s.grown {
		st, err := grow(ctx, bin, sides, stages, runs, s, out)
		if err != nil {
			return err
		}
		stages = append(stages, st)
	}
	fmt.Fprintf(out, "%12s %12s %10s %10s %10s %12s %14s %12s\n", "runs", "events", "file", "runs/s", "CPU/run", "RSS, empty", "RSS, at most", "start")
	for _, st := range stages {
		fmt.Fprintf(out, "%12d %12d %7d MB %9.3fx %9.3fx %8d MiB %10d MiB %12s\n", st.runs, st.events, st.bytes>>20, st.ratio.rate, st.ratio.cpu,
			st.rss[0]>>20, st.rss[1]>>20, st.start.Round(time.Millisecond))
	}
	fmt.Fprintln(out)
	if err := sweepBeside(ctx, sides[1], s, out); err != nil || chart == "" {
		return err
	}
	return os.WriteFile(chart, []byte(drawGrowth(stages)), 0o644)
}

// grow stores runs until there are so many, and measures.
func grow(ctx context.Context, bin string, sides [2]*bench, before []stage, runs int, s size, out io.Writer) (st stage, err error) {
	st.runs, st.events = runs, runs*eventsPerRun
	from := 0
	if n := len(before); n > 0 {
		from = before[n-1].runs
	}
	path := filepath.Join(sides[1].dir, "keep.db")
	began := time.Now()
	if err := storePast(ctx, path, sides[1].workflows, from, runs); err != nil {
		return st, err
	}
	info, err := os.Stat(path)
	if err != nil {
		return st, err
	}
	st.bytes = info.Size()
	per := max(1, s.turn/growthWorkflows/4)
	fmt.Fprintf(out, "%d runs and %d events stored (the last of them in %s); consumer runs of %d workflows beside them and beside nothing, in turns of %d runs\n",
		st.runs, st.events, time.Since(began).Round(time.Second), growthWorkflows, per*growthWorkflows)
	var turns [2]turn
	for i, b := range sides {
		turns[i] = func(ctx context.Context) (wall, cpu time.Duration, err error) {
			peak := watchRSS()
			defer func() { st.rss[i] = max(st.rss[i], peak()) }()
			return b.turn(ctx, per, nil)
		}
	}
	if st.ratio, err = inTurns(ctx, [2]string{"empty", "full"}, per*growthWorkflows, turns, 2*s.turns, out); err != nil {
		return st, err
	}
	fmt.Fprintln(out)
	st.start, err = startOfServe(ctx, bin, sides[1].dir)
	return st, err
}

// storePast stores the runs from one number up to another, oldest first, as they would be there if they
// had run long ago: each with the event that it consumed and with a mutation, and beside it events that nobody consumes.
func storePast(ctx context.Context, path string, workflows []keep.WorkflowName, from, to int) (err error) {
	db := sqlite.New(path, sqlite.Config{Host: true})
	if err := db.Open(ctx); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	began := time.Now().Add(-past).UTC().Truncate(time.Millisecond)
	const batch = 250
	for n := from; n < to; n += batch {
		w := workflows[n/batch%len(workflows)]
		at := began.Add(time.Duration(n) * time.Millisecond)
		in := keep.Input{ID: keep.InputID(keep.NewID("in", at, entropy(n))), Workflow: w, Source: "bench", Type: "past", ExternalID: fmt.Sprint(n),
			Title: fmt.Sprintf("Order %d", n), Status: keep.InputPending, CreatedAt: at}
		c := keep.Commit{Workflow: w, At: at, Changes: []keep.Change{keep.PutInput{Input: in}}}
		for i := range min(batch, to-n) {
			c.Changes = append(c.Changes, pastRun(w, in.ID, n+i, at)...)
		}
		if err := db.Commit(ctx, c); err != nil {
			return err
		}
	}
	return nil
}

func entropy(n int) (r [10]byte) {
	r[0], r[1], r[2], r[3] = byte(n>>24), byte(n>>16), byte(n>>8), byte(n)
	return r
}

// pastRun is the nth run, with its events and its mutation.
func pastRun(w keep.WorkflowName, in keep.InputID, n int, at time.Time) []keep.Change {
	publish := func(topic keep.TopicName, id keep.MessageID) keep.Change {
		return keep.Publish{Event: keep.Event{Workflow: w, Topic: topic, MessageID: id, Payload: json.RawMessage(fmt.Sprintf(`{"order":%d,"of":"customer %d"}`, n, n%977)),
			Status: keep.EventPending, CausedBy: []keep.InputID{in}, CreatedAt: at, UpdatedAt: at}}
	}
	id := keep.MessageID(fmt.Sprintf("past%d", n))
	run, key := keep.RunID(keep.NewID("run", at, entropy(n))), keep.MutationKey(keep.NewID("mut", at, entropy(n)))
	cs := []keep.Change{publish("in", id)}
	for i := range eventsPerRun - 1 {
		cs = append(cs, publish("out", keep.MessageID(fmt.Sprintf("%s.%d", id, i))))
	}
	return append(cs,
		keep.PutRun{Run: keep.Run{ID: run, Chain: run, Workflow: w, Version: keep.Version{Major: 1}, Handler: "act", Kind: keep.Consumer, Phase: keep.Committed,
			Status: keep.StatusCommitted, Closed: true, Mutation: key, Title: fmt.Sprintf("Handle past%d", n), CreatedAt: at, UpdatedAt: at}},
		keep.Reserve{Chain: run, Reservation: keep.Reservation{Topic: "in", IDs: []keep.MessageID{id}}},
		keep.PutMutation{Mutation: keep.Mutation{Key: key, Workflow: w, Run: run, Tool: "svc.create", Connector: "fake", Level: keep.LevelKey, Target: "thing",
			Identity: json.RawMessage(`{}`), Payload: json.RawMessage(fmt.Sprintf(`{"id":%q}`, id)), PayloadHash: "-", Token: string(key), State: keep.Applied, Attempts: 1,
			CallDeadline: at, ResolvedBy: "call", CreatedAt: at, UpdatedAt: at},
			Moves: []keep.Move{{At: at, By: "call", To: keep.InFlight, Evidence: "new attempt"}, {At: at, By: "call", From: keep.InFlight, To: keep.Applied, Evidence: "happened"}}},
		keep.Finish{Chain: run, Status: keep.EventConsumed})
}

// startOfServe returns the median time from the start of keep serve in dir until it says that it serves.
func startOfServe(ctx context.Context, bin, dir string) (time.Duration, error) {
	var took []time.Duration
	for range 5 {
		d, err := startOnce(ctx, bin, dir)
		if err != nil {
			return 0, err
		}
		took = append(took, d)
	}
	slices.Sort(took)
	return took[len(took)/2], nil
}

func startOnce(ctx context.Context, bin, dir string) (took time.Duration, err error) {
	cmd := exec.CommandContext(ctx, bin, "serve", "--listen", "127.0.0.1:0")
	cmd.Dir = dir
	stderr, err := cmd.StderrPipe()
	if err != nil {
		return 0, err
	}
	start := time.Now()
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	var said strings.Builder
	for lines := bufio.NewScanner(stderr); lines.Scan(); {
		if strings.HasPrefix(lines.Text(), "Serving ") {
			took = time.Since(start)
			err = cmd.Process.Signal(os.Interrupt)
			break
		}
		said.WriteString(lines.Text() + "\n")
	}
	_, _ = io.Copy(io.Discard, stderr)
	if werr := cmd.Wait(); took == 0 {
		return 0, fmt.Errorf("keep serve did not begin to serve: %w: %s", werr, &said)
	}
	return took, err
}

// sweepBeside compares the host while it sweeps the runs of the past with itself when it does not.
func sweepBeside(ctx context.Context, b *bench, s size, out io.Writer) error {
	per := max(1, s.turn/growthWorkflows/4)
	fmt.Fprintf(out, "the same host, and while it sweeps old runs, in turns of %d runs\n", per*growthWorkflows)
	var ended atomic.Int64
	var turns [2]turn
	for i := range turns {
		turns[i] = func(ctx context.Context) (wall, cpu time.Duration, err error) {
			if i == 0 {
				b.retention = policy.Retention{}
				return b.turn(ctx, per, nil)
			}
			b.retention = policy.Retention{After: past / 2}
			return b.turn(ctx, per, func(ctx context.Context) {
				if b.host.Sweep(ctx); ctx.Err() == nil {
					ended.Add(1)
				}
			})
		}
	}
	if _, err := inTurns(ctx, [2]string{"alone", "sweep"}, per*growthWorkflows, turns, 2*s.turns, out); err != nil {
		return err
	}
	_, err := fmt.Fprintf(out, "  %d turns had nothing left to sweep before they ended\n", ended.Load())
	return err
}

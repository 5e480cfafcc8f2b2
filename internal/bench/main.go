// Bench measures a whole host, script to disk, and prints one report: the floor
// that the disk sets, what runs cost above it, and how memory behaves as data
// grows. It is what make bench runs; docs/BENCHMARKS.md keeps its last output.
//
//	go run ./internal/bench            (a few minutes)
//	go run ./internal/bench -quick     (a smoke test of the program itself)
//	go run ./internal/bench -runs      (only consumer runs: to compare two versions, in turns)
//	go run ./internal/bench -doubt     (only calls, lost answers and recovery)
//	go run ./internal/bench -reads     (only what it costs to record what runs read, in turns with and without)
//	go run ./internal/bench -tests     (only keep test on large files of tests)
//	go run ./internal/bench -growth    (only a host beside one with a million runs, with a chart; 15 minutes)
//	go run ./internal/bench -pages     (only which pages consumer runs write to the log of SQLite)
//	go run ./internal/bench -binary    (only what is in the command)
//	go run ./internal/bench -hosts     (only two hosts on a Postgres of its own, beside one on SQLite)
//
// Every figure of one report comes from one process on one machine, so that the
// ratios hold when the machine is slow.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"runtime/pprof"
	"time"

	"github.com/keep-run/keep/internal/garbage"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	var o options
	flag.BoolFunc("items", "measure only keep items", func(string) error { o.only = partItems; return nil })
	flag.BoolFunc("runs", "measure only consumer runs", func(string) error { o.only = partRuns; return nil })
	flag.BoolFunc("doubt", "measure only calls, lost answers and recovery", func(string) error { o.only = partDoubt; return nil })
	flag.BoolFunc("reads", "measure only what it costs to record what runs read", func(string) error { o.only = partReads; return nil })
	flag.BoolFunc("tests", "measure only keep test on large files of tests", func(string) error { o.only = partTests; return nil })
	flag.BoolFunc("hosts", "measure only two hosts on Postgres, beside one on SQLite", func(string) error { o.only = partHosts; return nil })
	flag.BoolFunc("growth", "measure only what stored runs and events cost", func(string) error { o.only = partGrowth; return nil })
	flag.BoolFunc("pages", "say only which pages runs write to the log of SQLite", func(string) error { o.only = partPages; return nil })
	flag.BoolFunc("binary", "say only what is in the command", func(string) error { o.only = partBinary; return nil })
	flag.StringVar(&o.chart, "chart", "", "with -growth: draw it into this `file`, as SVG")
	flag.BoolVar(&o.quick, "quick", false, "a hundredth of the work")
	flag.StringVar(&o.profile, "cpuprofile", "", "write a CPU profile to `file`; with -hosts, those of its hosts to files whose names begin so")
	as := flag.String("member", "", "be a host of -hosts, as this `JSON` says: -hosts starts such processes")
	recorder := flag.String("side", "", "be a host of -reads, as this `JSON` says: -reads starts such processes")
	flag.Parse()
	garbage.Pace() // as the command does
	err := error(nil)
	switch {
	case *as != "":
		err = member(ctx, *as, os.Stdin, os.Stdout)
	case *recorder != "":
		err = side(ctx, *recorder, os.Stdin, os.Stdout)
	default:
		err = run(ctx, o, os.Stdout)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// options say what to measure.
type options struct {
	quick   bool
	only    part
	profile string // file; empty: none
	chart   string // file; empty: none
}

// startProfile profiles the whole report into a file, if it has a name.
func startProfile(name string) (stop func(), err error) {
	if name == "" {
		return func() {}, nil
	}
	f, err := os.Create(name)
	if err != nil {
		return nil, err
	}
	if err := pprof.StartCPUProfile(f); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return func() { pprof.StopCPUProfile(); f.Close() }, nil
}

// A size says how much work a report is worth.
type size struct {
	floor  time.Duration
	single int // runs of one workflow
	many   int // runs of 64 workflows
	events int // events stored before the last measurement
	items  int // of keep items
	tests  int // in a file of keep test
	idle   time.Duration

	calls    int // made with Keep and without it, and answers lost
	inFlight int // workflows with a call in flight when the host is killed

	turns, turn int   // of -hosts: how many, and the runs of one
	takeOver    int   // workflows that a host has when it is killed
	idlers      []int // workflows of two hosts that have nothing to do
	grown       []int // runs stored, of -growth
}

// A part is what of the report is wanted; empty: all of it.
type part string

const (
	partItems part = "items"
	partRuns  part = "runs"
	partDoubt part = "doubt"
	partHosts part = "hosts"
	partReads part = "reads"
	partTests part = "tests"

	partGrowth part = "growth"
	partBinary part = "binary"
	partPages  part = "pages"
)

func run(ctx context.Context, o options, out io.Writer) error {
	s := o.size()
	dir, err := os.MkdirTemp(".", "bench-") // on the disk of the checkout, not in memory
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	fmt.Fprintf(out, "%s %s/%s, %d processors, %s\n\n", runtime.Version(), runtime.GOOS, runtime.GOARCH, runtime.GOMAXPROCS(0), time.Now().UTC().Format(time.DateOnly))

	if o.only == partHosts {
		return hosts(ctx, dir, s, o.profile, out)
	}
	stopProfile, err := startProfile(o.profile)
	if err != nil {
		return err
	}
	defer stopProfile()
	switch o.only {
	case partRuns:
		s.single, s.many = s.single/2, s.many/4
		return runs(ctx, dir, s, 0, out)
	case partItems:
		return items(ctx, filepath.Join(dir, "items"), s.items, out)
	case partReads:
		return reads(ctx, dir, s, out)
	case partTests:
		return tests(ctx, filepath.Join(dir, "tests"), s.tests, out)
	case partPages:
		return pages(ctx, filepath.Join(dir, "pages"), s, out)
	case partBinary:
		return binary(ctx, dir, out)
	case partGrowth:
		return growth(ctx, dir, s, o.chart, out)
	case partDoubt:
		return doubt(ctx, dir, s, out)
	}
	return everything(ctx, dir, s, out)
}

// size returns how much is measured.
func (o options) size() size {
	if !o.quick {
		return size{floor: 3 * time.Second, single: 5000, many: 100_000, events: 1_000_000, items: 1_000_000, tests: 4000, idle: 20 * time.Second,
			calls: 2000, inFlight: 10_000, turns: 3, turn: 12_800, takeOver: 1000, idlers: []int{10, 1000, 10_000}, grown: []int{10_000, 100_000, 1_000_000}}
	}
	return size{floor: 100 * time.Millisecond, single: 50, many: 1000, events: 10_000, items: 10_000, tests: 100, idle: 200 * time.Millisecond,
		calls: 20, inFlight: 100, turns: 1, turn: 256, takeOver: 20, idlers: []int{10, 20}, grown: []int{640, 1280}}
}

// everything measures all parts, one after another.
func everything(ctx context.Context, dir string, s size, out io.Writer) error {
	syncs, err := floor(filepath.Join(dir, "floor"), s.floor)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "floor: 4 KiB append + fdatasync, one after another   %8.0f /s\n\n", syncs)

	if err := runs(ctx, dir, s, syncs, out); err != nil {
		return err
	}
	if err := produce(ctx, filepath.Join(dir, "producer"), out); err != nil {
		return err
	}
	if err := idle(ctx, filepath.Join(dir, "idle"), s.idle, out); err != nil {
		return err
	}
	if err := coldStart(ctx, dir, out); err != nil {
		return err
	}
	if err := doubt(ctx, dir, s, out); err != nil {
		return err
	}
	if err := hosts(ctx, dir, s, "", out); errors.Is(err, errNoPostgres) {
		fmt.Fprintf(out, "%v\n\n", err)
	} else if err != nil {
		return err
	}
	return items(ctx, filepath.Join(dir, "items"), s.items, out)
}

// runs measures consumer runs of one workflow and of 64, and, beside a floor, once more
// when many events are stored.
func runs(ctx context.Context, dir string, s size, syncs float64, out io.Writer) error {
	for _, c := range []struct{ workflows, runs int }{{1, s.single}, {64, s.many}} {
		b, err := openBench(ctx, filepath.Join(dir, fmt.Sprint("w", c.workflows)), c.workflows)
		if err != nil {
			return err
		}
		if err := b.consume(ctx, c.runs, syncs, out); err != nil {
			return err
		}
		if c.workflows > 1 && syncs > 0 {
			if err := b.grow(ctx, s.events, out); err != nil {
				return err
			}
		}
		if err := b.close(); err != nil {
			return err
		}
	}
	return nil
}

// doubt measures what the ledger costs and what it is for.
func doubt(ctx context.Context, dir string, s size, out io.Writer) error {
	if err := overhead(ctx, filepath.Join(dir, "overhead"), s.calls, out); err != nil {
		return err
	}
	if err := certainty(ctx, filepath.Join(dir, "certainty"), s.calls, out); err != nil {
		return err
	}
	return recovery(ctx, filepath.Join(dir, "recovery"), s.inFlight, out)
}

// floor appends and syncs blocks one after another, and returns how many a second.
func floor(path string, d time.Duration) (float64, error) {
	f, err := os.Create(path)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	block := make([]byte, 4096)
	start, n := time.Now(), 0
	for time.Since(start) < d {
		if _, err := f.Write(block); err != nil {
			return 0, err
		}
		if err := datasync(f); err != nil {
			return 0, err
		}
		n++
	}
	return float64(n) / time.Since(start).Seconds(), nil
}

// Command torture tries to break Keep's guarantees in simulated worlds, with seeds
// that were never tried. It is for the developers of Keep:
//
//	go run ./internal/torture -for 10m            new worlds for ten minutes
//	go run ./internal/torture -seed 7 -trace      every step of one world
//	go run ./internal/torture -group -for 10m     worlds of several hosts
//	go run ./internal/torture -for 10h -tally worlds.jsonl
//	                                              count in a file, and continue after its last seed
//
// A long search can be ended at any time (Ctrl-C, or SIGKILL, which costs the last minute)
// and continued with the same -tally, which prints the sum of all parts.
//
// Services lose answers and lie, commits fail, people decide badly, and the host is
// killed at any point. At the end of each world, what the services did is compared
// with what the ledger says. The seed decides all that happens in a world, so one that
// breaks a law can be looked at again. No file, database or network is touched.
//
// The exit code is 1 if a law was broken.
package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/keep-run/keep/internal/simtest"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	// A flag set of its own: the simulation runs as a test, and clears the command line.
	flags := flag.NewFlagSet("torture", flag.ExitOnError)
	c := simtest.Config{Out: os.Stderr}
	flags.Uint64Var(&c.First, "seed", 0, "first seed; 0: one that was never tried")
	flags.DurationVar(&c.For, "for", time.Minute, "how long to begin new worlds")
	trace := flags.Bool("trace", false, "print every step of the world of -seed, and simulate no other")
	asJSON := flags.Bool("json", false, "print the report as JSON")
	flags.BoolVar(&c.Group, "group", false, "several hosts in each world")
	file := flags.String("tally", "", "`file` that counts the worlds of all parts of a long search")
	_ = flags.Parse(os.Args[1:]) // ExitOnError
	if c.For <= 0 && !*trace {
		fmt.Fprintln(os.Stderr, "torture: -for must be a positive time, such as 10m")
		os.Exit(2)
	}
	parts, err := readTally(*file)
	if err != nil {
		fmt.Fprintln(os.Stderr, "torture:", err)
		os.Exit(2)
	}
	c.First = cmp.Or(c.First, resume(parts, c.Group), uint64(time.Now().UnixNano()))
	if *file != "" && !*trace {
		c.Part, c.Every = (&tally{path: *file, group: c.Group, seed: c.First}).add, time.Minute
	}
	if *trace {
		c.Trace = os.Stderr
	}
	fmt.Fprintf(os.Stderr, "simulating worlds from seed %d on\n", c.First)
	r := simtest.Torture(ctx, c)
	if err := errors.Join(report(os.Stdout, c.First, r, *asJSON), total(os.Stdout, *file)); err != nil {
		fmt.Fprintln(os.Stderr, "torture:", err)
		os.Exit(1)
	}
	if len(r.Bad) > 0 {
		os.Exit(1)
	}
}

// total prints what all parts of a tally came to, if there is one.
func total(w io.Writer, path string) error {
	if path == "" {
		return nil
	}
	parts, err := readTally(path)
	return errors.Join(err, sum(w, parts))
}

// report prints what the worlds came to.
func report(w io.Writer, first uint64, r simtest.Report, asJSON bool) error {
	if !asJSON {
		_, err := fmt.Fprintln(w, r)
		return err
	}
	broken := []uint64{}
	for _, bad := range r.Bad {
		broken = append(broken, bad.Seed)
	}
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(map[string]any{
		"seed": first, "seeds": r.Seeds, "seconds": r.Took.Seconds(), "crashes": r.Sum.Crashes, "faults": r.Sum.Faults,
		"commits": r.Sum.Commits, "calls": r.Sum.Calls, "effects": r.Sum.Effects, "decisions": r.Sum.Decisions, "broken": broken,
	})
}

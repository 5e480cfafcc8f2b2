// Bench measures Keep beside other systems that run durable steps, on one machine, one disk
// and one Postgres, and prints one table with ratios. It is a module of its own, so that
// their packages are none of Keep's.
//
//	cd bench && go run .            (some ten minutes; it needs the programs of a Postgres server)
//	cd bench && go run . -quick     (a smoke test of the program itself)
//	cd bench && go run . -only keep-sqlite,dbos-postgres
//
// A work is three durable steps that carry 1 KB from one to the next. Each client has one
// work at a time and begins the next when it is over; there are 1 and 64 of them. Systems
// are measured in turns, each in a process of its own with a fresh database, and the table
// has the median of the turns. It prints which versions were built in, what was tuned, and
// what each system does not promise. Then it runs BenchmarkPeers of idempotency/compattest,
// which does the same for keys of HTTP requests.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"time"

	"github.com/keep-run/keep/internal/garbage"
)

// options say what to measure.
type options struct {
	quick bool
	only  string        // names of systems, with commas; empty: all
	dir   string        // where databases are made
	turns int           // of each system
	each  time.Duration // how long a turn is measured
	http  bool          // measure keys of HTTP requests, too
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	var o options
	flag.BoolVar(&o.quick, "quick", false, "one short turn of each")
	flag.StringVar(&o.only, "only", "", "measure only these `systems`, with commas between them")
	flag.StringVar(&o.dir, "dir", os.TempDir(), "make the databases in this `directory`, which should be on a disk")
	flag.IntVar(&o.turns, "turns", 3, "how many `turns` of each system")
	flag.DurationVar(&o.each, "each", 8*time.Second, "how `long` a turn is measured")
	flag.BoolVar(&o.http, "http", true, "measure keys of HTTP requests, too")
	as := flag.String("as", "", "be the system of this `JSON`: the program starts itself so")
	flag.Parse()
	if o.quick {
		o.turns, o.each = 1, 500*time.Millisecond
	}
	garbage.Pace() // as the command of Keep does
	var err error
	if *as != "" {
		err = serve(ctx, *as, os.Stdin, os.Stdout)
	} else {
		err = report(ctx, o)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// report measures everything and prints it.
func report(ctx context.Context, o options) error {
	list := slices.Clone(systems)
	if o.only != "" {
		names := strings.Split(o.only, ",")
		list = slices.DeleteFunc(list, func(s system) bool { return !slices.Contains(names, s.name) })
	}
	if len(list) == 0 {
		return errors.New("-only: there are no such systems")
	}
	s, err := open(ctx, o)
	if err != nil {
		return err
	}
	defer s.close()
	for _, clients := range []int{1, 64} {
		results := make([][]result, len(list))
		for range o.turns {
			for i, sys := range list {
				r, err := s.turn(ctx, sys, clients)
				if err != nil {
					return fmt.Errorf("%s with %d clients: %w", sys.name, clients, err)
				}
				results[i] = append(results[i], r)
			}
		}
		printTable(os.Stdout, list, results, clients, o.turns)
	}
	notes(os.Stdout, list)
	if !o.http {
		return nil
	}
	return keys(ctx, os.Stdout, o.quick)
}

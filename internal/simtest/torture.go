package simtest

import (
	"context"
	"flag"
	"fmt"
	"io"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// A Config says what Torture does. The zero value simulates nothing.
type Config struct {
	First uint64        // the first seed; the next ones follow
	For   time.Duration // no seed is begun after that time
	Out   io.Writer     // gets a report of each seed that broke a law

	// Trace, if not nil, gets every step of First, and no other seed is
	// simulated.
	Trace io.Writer
}

// Torture simulates seeds, as many at once as there are processors. It ends early
// with ctx, and when enough seeds have broken a law.
//
// It can be called once in a process, and never in a test. A bubble needs a
// *testing.T, and only package testing makes one: so testing.Main, which runs
// tests and never returns, runs the seeds as a test on a goroutine of its own. It
// blocks there after it has handed the report over, and ends with the process.
func Torture(ctx context.Context, c Config) Report {
	reports := make(chan Report)
	body := func(t *testing.T) {
		reports <- c.torture(ctx, t)
		<-make(chan struct{})
	}
	var never sync.WaitGroup // nobody waits for it; see above
	never.Go(func() {
		testing.Init()
		// Main would take the arguments of the process for its own.
		if err := flag.CommandLine.Parse(nil); err != nil {
			panic(err)
		}
		all := func(string, string) (bool, error) { return true, nil }
		testing.Main(all, []testing.InternalTest{{Name: "Torture", F: body}}, nil, nil)
	})
	return <-reports
}

func (c Config) torture(ctx context.Context, t *testing.T) Report {
	if c.Trace != nil {
		s := &seeds{}
		start := time.Now()
		s.take(Run(t, c.First, c.Trace), time.Since(start), c.Out)
		s.report.Took = time.Since(start)
		return s.report
	}
	deadline := time.Now().Add(c.For)
	more := func(uint64) bool { return ctx.Err() == nil && time.Now().Before(deadline) }
	return work(t, c.First, runtime.GOMAXPROCS(0), more, c.Out)
}

// A Report is what many seeds came to.
type Report struct {
	Seeds int
	Sum   Result
	Took  time.Duration
	Bad   []Result // seeds that broke a law
}

// maxBad is how many broken seeds are enough.
const maxBad = 5

// String is one line for people, with what happened in a minute.
func (r Report) String() string {
	perMinute := func(n int) int { return int(float64(n) / max(r.Took.Minutes(), 1e-9)) }
	return fmt.Sprintf("%d seeds in %s: %s; per minute %d crashes and %d faults; %d seeds broke a law",
		r.Seeds, r.Took.Round(10*time.Millisecond), r.Sum, perMinute(r.Sum.Crashes), perMinute(r.Sum.Faults), len(r.Bad))
}

// A seeds hands out seeds while more are wanted, and collects their results.
type seeds struct {
	next atomic.Uint64
	more func(n uint64) bool // reports whether the nth seed, from 0, is wanted

	mu     sync.Mutex // protects report
	report Report
}

// work simulates seeds from first on until no more are wanted, on several
// goroutines at once, and says what it came to.
func work(t *testing.T, first uint64, workers int, more func(n uint64) bool, out io.Writer) Report {
	s := &seeds{more: more}
	start := time.Now()
	t.Run("seeds", func(t *testing.T) {
		for n := range workers {
			t.Run(fmt.Sprint(n), func(t *testing.T) {
				t.Parallel()
				s.worker(t, first, out)
			})
		}
	})
	s.report.Took = time.Since(start)
	return s.report
}

func (s *seeds) worker(t *testing.T, first uint64, out io.Writer) {
	for {
		n := s.next.Add(1) - 1
		if !s.more(n) {
			return
		}
		start := time.Now()
		r := Run(t, first+n, nil)
		if len(r.Problems) > 0 {
			r = r.explain(t)
		}
		if !s.take(r, time.Since(start), out) {
			return
		}
	}
}

// take adds a result, and reports whether another seed is wanted.
func (s *seeds) take(r Result, took time.Duration, out io.Writer) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.report.Seeds++
	s.report.Sum.Add(r)
	if len(r.Problems) > 0 {
		s.report.Bad = append(s.report.Bad, r)
		fmt.Fprint(out, r.describe(took))
	}
	return len(s.report.Bad) < maxBad
}

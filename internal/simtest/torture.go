package simtest

import (
	"context"
	"flag"
	"fmt"
	"io"
	"runtime"
	"runtime/debug"
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
	Group bool          // several hosts in each world; see RunGroup

	// Part, if not nil, gets what the seeds since the last part came to: each time that
	// Every has passed, and at the end. Next is the first seed that was not begun.
	Part  func(r Report, next uint64)
	Every time.Duration

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
		s := &seeds{c: c}
		start := time.Now()
		s.take(c.run(t, c.First, c.Trace), time.Since(start))
		s.report.Took = time.Since(start)
		return s.report
	}
	deadline := time.Now().Add(c.For)
	return c.work(t, runtime.GOMAXPROCS(0), func(uint64) bool { return ctx.Err() == nil && time.Now().Before(deadline) })
}

// run simulates one seed.
func (c Config) run(t *testing.T, seed uint64, trace io.Writer) Result {
	if c.Group {
		return RunGroup(t, seed, trace)
	}
	return Run(t, seed, trace)
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

// add counts a result in.
func (r *Report) add(res Result) {
	r.Seeds++
	r.Sum.Add(res)
	if len(res.Problems) > 0 {
		r.Bad = append(r.Bad, res)
	}
}

// A seeds hands out seeds while more are wanted, and collects their results.
type seeds struct {
	c    Config
	next atomic.Uint64
	more func(n uint64) bool // reports whether the nth seed, from 0, is wanted

	mu     sync.Mutex // protects the fields below
	report Report
	part   Report // since the last one
	began  time.Time
}

// work simulates seeds from first on until no more are wanted, on several
// goroutines at once, and says what it came to.
func work(t *testing.T, first uint64, workers int, more func(n uint64) bool, out io.Writer) Report {
	return Config{First: first, Out: out}.work(t, workers, more)
}

func (c Config) work(t *testing.T, workers int, more func(n uint64) bool) Report {
	// Worlds are small, and all garbage when they end.
	defer debug.SetGCPercent(debug.SetGCPercent(4000))
	start := time.Now()
	s := &seeds{c: c, more: more, began: start}
	t.Run("seeds", func(t *testing.T) {
		for n := range workers {
			t.Run(fmt.Sprint(n), func(t *testing.T) {
				t.Parallel()
				s.worker(t)
			})
		}
	})
	s.report.Took = time.Since(start)
	s.endPart(0)
	return s.report
}

func (s *seeds) worker(t *testing.T) {
	for {
		n := s.next.Add(1) - 1
		if !s.more(n) {
			return
		}
		start := time.Now()
		r := s.c.run(t, s.c.First+n, nil)
		if len(r.Problems) > 0 {
			r = s.c.explain(t, r)
		}
		if !s.take(r, time.Since(start)) {
			return
		}
	}
}

// take adds a result, and reports whether another seed is wanted.
func (s *seeds) take(r Result, took time.Duration) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.report.add(r)
	s.part.add(r)
	if len(r.Problems) > 0 {
		fmt.Fprint(s.c.Out, r.describe(took))
	}
	s.endPart(s.c.Every)
	return len(s.report.Bad) < maxBad
}

// endPart hands the part over that has lasted for that long.
func (s *seeds) endPart(long time.Duration) {
	took := time.Since(s.began)
	if s.c.Part == nil || took < long || s.part.Seeds == 0 {
		return
	}
	s.part.Took = took
	s.c.Part(s.part, s.c.First+s.next.Load())
	s.part, s.began = Report{}, time.Now()
}

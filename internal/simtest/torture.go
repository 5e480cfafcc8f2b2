package simtest

import (
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

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

// A seeds tells which seeds are still wanted, and takes in what they came to.
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
		if !s.take(r, time.Since(start), out) {
			return
		}
	}
}

// take counts a result in, and reports whether to go on.
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

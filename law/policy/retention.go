package policy

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/keep-run/keep"
)

// Retention says for how long finished work is kept. The zero Retention keeps
// everything forever.
type Retention struct {
	// After is how long it is kept after its last change. If zero, forever.
	After time.Duration

	// Empty is how long runs are kept that found nothing to do, unless After or Workflows is
	// less. If zero, as long as all others.
	Empty time.Duration

	// Traces is how long is kept what runs saw: their reads, and the times that these took. If
	// zero, as long as the runs.
	Traces time.Duration

	// Workflows says it for some workflows, instead of After; 0: forever.
	Workflows map[keep.WorkflowName]time.Duration
}

// MinRetention is the least time for which finished work is kept: people look at
// what went wrong yesterday.
const MinRetention = 24 * time.Hour

// Validate reports a time that is shorter than MinRetention and not zero.
func (r Retention) Validate() error {
	if short(r.After) {
		return fmt.Errorf("retention: after must be %s at least, or 0 forever: %s", MinRetention, r.After)
	}
	if short(r.Empty) {
		return fmt.Errorf("retention: empty must be %s at least, or 0 as long as all others: %s", MinRetention, r.Empty)
	}
	for name, d := range r.Workflows {
		if short(d) {
			return fmt.Errorf("retention: workflow %s: must be %s at least, or 0 forever: %s", name, MinRetention, d)
		}
	}
	return nil
}

func short(d time.Duration) bool { return d != 0 && d < MinRetention }

// Before returns the time before which what a workflow finished is forgotten, and
// false if nothing is.
func (r Retention) Before(w keep.WorkflowName, now time.Time) (time.Time, bool) {
	d, own := r.Workflows[w]
	if !own {
		d = r.After
	}
	return now.Add(-d), d > 0
}

// EmptyBefore returns the time before which the runs of a workflow that found nothing to do are
// forgotten, and false if they are forgotten with all others or not at all.
func (r Retention) EmptyBefore(w keep.WorkflowName, now time.Time) (time.Time, bool) {
	before, some := now.Add(-r.Empty), r.Empty > 0
	all, any := r.Before(w, now)
	return before, some && !(any && all.After(before))
}

// Latest returns the latest of the times that Before returns for any workflow, and
// false if nothing is forgotten at all.
func (r Retention) Latest(now time.Time) (time.Time, bool) {
	least := r.After
	for _, d := range append(slices.Collect(maps.Values(r.Workflows)), r.Empty) {
		if d > 0 && (least == 0 || d < least) {
			least = d
		}
	}
	return now.Add(-least), least > 0
}

// A sweep gives way to those who write, at most for so long: then it ends as soon as it can, or it would
// fall behind a database that is never idle.
const sweepPatience = time.Hour

// sweepRests is how many times a step of a sweep it rests after one beside which others wrote. A step waits for
// a commit of others and shares the next one, so about a twentieth of what the store does is for the sweep.
const sweepRests = 4

// SweepRest returns how long a sweep that began so long ago rests after a step that took so long, where others
// wrote meanwhile or did not.
func SweepRest(since, took time.Duration, others bool) time.Duration {
	if !others || since >= sweepPatience {
		return 0
	}
	return sweepRests * took
}

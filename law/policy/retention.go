package policy

import (
	"fmt"
	"time"

	"github.com/keep-run/keep"
)

// Retention says for how long finished work is kept. The zero Retention keeps
// everything forever.
type Retention struct {
	// After is how long it is kept after its last change. If zero, forever.
	After time.Duration

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

// Latest returns the latest of the times that Before returns for any workflow, and
// false if nothing is forgotten at all.
func (r Retention) Latest(now time.Time) (time.Time, bool) {
	least := r.After
	for _, d := range r.Workflows {
		if d > 0 && (least == 0 || d < least) {
			least = d
		}
	}
	return now.Add(-least), least > 0
}

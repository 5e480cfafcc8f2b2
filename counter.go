package keep

import "time"

// A Step is how much time a counter covers. Values are stored; do not rename them.
type Step string

// The steps: those below a day are kept for a while only.
const (
	Minute Step = "minute"
	Hour   Step = "hour"
	Day    Step = "day"
)

// Steps returns every step, the shortest first.
func Steps() []Step { return []Step{Minute, Hour, Day} }

// Length returns how long a step is. All begin at a multiple of it, in UTC.
func (s Step) Length() time.Duration {
	switch s {
	case Minute:
		return time.Minute
	case Hour:
		return time.Hour
	}
	return 24 * time.Hour
}

// A Counter is what one workflow did in one step of time. It is derived from the records of
// the step, and stays when retention deletes those.
type Counter struct {
	Step     Step
	At       time.Time // when it begins
	Workflow WorkflowName

	Committed int // runs that did something and committed
	Idle      int // runs that committed and found nothing to do
	Failed    int // attempts whose script, call, host or Keep failed: not those that waited, and continued

	// Waiting and Asked are the most unfinished runs that waited, and the most questions
	// that were open, at a time at which a host looked.
	Waiting int
	Asked   int

	// Took has how many of the committed runs took how long, from their beginning to their
	// commit: one number for each bound of TookBounds, and one for those above the last;
	// nil if there are none.
	Took []int
}

// TookBounds returns the upper bounds of Counter.Took, each inclusive.
func TookBounds() []time.Duration {
	const ms, s = time.Millisecond, time.Second
	return []time.Duration{5 * ms, 10 * ms, 25 * ms, 50 * ms, 100 * ms, 250 * ms, 500 * ms, s, 2500 * ms, 5 * s, 10 * s, 30 * s, time.Minute, 5 * time.Minute, time.Hour}
}

package stored

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/keep-run/keep"
)

// What a closed run counts as, where it is not the place of how long it took.
const (
	endedFailed = -1
	endedIdle   = -2
)

// Fails is the condition that a run r failed, or was given up since its call was refused, and FailedAt the expression
// for when: it is changed again when another attempt takes over.
const (
	Fails    = `(r.status IN ('failed:logic', 'failed:internal', 'crashed') OR r.status = 'aborted' AND r.phase = 'mutating' AND r.mutation <> '')`
	FailedAt = `coalesce((SELECT min(e.created_at) FROM escalation e WHERE e.run = r.id AND e.kind IN ('logic', 'internal')), r.updated_at)`
)

// EndedAs is the expression for what a row of a run that committed counts as; idle is that for an idle one.
func EndedAs(idle string) string {
	var b strings.Builder
	fmt.Fprintf(&b, `CASE WHEN %s THEN %d`, idle, endedIdle)
	for i, bound := range keep.TookBounds() {
		fmt.Fprintf(&b, ` WHEN updated_at - created_at <= %d THEN %d`, bound.Milliseconds(), i)
	}
	fmt.Fprintf(&b, ` ELSE %d END`, len(keep.TookBounds()))
	return b.String()
}

// An Ended is a number of runs of a workflow that ended in the same minute and count as the same.
type Ended struct {
	Workflow keep.WorkflowName
	At       time.Time
	As, N    int
}

// EndedCounters joins what was counted, sorted by time and workflow.
func EndedCounters(list []Ended) []keep.Counter {
	var out []keep.Counter
	for _, e := range list {
		last := len(out) - 1
		if last < 0 || !out[last].At.Equal(e.At) || out[last].Workflow != e.Workflow {
			out = append(out, keep.Counter{Step: keep.Minute, At: e.At, Workflow: e.Workflow})
			last++
		}
		switch c := &out[last]; e.As {
		case endedFailed:
			c.Failed += e.N
		case endedIdle:
			c.Idle += e.N
		default:
			if c.Took == nil {
				c.Took = make([]int, len(keep.TookBounds())+1)
			}
			c.Committed += e.N
			c.Took[e.As] += e.N
		}
	}
	return out
}

// StandingCounters adds counters of a workflow up, sorted by workflow.
func StandingCounters(list []keep.Counter) []keep.Counter {
	slices.SortFunc(list, func(a, b keep.Counter) int { return cmp.Compare(a.Workflow, b.Workflow) })
	var out []keep.Counter
	for _, c := range list {
		if last := len(out) - 1; last >= 0 && out[last].Workflow == c.Workflow {
			out[last].Waiting += c.Waiting
			out[last].Asked += c.Asked
			continue
		}
		out = append(out, c)
	}
	return out
}

package repair

import (
	"context"
	"fmt"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector"
	"github.com/keep-run/keep/engine"
	"github.com/keep-run/keep/law/policy"
	law "github.com/keep-run/keep/law/repair"
	"github.com/keep-run/keep/rehearsal/compare"
)

// Recorded compares by what is recorded of the runs of a version.
type Recorded struct {
	Store       Store
	Connections []connector.Connection
	Policy      *policy.Policy
	Since       time.Duration    // how old the oldest run is that is gone through; zero: a week
	Now         func() time.Time // nil: Since is a week
	MaxRuns     int              // zero: compare.DefaultRuns
	MaxTime     time.Duration    // zero: compare.DefaultTime
}

// Compare implements Comparer.
func (c Recorded) Compare(ctx context.Context, base keep.Deployment, script engine.Script, d keep.Definition, failed keep.Run) (law.Comparison, error) {
	var out law.Comparison
	var since time.Time
	if c.Since > 0 && c.Now != nil {
		since = c.Now().Add(-c.Since)
	}
	r, err := compare.Do(ctx, compare.Config{Store: c.Store, Workflow: base.Workflow, From: base.Version, Script: script, Definition: d,
		To: "proposal", Connections: c.Connections, Policy: c.Policy, Since: since, MaxRuns: c.MaxRuns, MaxTime: c.MaxTime})
	if err != nil {
		return out, err
	}
	out.Differ, out.Counts, out.Handlers = append(out.Differ, r.Declared...), make(map[string]int), make(map[keep.HandlerName]bool)
	for _, run := range r.Runs {
		out.Counts[string(run.Change)]++
		if !run.Done || run.Run == failed.ID && onlyNext(run) {
			if run.OtherKey() {
				out.Differ = append(out.Differ, fmt.Sprintf("%s, a run of %s, would have had another order key", run.Run, run.Handler))
			}
			continue
		}
		out.Done++
		out.Handlers[run.Handler] = true
		switch run.Change {
		case compare.Same:
		case compare.Inconclusive:
			out.Unknown = append(out.Unknown, fmt.Sprintf("run %s of %s: %s", run.Run, run.Handler, run.Why))
		default:
			out.Differ = append(out.Differ, fmt.Sprintf("%s, a run of %s whose work is done, would have done %s", run.Run, run.Handler, otherwise[run.Change]))
		}
	}
	if !r.Whole {
		out.Unknown = append(out.Unknown, "the time was over before all recorded runs were gone through")
	}
	if r.Older {
		out.Unknown = append(out.Unknown, "there are more recorded runs than are gone through")
	}
	return out, nil
}

// onlyNext reports whether a run, whose call was made before it failed, would be otherwise after
// that call alone.
func onlyNext(r compare.Run) bool {
	return r.OnlyIn("next") && r.Change != compare.Inconclusive
}

// otherwise says what a change is, of what a run did.
var otherwise = map[compare.Change]string{
	compare.Changed: "something else", compare.Missing: "less", compare.Added: "more", compare.Failed: "nothing: it would have failed",
}

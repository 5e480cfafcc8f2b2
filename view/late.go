package view

import (
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/law/lifecycle"
)

// LateAfter is how far behind its time something may be.
const LateAfter = time.Minute

// A Late is something that should have happened by now.
type Late struct {
	Workflow keep.WorkflowName
	Handler  keep.HandlerName
	Run      keep.RunID // its planned attempt is late; empty: the handler is
	Due      time.Time
}

// late returns what of a workflow should have happened by now. While the workflow waits
// for a run only open runs can be late: the handlers wait. A paused workflow is not late,
// but for lookups, which are made all the same; neither is a handler that the version
// in force does not have.
func late(w Workflow, now time.Time) []Late {
	overdue := func(t time.Time) bool { return !t.IsZero() && now.Sub(t) > LateAfter }
	var out []Late
	waits := w.Paused
	for _, r := range w.Open {
		if overdue(r.Wait.Until) && (!w.Paused || r.Wait.Kind == lifecycle.WaitsForLookup || r.Wait.Kind == lifecycle.WaitsForTool) {
			out = append(out, Late{w.Name, r.Handler, r.ID, r.Wait.Until})
		}
		waits = waits || r.Lane == keep.WorkflowLane || r.Kind != keep.Consumer
	}
	if waits {
		return out
	}
	for _, h := range w.Handlers {
		if at := h.Next(); h.Kind != keep.Consumer && overdue(at) {
			out = append(out, Late{w.Name, h.Name, "", at})
		}
	}
	return out
}

package view

import (
	"slices"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/law/lifecycle"
	"github.com/keep-run/keep/law/schedule"
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
// for a run only open runs can be late: the handlers wait, but for producers that continue
// while it is held up. A run that is executed has no planned time: one that waits in line for
// the limits of a connection says when it asked. A paused workflow is not late,
// but for lookups, which are made all the same; neither is a handler that the version
// in force does not have.
func late(w Workflow, now time.Time) []Late {
	overdue := func(t time.Time) bool { return !t.IsZero() && now.Sub(t) > LateAfter }
	def := w.Deployed.Definition
	var out []Late
	heldUp, executed := false, false
	for _, r := range w.Open {
		active := r.Status == keep.StatusActive
		if overdue(r.Wait.Until) && !active && (!w.Paused || r.Wait.Kind == lifecycle.WaitsForLookup || r.Wait.Kind == lifecycle.WaitsForTool) {
			out = append(out, Late{w.Name, r.Handler, r.ID, r.Wait.Until})
		}
		if (schedule.Open{Run: r.Run, Strict: schedule.IsStrict(def, r.Run)}).HoldsUp() {
			heldUp, executed = true, executed || active
		}
	}
	for _, h := range w.Handlers {
		waits := w.Paused || executed || heldUp && !(def.OnBlocked == keep.BlockedPoll && h.Kind == keep.Producer && !w.runs(h.Name))
		if at := h.Next(); !waits && h.Kind != keep.Consumer && overdue(at) {
			out = append(out, Late{w.Name, h.Name, "", at})
		}
	}
	return out
}

// runs reports whether a run of a handler is open.
func (w Workflow) runs(name keep.HandlerName) bool {
	return slices.ContainsFunc(w.Open, func(r *Run) bool { return r.Handler == name })
}

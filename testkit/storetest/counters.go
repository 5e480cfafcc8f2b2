package storetest

import (
	"time"

	"github.com/keep-run/keep"
)

var counterPromises = []promise{
	{"a run that failed is counted in the minute in which it did, until and after another attempt takes over", func(w *world) {
		minute := w.at.UTC().Truncate(time.Minute)
		w.same("nothing", get[[]keep.Counter](w)(w.Ended(w.ctx, minute, minute.Add(time.Hour))), []keep.Counter(nil))
		put := func(name keep.WorkflowName, at time.Duration, status keep.RunStatus) keep.Run {
			w.Helper()
			r := w.newRun(name)
			r.Status, r.CreatedAt, r.UpdatedAt = status, minute, minute.Add(at)
			w.commit(name, keep.PutRun{Run: r})
			r.Rev = 1
			return r
		}
		ask := func(r keep.Run, kind keep.EscalationKind, at time.Duration) {
			w.Helper()
			w.commit(r.Workflow, keep.OpenEscalation{Escalation: keep.Escalation{ID: keep.EscalationID(w.id("esc")), Kind: kind, Workflow: r.Workflow, Run: r.ID, CreatedAt: minute.Add(at)}})
		}
		failed := put("a", time.Second, keep.StatusLogic)
		ask(failed, keep.AskLogic, time.Second)
		crashed := put("b", time.Minute, keep.StatusCrashed)
		waits := put("c", time.Second, keep.StatusApproval)
		ask(waits, keep.AskApproval, time.Second)
		unasked := put("d", 2*time.Minute, keep.StatusInternal)
		want := []keep.Counter{
			{Step: keep.Minute, At: minute, Workflow: "a", Failed: 1},
			{Step: keep.Minute, At: minute.Add(time.Minute), Workflow: "b", Failed: 1},
			{Step: keep.Minute, At: minute.Add(2 * time.Minute), Workflow: "d", Failed: 1},
		}
		w.same("while they are open", get[[]keep.Counter](w)(w.Ended(w.ctx, minute, minute.Add(time.Hour))), want)
		for _, r := range []keep.Run{failed, waits, unasked} {
			r.Closed, r.UpdatedAt = true, minute.Add(30*time.Minute)
			w.commit(r.Workflow, keep.PutRun{Run: r})
		}
		crashed.Closed = true
		w.commit("b", keep.PutRun{Run: crashed})
		want[2].At = minute.Add(30 * time.Minute) // nothing else says when
		w.same("taken over", get[[]keep.Counter](w)(w.Ended(w.ctx, minute, minute.Add(time.Hour))), want)
		w.same("in the minutes before", get[[]keep.Counter](w)(w.Ended(w.ctx, minute, minute.Add(time.Minute))), want[:1])
		w.same("in the minutes after", get[[]keep.Counter](w)(w.Ended(w.ctx, minute.Add(time.Minute), minute.Add(time.Hour))), want[1:])
	}},
	{"runs that ended are counted by minute and workflow, by how they ended and how long they took", func(w *world) {
		minute := w.at.UTC().Truncate(time.Minute)
		w.same("nothing", get[[]keep.Counter](w)(w.Ended(w.ctx, minute, minute.Add(time.Hour))), []keep.Counter(nil))
		end := func(name keep.WorkflowName, at, took time.Duration, status keep.RunStatus, idle bool) {
			w.Helper()
			r := w.newRun(name)
			r.CreatedAt, r.UpdatedAt = minute.Add(at-took), minute.Add(at-took)
			w.commit(name, keep.PutRun{Run: r})
			r.Rev, r.Status, r.Closed, r.Idle, r.UpdatedAt = 1, status, true, idle, minute.Add(at)
			if status == keep.StatusCommitted {
				r.Phase = keep.Committed
			}
			w.commit(name, keep.PutRun{Run: r})
		}
		end("a", 0, 5*time.Millisecond, keep.StatusCommitted, false)
		end("a", time.Minute-time.Millisecond, 6*time.Millisecond, keep.StatusCommitted, false)
		end("a", time.Second, 25*time.Hour, keep.StatusCommitted, false)
		end("a", time.Second, time.Second, keep.StatusCommitted, true)
		end("a", time.Second, time.Second, keep.StatusAborted, false)
		end("a", time.Minute, time.Second, keep.StatusCrashed, false)
		end("b", time.Minute, time.Second, keep.StatusLogic, false)
		end("b", time.Minute, time.Second, keep.StatusApproval, false)     // another attempt took over
		for _, phase := range []keep.Phase{keep.Mutating, keep.Prepared} { // its call was refused; another was not made again
			r, m := w.call("b")
			r.Phase, r.Status, r.Closed, r.UpdatedAt, m.State = phase, keep.StatusAborted, true, minute.Add(time.Minute), keep.Failed
			w.commit("b", keep.PutRun{Run: r}, keep.PutMutation{Mutation: m, Moves: []keep.Move{w.move(keep.InFlight, keep.Failed)}})
		}
		end("b", time.Hour, time.Second, keep.StatusCommitted, false) // too late
		w.start("b", "t")                                             // not over
		want := []keep.Counter{
			{Step: keep.Minute, At: minute, Workflow: "a", Committed: 3, Idle: 1, Took: []int{1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1}},
			{Step: keep.Minute, At: minute.Add(time.Minute), Workflow: "a", Failed: 1},
			{Step: keep.Minute, At: minute.Add(time.Minute), Workflow: "b", Failed: 2},
		}
		w.same("Ended", get[[]keep.Counter](w)(w.Ended(w.ctx, minute, minute.Add(time.Hour))), want)
		w.same("Ended later", get[[]keep.Counter](w)(w.Ended(w.ctx, minute.Add(time.Minute), minute.Add(time.Hour))), want[1:])
	}},
	{"runs that wait and questions that are open are counted by workflow", func(w *world) {
		w.same("nothing", get[[]keep.Counter](w)(w.Standing(w.ctx)), []keep.Counter(nil))
		r := w.start("b", "t")
		w.start("c", "t") // active
		r.Status = keep.StatusPerson
		q := keep.Escalation{ID: keep.EscalationID(w.id("esc")), Kind: keep.AskPermission, Workflow: "b", Run: r.ID}
		closed := q
		closed.ID = keep.EscalationID(w.id("esc"))
		w.commit("b", keep.PutRun{Run: r}, keep.OpenEscalation{Escalation: q}, keep.OpenEscalation{Escalation: closed})
		w.commit("b", keep.CloseEscalation{ID: closed.ID})
		w.same("Standing", get[[]keep.Counter](w)(w.Standing(w.ctx)), []keep.Counter{{Workflow: "b", Waiting: 1, Asked: 1}})
	}},
	{"counters are replaced, listed by time and workflow, and deleted by age", func(w *world) {
		hour := w.at.UTC().Truncate(time.Hour)
		put := func(before map[keep.Step]time.Time, list ...keep.Counter) {
			w.Helper()
			if err := w.PutCounters(w.ctx, list, before); err != nil {
				w.Error(err)
			}
		}
		list := func(step keep.Step, name keep.WorkflowName, to time.Duration) []keep.Counter {
			w.Helper()
			return get[[]keep.Counter](w)(w.Counters(w.ctx, step, name, hour, hour.Add(to)))
		}
		a := keep.Counter{Step: keep.Minute, At: hour, Workflow: "a", Committed: 1, Idle: 2, Failed: 3, Waiting: 4, Asked: 5, Took: []int{0, 1}}
		b, later, large := a, a, a
		b.Workflow, later.At, large.Step = odd, hour.Add(time.Minute), keep.Hour
		put(nil, later, a, b, large)
		w.same("all", list(keep.Minute, "", time.Hour), []keep.Counter{b, a, later})
		w.same("of one", list(keep.Minute, "a", time.Hour), []keep.Counter{a, later})
		w.same("until", list(keep.Minute, "", time.Minute), []keep.Counter{b, a})
		w.same("hours", list(keep.Hour, "", time.Hour), []keep.Counter{large})
		w.same("days", list(keep.Day, "", time.Hour), []keep.Counter(nil))
		a = keep.Counter{Step: keep.Minute, At: hour, Workflow: "a", Failed: 1}
		put(nil, a)
		w.same("replaced", list(keep.Minute, "", time.Hour), []keep.Counter{b, a, later})
		put(map[keep.Step]time.Time{keep.Minute: hour.Add(time.Minute)})
		w.same("after a deletion", list(keep.Minute, "", time.Hour), []keep.Counter{later})
		w.same("another step", list(keep.Hour, "", time.Hour), []keep.Counter{large})
	}},
}

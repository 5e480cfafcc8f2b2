package storetest

import (
	"encoding/json"
	"time"

	"github.com/keep-run/keep"
)

var runPromises = []promise{
	{"a run is read back as it was written, to the byte", func(w *world) {
		r := fullRun(w)
		w.commit("w", keep.PutRun{Run: r})
		r.Rev = 1
		want := r
		want.WakeAt, want.RetryAt = kept(r.WakeAt), kept(r.RetryAt)
		want.CreatedAt, want.UpdatedAt = kept(r.CreatedAt), kept(r.UpdatedAt)
		w.same("Run", get[keep.Run](w)(w.Run(w.ctx, r.ID)), want)
		open, ok, err := openRun(w.ctx, w, "w")
		if err != nil || !ok {
			w.Fatalf("OpenRun = %v, %v", ok, err)
		}
		w.same("OpenRun", open, want)
		w.same("Runs", page[keep.Run](w)(w.Runs(w.ctx, keep.RunFilter{}, keep.Page{})), []keep.Run{want})
	}},
	{"an update of a run replaces everything that may change", func(w *world) {
		r := w.start("w", "t")
		full := fullRun(w)
		full.ID, full.Chain, full.Handler, full.Kind, full.Rev = r.ID, r.Chain, r.Handler, r.Kind, 1
		w.commit("w", keep.PutRun{Run: full})
		got := get[keep.Run](w)(w.Run(w.ctx, r.ID))
		full.Rev = 2
		full.WakeAt, full.RetryAt = kept(full.WakeAt), kept(full.RetryAt)
		full.CreatedAt, full.UpdatedAt = kept(full.CreatedAt), kept(full.UpdatedAt)
		w.same("Run", got, full)
		r.Rev, r.Status, r.Closed = 2, keep.StatusCrashed, true
		w.commit("w", keep.PutRun{Run: r})
		r.Rev = 3
		w.same("Run", get[keep.Run](w)(w.Run(w.ctx, r.ID)), r)
	}},
	{"nil and empty stay what they are", func(w *world) {
		r := w.newRun("w")
		r.Prepared, r.Reservations = json.RawMessage{}, []keep.Reservation{}
		w.commit("w", keep.PutRun{Run: r})
		r.Rev = 1
		w.same("empty", get[keep.Run](w)(w.Run(w.ctx, r.ID)), r)
		r.Prepared, r.Reservations = nil, nil
		w.commit("w", keep.PutRun{Run: r})
		r.Rev = 2
		w.same("nil", get[keep.Run](w)(w.Run(w.ctx, r.ID)), r)
	}},
	{"a run is written only on top of the revision that was read", func(w *world) {
		r := w.start("w", "t")
		for _, rev := range []int{0, 2, 3, -1} {
			r.Rev = rev
			w.refuse("w", is(keep.ErrStale), keep.PutRun{Run: r})
		}
		r.ID, r.Chain, r.Rev, r.Closed, r.Status = "run_unknown", "run_unknown", 1, true, keep.StatusAborted
		w.refuse("w", is(keep.ErrStale), keep.PutRun{Run: r})
	}},
	{"a second open run of a workflow is refused", func(w *world) {
		first := w.start("w", "t")
		w.refuse("w", is(keep.ErrRunOpen), keep.PutRun{Run: w.newRun("w")})
		closed := w.newRun("w")
		closed.Closed, closed.Status = true, keep.StatusAborted
		w.refuse("w", is(keep.ErrRunOpen), keep.PutRun{Run: closed})
		w.start("other", "t") // no other workflow is affected
		w.finish(first)
		next := w.start("w", "t")
		reopened := first
		reopened.Rev = 2
		w.refuse("w", is(keep.ErrRunOpen), keep.PutRun{Run: reopened})
		w.finish(next)
	}},
	{"each lane of a workflow has one open run", func(w *world) {
		in := func(lane keep.Lane) keep.Run {
			r := w.newRun("w")
			r.Lane = lane
			return r
		}
		lanes := []keep.Lane{keep.KeyLane("c", "a"), keep.KeyLane("c", odd), keep.KeyLane("d", "a"), keep.ChainLane("run_1"), keep.HandlerLane("c"), keep.WorkflowLane}
		var open []keep.Run
		for _, lane := range lanes {
			r := in(lane)
			w.commit("w", keep.PutRun{Run: r})
			w.refuse("w", is(keep.ErrRunOpen), keep.PutRun{Run: in(lane)})
			closed := in(lane)
			closed.Closed, closed.Status = true, keep.StatusAborted
			w.refuse("w", is(keep.ErrRunOpen), keep.PutRun{Run: closed})
			r.Rev = 1
			open = append(open, r)
		}
		w.same("OpenRuns", get[[]keep.Run](w)(w.OpenRuns(w.ctx, "w")), open)
		w.finish(open[1])
		w.same("one less", get[[]keep.Run](w)(w.OpenRuns(w.ctx, "w")), append(open[:1:1], open[2:]...))
		next := in(lanes[1])
		w.commit("w", keep.PutRun{Run: next})
		w.same("other workflow", get[[]keep.Run](w)(w.OpenRuns(w.ctx, "other")), []keep.Run(nil))
	}},
	{"an open run changes its lane, and leaves the one before", func(w *world) {
		a, b := w.newRun("w"), w.newRun("w")
		a.Lane, b.Lane = keep.KeyLane("c", "a"), keep.KeyLane("c", "b")
		w.commit("w", keep.PutRun{Run: a})
		w.commit("w", keep.PutRun{Run: b})
		a.Rev, a.Lane = 1, b.Lane
		w.refuse("w", is(keep.ErrRunOpen), keep.PutRun{Run: a})
		a.Lane = keep.KeyLane("c", "c")
		w.commit("w", keep.PutRun{Run: a})
		c := w.newRun("w")
		c.Lane = a.Lane
		w.refuse("w", is(keep.ErrRunOpen), keep.PutRun{Run: c})
		c.Lane = keep.KeyLane("c", "a")
		w.commit("w", keep.PutRun{Run: c})
		retry := w.newRun("w")
		retry.Lane, retry.RetryOf, retry.Chain = keep.WorkflowLane, b.ID, b.ID
		b.Rev, b.Closed, b.Status = 1, true, keep.StatusCrashed
		w.commit("w", keep.PutRun{Run: b}, keep.PutRun{Run: retry})
		w.same("OpenRuns", len(get[[]keep.Run](w)(w.OpenRuns(w.ctx, "w"))), 3)
	}},
	{"a run now is refused by a run of the workflow's lane, or of the handler's", func(w *world) {
		for _, h := range []keep.HandlerName{"p", "q"} {
			w.commit("w", keep.PutHandler{State: keep.HandlerState{Workflow: "w", Handler: h, Kind: keep.Producer}})
		}
		r := w.newRun("w")
		r.Lane = keep.KeyLane("c", "a")
		w.commit("w", keep.PutRun{Run: r})
		w.commit("w", keep.RequestRun{Handler: "p"})
		r = w.newRun("w")
		r.Lane = keep.HandlerLane("p")
		w.commit("w", keep.PutRun{Run: r})
		w.refuse("w", is(keep.ErrRunOpen), keep.RequestRun{Handler: "p"})
		w.commit("w", keep.RequestRun{Handler: "q"})
		w.start("w", "t")
		w.refuse("w", is(keep.ErrRunOpen), keep.RequestRun{Handler: "q"})
	}},
	{"an attempt closes and the next one opens in one commit", func(w *world) {
		r := w.start("w", "t")
		old := r
		old.Status, old.Closed = keep.StatusCrashed, true
		retry := w.newRun("w")
		retry.Chain, retry.RetryOf, retry.Crashes = r.Chain, r.ID, 1
		w.commit("w", keep.PutRun{Run: old}, keep.PutRun{Run: retry})
		open, _, err := openRun(w.ctx, w, "w")
		if err != nil || open.ID != retry.ID {
			w.Errorf("OpenRun = %s, %v, want %s", open.ID, err, retry.ID)
		}
		chain := page[keep.Run](w)(w.Runs(w.ctx, keep.RunFilter{Chain: r.Chain}, keep.Page{}))
		if len(chain) != 2 || chain[0].ID != retry.ID || chain[1].ID != r.ID {
			w.Errorf("chain = %v, want the retry, then the first run", chain)
		}
	}},
	{"what a run is never changes", func(w *world) {
		r := w.start("w", "t")
		for _, change := range []func(*keep.Run){
			func(r *keep.Run) { r.Chain = "run_other" },
			func(r *keep.Run) { r.Handler = "other" },
			func(r *keep.Run) { r.Kind, r.Phase = keep.Job, keep.Running },
		} {
			other := r
			change(&other)
			w.refuse("w", invalid, keep.PutRun{Run: other})
		}
		w.refuse("other", invalid, keep.PutRun{Run: r})
	}},
	{"a run that no history could lead to is refused", func(w *world) {
		for _, change := range []func(*keep.Run){
			func(r *keep.Run) { r.ID = "" },
			func(r *keep.Run) { r.Kind = "demon" },
			func(r *keep.Run) { r.Phase = "limbo" },
			func(r *keep.Run) { r.Status = "fine" },
			func(r *keep.Run) { r.Phase = keep.Running },
			func(r *keep.Run) { r.Kind = keep.Job },
			func(r *keep.Run) { r.Phase = keep.Committed },
			func(r *keep.Run) { r.Status = keep.StatusCommitted },
			func(r *keep.Run) { r.Status = keep.StatusAborted },
			func(r *keep.Run) { r.Closed = true },
			func(r *keep.Run) { r.Retries = -1 },
			func(r *keep.Run) { r.Crashes = -1 },
			func(r *keep.Run) { r.Idle = true },
			func(r *keep.Run) { r.Chain = "" },
			func(r *keep.Run) { r.Handler = "" },
		} {
			r := w.newRun("w")
			change(&r)
			w.refuse("w", invalid, keep.PutRun{Run: r})
		}
	}},
	{"a run that does not exist is not found", func(w *world) {
		_, err := w.Run(w.ctx, "run_0")
		w.fails("Run", err, notFound("run", "run_0"))
		_, ok, err := openRun(w.ctx, w, "w")
		if ok || err != nil {
			w.Errorf("OpenRun = %v, %v", ok, err)
		}
	}},
	{"logs are kept in their order", func(w *world) {
		r := w.start("w", "t")
		lines := []keep.LogLine{
			{Run: r.ID, At: oddTime, Level: "info", Text: odd, Where: "a.ts:1:2"},
			{Run: r.ID, At: oddTime.Add(-time.Hour), Level: "warn", Text: ""},
		}
		w.commit("w", keep.AppendLogs{Lines: lines})
		w.commit("w", keep.AppendLogs{}, keep.AppendLogs{Lines: lines[:1]})
		want := append(lines, lines[0])
		for i := range want {
			want[i].At = kept(want[i].At)
		}
		w.same("Logs", get[[]keep.LogLine](w)(w.Logs(w.ctx, r.ID)), want)
		w.same("Logs of nobody", get[[]keep.LogLine](w)(w.Logs(w.ctx, "run_0")), []keep.LogLine(nil))
	}},
	{"logs of an unknown run are refused", func(w *world) {
		r := w.start("other", "t")
		w.refuse("w", notFound("run", "run_0"), keep.AppendLogs{Lines: []keep.LogLine{{Run: "run_0"}}})
		w.refuse("w", notFound("run", string(r.ID)), keep.AppendLogs{Lines: []keep.LogLine{{Run: r.ID}}})
	}},
	{"parts of traces are kept in their order, and forgotten by age", func(w *world) {
		r, other := w.start("w", "t"), w.start("other", "t")
		now := w.at.Add(oddTime.Sub(oddTime.Truncate(time.Second)))
		w.refuse("w", notFound("run", "run_0"), keep.AppendTrace{Part: keep.TracePart{Run: "run_0", Data: []byte("x")}})
		w.refuse("w", notFound("run", string(other.ID)), keep.AppendTrace{Part: keep.TracePart{Run: other.ID, Data: []byte("x")}})
		w.refuse("w", invalid, keep.AppendTrace{Part: keep.TracePart{Run: r.ID, At: now}})
		w.commit("other", keep.AppendTrace{Part: keep.TracePart{Run: other.ID, At: now, Data: []byte("oldest")}})
		parts := []keep.TracePart{
			{Run: r.ID, At: kept(now.Add(time.Hour)), Data: []byte("older")},
			{Run: r.ID, At: kept(now.Add(2 * time.Hour)), Data: []byte("a\x00\xff")},
			{Run: r.ID, At: kept(now.Add(3 * time.Hour)), Data: []byte("newer")},
		}
		for _, p := range parts {
			w.commit("w", keep.AppendTrace{Part: p})
		}
		w.same("Trace", get[[]keep.TracePart](w)(w.Trace(w.ctx, r.ID)), parts)
		w.same("Trace of nobody", get[[]keep.TracePart](w)(w.Trace(w.ctx, "run_0")), []keep.TracePart(nil))

		forget := func(limit, want int) {
			w.Helper()
			w.same("ForgetTraces", get[int](w)(w.ForgetTraces(w.ctx, now.Add(150*time.Minute), limit)), want)
		}
		w.same("OldTraces", get[int](w)(w.OldTraces(w.ctx, now.Add(150*time.Minute))), 3)
		w.same("OldTraces of that moment", get[int](w)(w.OldTraces(w.ctx, parts[0].At)), 1)
		forget(1, 1)
		w.same("ForgetTraces of that moment", get[int](w)(w.ForgetTraces(w.ctx, parts[0].At, 10)), 0)
		w.same("OldTraces", get[int](w)(w.OldTraces(w.ctx, now.Add(150*time.Minute))), 2)
		forget(10, 2)
		forget(10, 0)
		w.same("OldTraces", get[int](w)(w.OldTraces(w.ctx, now.Add(150*time.Minute))), 0)
		w.same("Trace", get[[]keep.TracePart](w)(w.Trace(w.ctx, r.ID)), parts[2:])
		w.same("Trace of the other", len(get[[]keep.TracePart](w)(w.Trace(w.ctx, other.ID))), 0)
		w.commit("w", keep.AppendTrace{Part: parts[2]})
		w.same("Trace", get[[]keep.TracePart](w)(w.Trace(w.ctx, r.ID)), []keep.TracePart{parts[2], parts[2]})
	}},
}

// fullRun returns a run with every field set.
func fullRun(w *world) keep.Run {
	id := keep.RunID(w.id("run"))
	return keep.Run{
		ID: id, Chain: id, Workflow: "w", Version: keep.Version{Major: 3, Minor: 14}, Handler: "$job_1", Kind: keep.Consumer,
		Phase: keep.Preparing, Status: keep.StatusLogic,
		Trigger:      keep.EventRef{Topic: "mail/in:1", MessageID: odd},
		Reservations: []keep.Reservation{{Topic: "t", IDs: []keep.MessageID{odd, "2"}}, {Topic: "u", IDs: nil}, {Topic: "v", IDs: []keep.MessageID{}}},
		Prepared:     json.RawMessage(`{ "big":12345678901234567890, "text" : "` + "é" + `" }` + "\n"),
		Title:        odd, WakeAt: oddTime, SeenSeq: 1<<62 + 1,
		Error: &keep.Failure{Class: keep.ClassLogic, Code: "http-422", Message: odd, Tool: "crm.create", At: "a.ts:3:4",
			RetryAfter: 90*time.Second + time.Nanosecond},
		RetryAt: oddTime.Add(time.Hour), Retries: 4, Crashes: 2, Lane: keep.KeyLane("$job_1", odd),
		CreatedAt: oddTime.Add(-time.Hour), UpdatedAt: oddTime,
	}
}

package storetest

import (
	"fmt"
	"slices"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/keep-run/keep"
)

var sweepPromises = []promise{
	{"what is over and old is swept; what keeps things from being done twice stays", func(w *world) {
		in := w.input("w")
		w.deploy("w", "t")
		w.publish("w", "t", "m", in)
		r := w.start("w", "t", "m")
		m := w.newMutation(r)
		r.Mutation, r.Title, m.Title = m.Key, "Old run", "Old call"
		q := keep.Escalation{ID: keep.EscalationID(w.id("esc")), Kind: keep.AskLogic, Workflow: "w", Run: r.ID}
		w.commit("w", keep.PutRun{Run: r}, keep.PutMutation{Mutation: m, Moves: []keep.Move{w.move("", keep.InFlight)}},
			keep.AppendLogs{Lines: []keep.LogLine{{Run: r.ID, At: w.at, Text: "hello"}}},
			keep.AppendTrace{Part: keep.TracePart{Run: r.ID, At: w.at, Data: []byte("hello")}},
			keep.OpenEscalation{Escalation: q}, keep.CloseEscalation{ID: q.ID},
			keep.SetKV{Producer: keep.PaidAnswers(r.Chain), Key: "llm.chat", Value: []byte(`"hello"`)},
			keep.SetKV{Producer: keep.PaidAnswers("another"), Key: "llm.chat", Value: []byte(`"hello"`)})
		r.Rev, m.Rev = r.Rev+1, 1
		w.commit("w", keep.Finish{Chain: r.Chain, Status: keep.EventConsumed})
		settle(w, &r, &m)
		w.publish("w", "t", "after", in)
		w.finish(w.start("w", "t", "after"))
		latest(w)
		before := w.now()
		was := Snapshot(w.TB, w.Store)
		w.sweep("w", r.Chain, before)
		w.check()
		_, err := w.Run(w.ctx, r.ID)
		w.fails("Run", err, notFound("run", string(r.ID)))
		_, err = w.Mutation(w.ctx, m.Key)
		w.fails("Mutation", err, notFound("mutation", string(m.Key)))
		_, err = w.Escalation(w.ctx, q.ID)
		w.fails("Escalation", err, notFound("escalation", string(q.ID)))
		for chain, want := range map[keep.RunID]int{r.Chain: 0, "another": len(`"hello"`)} {
			w.same("answers paid for", len(get[[]byte](w)(w.KV(w.ctx, "w", keep.PaidAnswers(chain), "llm.chat"))), want)
		}
		for _, found := range [][]keep.Run{
			page[keep.Run](w)(w.Runs(w.ctx, keep.RunFilter{Chain: r.Chain}, keep.Page{})),
			page[keep.Run](w)(w.Runs(w.ctx, keep.RunFilter{Text: "old run"}, keep.Page{})),
		} {
			w.same("Runs", len(found), 0)
		}
		w.same("Trace", len(get[[]keep.TracePart](w)(w.Trace(w.ctx, r.ID))), 0)
		w.same("Outputs", len(get[[]keep.MutationKey](w)(w.Outputs(w.ctx, in))), 0)
		now := Snapshot(w.TB, w.Store)
		w.same("Inputs", now.Inputs, was.Inputs)
		w.same("Items", now.Items, was.Items)
		w.same("Topics", get[[]keep.TopicCount](w)(w.TopicCounts(w.ctx, "w")), []keep.TopicCount{{Workflow: "w", Topic: "t", Consumed: 2}})
		e := get[keep.Event](w)(w.Event(w.ctx, "w", "t", "m"))
		w.same("its event", []any{e.Status, e.ReservedBy, len(e.Payload), e.CausedBy}, []any{keep.EventConsumed, keep.Swept, 0, []keep.InputID{in}})
		w.publish("w", "t", "m", in) // the same message again
		w.same("its event, published again", get[keep.Event](w)(w.Event(w.ctx, "w", "t", "m")), e)
		w.unswept("w", r.Chain, before, notFound("chain", string(r.Chain)))
		countsAgree(w)
	}},
	{"what is not over, or not old, is not swept", func(w *world) {
		for name, unfinished := range map[string]func(w *world, name keep.WorkflowName) keep.RunID{
			"open": func(w *world, n keep.WorkflowName) keep.RunID { r, _ := w.call(n); return r.Chain },
			"recent": func(w *world, n keep.WorkflowName) keep.RunID {
				r, m := w.call(n)
				w.now()
				settle(w, &r, &m)
				w.at = w.at.Add(time.Hour)
				return touch(w, r)
			},
			"question":   withQuestion,
			"doubt":      leftInDoubt,
			"pending":    pendingInput,
			"tried":      triedPending,
			"given":      triedOfPendingInput,
			"last":       lastOfHandler,
			"retried":    retriedByAnother,
			"item":       ofUnfinishedItem,
			"asked of":   ofAskedItem,
			"waited for": waitedFor,
		} {
			chain := unfinished(w, keep.WorkflowName(name))
			latest(w)
			before := w.now()
			if name == "recent" {
				before = before.Add(-30 * time.Minute) // after all but the run's last change
			}
			for after, i := "", 0; i == 0 || after != ""; i++ {
				old, next, err := w.Over(w.ctx, keep.OldRuns{Workflow: keep.WorkflowName(name), Before: before}, after, 3)
				if err != nil {
					w.Fatalf("Over: %v", err)
				}
				if after = next; slices.ContainsFunc(old, func(c keep.OldChain) bool { return c.Chain == chain }) {
					w.Errorf("Over has the chain that is %q", name)
				}
			}
			w.unswept(keep.WorkflowName(name), chain, before, is(keep.ErrStale))
		}
		newest := w.newRun("z")
		w.commit("z", keep.PutRun{Run: done(newest)})
		w.unswept("z", newest.Chain, w.now(), is(keep.ErrStale))
	}},
	{"everything that is over is found, in parts, and sweeping all of it breaks no law", func(w *world) {
		populate(w)
		for range 5 {
			r, m := w.call("w1x")
			settle(w, &r, &m)
		}
		latest(w)
		for pass := range 4 { // a chain that another retries comes after it
			swept := 0
			for _, name := range w.ran() {
				swept += w.sweepAll(name)
			}
			if pass == 0 && swept < 8 {
				w.Errorf("%d chains were over, want 8 at least", swept)
			}
			if swept == 0 {
				return
			}
		}
		w.Error("there is always more to sweep")
	}},
	{"runs that found nothing to do are found among all others, and swept by themselves", func(w *world) {
		empty := func(name keep.WorkflowName, of keep.RunID) keep.RunID {
			r := w.newRun(name)
			r.Handler, r.Kind, r.Phase, r.RetryOf = "poll", keep.Producer, keep.Running, of
			if of != "" {
				r.Chain = of
			}
			r.Phase, r.Status, r.Closed, r.Idle = keep.Committed, keep.StatusCommitted, true, true
			w.commit(name, keep.PutRun{Run: r})
			w.now()
			return r.ID
		}
		var want []keep.RunID
		for range 5 {
			want = append(want, empty("w", ""))
			r, m := w.call("w")
			settle(w, &r, &m)
		}
		empty("v", "")
		failed := w.newRun("w")
		failed.Handler, failed.Kind, failed.Phase, failed.Status, failed.Closed = "poll", keep.Producer, keep.Running, keep.StatusTransient, true
		w.commit("w", keep.PutRun{Run: failed})
		empty("w", failed.ID) // is of a chain that tells of a failure
		before := w.now()
		empty("w", "") // too new
		latest(w)
		kept := all(reader{tb: w.TB, ctx: w.ctx, s: w.Store}, w.Runs, keep.RunFilter{Workflow: "w"})
		var got []keep.RunID
		for after, i := "", 0; i == 0 || after != ""; i++ {
			old, next, err := w.Over(w.ctx, keep.OldRuns{Workflow: "w", Before: before, Empty: true}, after, 2)
			if err != nil {
				w.Fatalf("Over: %v", err)
			}
			for _, c := range old {
				got = append(got, c.Chain)
				w.sweep("w", c.Chain, before)
			}
			after = next
		}
		w.same("Over", got, want)
		kept = slices.DeleteFunc(kept, func(r keep.Run) bool { return slices.Contains(want, r.ID) })
		w.same("the runs that are kept", all(reader{tb: w.TB, ctx: w.ctx, s: w.Store}, w.Runs, keep.RunFilter{Workflow: "w"}), kept)
		countsAgree(w)
		w.check()
	}},
	{"what a chain tried is swept after it is done, and the link with it", func(w *world) {
		in := w.input("w")
		w.publish("w", "t", "m", in)
		failed := w.giveBack("w", "m")
		done := w.start("w", "t", "m")
		w.finish(done)
		latest(w)
		w.sweep("w", done.Chain, w.now())
		runs := func() (ids []keep.RunID) {
			for _, r := range get[[]keep.Run](w)(w.RunsOfEvent(w.ctx, "w", "t", "m", 9)) {
				ids = append(ids, r.ID)
			}
			return ids
		}
		w.same("the run that failed", runs(), []keep.RunID{failed.ID})
		w.sweep("w", failed.Chain, w.now())
		w.same("none", runs(), []keep.RunID(nil))
		w.same("Causes", get[[]keep.InputID](w)(w.Causes(w.ctx, failed.Chain)), []keep.InputID(nil))
		w.check()
	}},
	{"an item of which calls were swept is not done again in that attempt", func(w *world) {
		r, m := itemCall(w, "w", keep.ItemProcessing)
		put := func(status keep.ItemStatus, attempt int) keep.Change {
			it := get[keep.Item](w)(w.Item(w.ctx, "w", m.Item))
			it.Status, it.Attempt, it.UpdatedAt = status, attempt, w.at
			return keep.PutItem{Item: it}
		}
		m.State, m.ResolvedBy = keep.Applied, "call"
		w.commit("w", keep.PutMutation{Mutation: m, Moves: []keep.Move{w.move(keep.InFlight, keep.Applied)}})
		w.commit("w", put(keep.ItemSkipped, 1))
		w.commit("w", put(keep.ItemProcessing, 1)) // with its calls at hand
		w.commit("w", put(keep.ItemSkipped, 1))
		latest(w)
		w.sweep("w", r.Chain, w.now())
		w.same("swept", get[keep.Item](w)(w.Item(w.ctx, "w", m.Item)).Swept, 1)
		for _, status := range []keep.ItemStatus{keep.ItemProcessing, keep.ItemFailed, keep.ItemAttention} {
			w.refuse("w", is(keep.ErrStale), put(status, 1))
		}
		w.commit("w", put(keep.ItemDone, 1))
		w.commit("w", put(keep.ItemProcessing, 2))
		w.same("swept", get[keep.Item](w)(w.Item(w.ctx, "w", m.Item)).Swept, 1)
		w.check()
	}},
	{"a sweep is alone in its commit, and of the past", func(w *world) {
		r, m := w.call("w")
		settle(w, &r, &m)
		latest(w)
		at := w.now()
		for _, c := range []keep.Commit{
			{Workflow: "w", At: at, Changes: []keep.Change{keep.Sweep{Chain: r.Chain, Before: at}, keep.SetPaused{Paused: true}}},
			{Workflow: "w", At: at, Changes: []keep.Change{keep.Sweep{Chain: r.Chain, Before: at.Add(time.Second)}}},
			{Workflow: "v", At: at, Changes: []keep.Change{keep.Sweep{Chain: r.Chain, Before: at}}},
		} {
			if err := w.Commit(w.ctx, c); err == nil {
				w.Errorf("Commit %+v is accepted", c)
			}
		}
		w.sweep("w", r.Chain, at)
	}},
}

// sweep sweeps a chain, which must be accepted.
func (w *world) sweep(name keep.WorkflowName, chain keep.RunID, before time.Time) {
	w.Helper()
	if err := w.Commit(w.ctx, keep.Commit{Workflow: name, At: w.now(), Changes: []keep.Change{keep.Sweep{Chain: chain, Before: before}}}); err != nil {
		w.Errorf("Sweep %s: %v", chain, err)
	}
}

// unswept sweeps a chain, which must be refused and leave everything as it was.
func (w *world) unswept(name keep.WorkflowName, chain keep.RunID, before time.Time, want func(error) bool) {
	w.Helper()
	was := Snapshot(w.TB, w.Store)
	err := w.Commit(w.ctx, keep.Commit{Workflow: name, At: w.now(), Changes: []keep.Change{keep.Sweep{Chain: chain, Before: before}}})
	if err == nil || !want(err) {
		w.Errorf("Sweep of a chain of %q = %v, want another refusal", name, err)
	}
	if diff := cmp.Diff(was, Snapshot(w.TB, w.Store)); diff != "" {
		w.Errorf("a refused sweep left something behind (-before +after):\n%s", diff)
	}
}

// latest makes the newest run, mutation and question, which stay.
func latest(w *world) {
	w.Helper()
	r, _ := w.call(keep.WorkflowName(w.id("latest")))
	w.commit(r.Workflow, keep.OpenEscalation{Escalation: keep.Escalation{ID: keep.EscalationID(w.id("esc")), Kind: keep.AskLogic, Workflow: r.Workflow, Run: r.ID}})
}

// touch writes a closed run again.
func touch(w *world, r keep.Run) keep.RunID {
	w.Helper()
	r = get[keep.Run](w)(w.Run(w.ctx, r.ID))
	r.UpdatedAt = w.now()
	w.commit(r.Workflow, keep.PutRun{Run: r})
	return r.Chain
}

// over makes a call that is over.
func over(w *world, name keep.WorkflowName, more ...keep.Change) keep.Run {
	w.Helper()
	r, m := w.call(name)
	settle(w, &r, &m)
	if len(more) > 0 {
		w.commit(name, more...)
	}
	return r
}

func withQuestion(w *world, name keep.WorkflowName) keep.RunID {
	r := over(w, name)
	w.commit(name, keep.OpenEscalation{Escalation: keep.Escalation{ID: keep.EscalationID(w.id("esc")), Kind: keep.AskLogic, Workflow: name, Run: r.ID}})
	return r.Chain
}

// waitedFor is a job run that is over, with an applied call at which a later run stopped, since
// its script wanted another one: a person has answered, and the run has not continued yet.
func waitedFor(w *world, name keep.WorkflowName) keep.RunID {
	r, m := itemCall(w, name, keep.ItemSkipped)
	m.State, m.ResolvedBy = keep.Applied, "call"
	w.commit(name, keep.PutMutation{Mutation: m, Moves: []keep.Move{w.move(keep.InFlight, keep.Applied)}})
	later := jobRun(w, name)
	later.Mutation, later.Status, later.RetryAt = m.Key, keep.StatusTransient, w.at
	w.commit(name, keep.PutRun{Run: later})
	return r.Chain
}

// leftInDoubt is a job run that is over, and a call of it is in doubt.
func leftInDoubt(w *world, name keep.WorkflowName) keep.RunID {
	r, m := itemCall(w, name, keep.ItemDone)
	m.State = keep.NeedsReconcile
	w.commit(name, keep.PutMutation{Mutation: m, Moves: []keep.Move{w.move(keep.InFlight, keep.NeedsReconcile)}})
	return r.Chain
}

// itemCall makes a job run that is over, with a call of an item.
func itemCall(w *world, name keep.WorkflowName, status keep.ItemStatus) (keep.Run, keep.Mutation) {
	w.Helper()
	r := jobRun(w, name)
	m := w.newMutation(r)
	m.Item, m.Attempt = w.id("item"), 1
	it := keep.Item{Workflow: name, ID: m.Item, Status: keep.ItemProcessing, Attempt: 1}
	w.commit(name, keep.PutItem{Item: it}, keep.PutMutation{Mutation: m, Moves: []keep.Move{w.move("", keep.InFlight)}})
	m.Rev, it.Rev, it.Status = 1, 1, status
	w.commit(name, keep.PutRun{Run: done(r)}, keep.PutItem{Item: it})
	return r, m
}

func pendingInput(w *world, name keep.WorkflowName) keep.RunID {
	in := w.input(name)
	w.publish(name, "t", "first", in)
	w.publish(name, "t", "second", in)
	r := w.start(name, "t", "first")
	w.finish(r)
	return r.Chain
}

// triedPending is a chain that gave back an event, which is still to be done.
func triedPending(w *world, name keep.WorkflowName) keep.RunID {
	w.publish(name, "t", "m")
	return w.giveBack(name, "m").Chain
}

// triedOfPendingInput is a chain that gave back an event, whose input has another one.
func triedOfPendingInput(w *world, name keep.WorkflowName) keep.RunID {
	in := w.input(name)
	w.publish(name, "t", "m", in)
	w.publish(name, "t", "other", in)
	r := w.giveBack(name, "m")
	w.finish(w.start(name, "t", "m"))
	return r.Chain
}

// giveBack makes a run that reserved an event and failed.
func (w *world) giveBack(name keep.WorkflowName, id keep.MessageID) keep.Run {
	w.Helper()
	r := w.start(name, "t", id)
	r.Status, r.Closed = keep.StatusLogic, true
	w.commit(name, keep.PutRun{Run: r}, keep.Release{Chain: r.Chain})
	return r
}

func lastOfHandler(w *world, name keep.WorkflowName) keep.RunID {
	r := over(w, name)
	w.commit(name, keep.PutHandler{State: keep.HandlerState{Workflow: name, Handler: r.Handler, Kind: r.Kind, LastRun: r.ID, LastAt: w.at}})
	return r.Chain
}

func retriedByAnother(w *world, name keep.WorkflowName) keep.RunID {
	r := over(w, name)
	next := w.newRun(name)
	next.RetryOf = r.ID
	w.commit(name, keep.PutRun{Run: done(next)})
	return r.Chain
}

func ofUnfinishedItem(w *world, name keep.WorkflowName) keep.RunID {
	r, m := itemCall(w, name, keep.ItemFailed)
	m.State, m.ResolvedBy = keep.Applied, "call"
	w.commit(name, keep.PutMutation{Mutation: m, Moves: []keep.Move{w.move(keep.InFlight, keep.Applied)}})
	return r.Chain
}

func ofAskedItem(w *world, name keep.WorkflowName) keep.RunID {
	r := over(w, name)
	it := keep.Item{Workflow: name, ID: w.id("item"), Status: keep.ItemFailed, Attempt: 2}
	id := keep.EscalationID(w.id("esc"))
	w.commit(name, keep.PutItem{Item: it}, keep.OpenEscalation{Escalation: keep.Escalation{ID: id, Kind: keep.AskApproval, Workflow: name, Run: r.ID, Item: it.ID}},
		keep.CloseEscalation{ID: id})
	return r.Chain
}

// ran returns the workflows that have runs.
func (w *world) ran() (names []keep.WorkflowName) {
	w.Helper()
	for _, r := range all(reader{tb: w.TB, ctx: w.ctx, s: w.Store}, w.Runs, keep.RunFilter{}) {
		names = append(names, r.Workflow)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// sweepAll sweeps what Over returns of a workflow, and returns how many chains.
func (w *world) sweepAll(name keep.WorkflowName) (swept int) {
	w.Helper()
	for after, i := "", 0; i == 0 || after != ""; i++ {
		old, next, err := w.Over(w.ctx, keep.OldRuns{Workflow: name, Before: w.now()}, after, 4)
		if err != nil {
			w.Fatalf("Over: %v", err)
		}
		for _, c := range old {
			if c.Workflow != name || c.Runs < 1 || c.At.IsZero() || c.At.After(w.at) {
				w.Errorf("Over: %+v", c)
			}
			w.same("Over of a chain", c, ofChain(w, name, c.Chain))
			w.sweep(c.Workflow, c.Chain, w.at)
			w.check()
			swept++
		}
		after = next
	}
	return swept
}

// ofChain returns what Over is to say of a chain.
func ofChain(w *world, name keep.WorkflowName, chain keep.RunID) keep.OldChain {
	w.Helper()
	c := keep.OldChain{Workflow: name, Chain: chain, Mutations: len(get[[]keep.Mutation](w)(w.Calls(w.ctx, chain, keep.MaxPage)))}
	for _, r := range all(reader{tb: w.TB, ctx: w.ctx, s: w.Store}, w.Runs, keep.RunFilter{Chain: chain}) {
		c.Runs++
		if r.UpdatedAt.After(c.At) {
			c.At = r.UpdatedAt
		}
	}
	return c
}

// countsAgree wants counts that are what the lists have.
func countsAgree(w *world) {
	w.Helper()
	for _, text := range []string{"", "old", "call"} {
		counted(w, "Runs", w.Runs, w.CountRuns, keep.RunFilter{Text: text}, func(r keep.Run) keep.RunStatus { return r.Status })
		counted(w, "Mutations", w.Mutations, w.CountMutations, keep.MutationFilter{Text: text}, func(m keep.Mutation) keep.MutationState { return m.State })
	}
	if runs := get[map[keep.RunStatus]int](w)(w.CountRuns(w.ctx, keep.RunFilter{})); len(runs) == 0 {
		w.Error(fmt.Sprint("no run is left: ", runs))
	}
}

package storetest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/keep-run/keep"
)

var commitPromises = []promise{
	{"changes are made in their order, all or none", func(w *world) {
		r := w.newRun("w")
		w.commit("w",
			keep.Publish{Event: event("w", "t", "m")},
			keep.Reserve{Chain: r.Chain, Reservation: keep.Reservation{Topic: "t", IDs: []keep.MessageID{"m"}}},
			keep.Release{Chain: r.Chain},
			keep.SkipEvents{Topic: "t", IDs: []keep.MessageID{"m"}})
		w.refuse("w", cannotReserve("t", "n", "unknown"),
			keep.PutRun{Run: r},
			keep.Publish{Event: event("w", "u", "n")},
			keep.Reserve{Chain: r.Chain, Reservation: keep.Reservation{Topic: "t", IDs: []keep.MessageID{"n"}}})
	}},
	{"a commit without changes is fine, one without a workflow or a time is not", func(w *world) {
		w.commit("w")
		w.refuse("", invalid, keep.SetPaused{Paused: true})
		err := w.Commit(w.ctx, keep.Commit{Workflow: "w"})
		w.fails("Commit", err, invalid)
	}},
	{"a refusal says which workflow it was", func(w *world) {
		err := w.Commit(w.ctx, keep.Commit{Workflow: "invoices", At: w.now(), Changes: []keep.Change{keep.SetPaused{}}})
		if err == nil || err.Error() != `commit invoices: no workflow "invoices"` {
			w.Errorf("Commit = %v", err)
		}
	}},
	{"a commit whose context is over is not made, and says why", func(w *world) {
		why := errors.New("the host is stopping")
		ctx, cancel := context.WithCancelCause(w.ctx)
		cancel(why)
		before := Snapshot(w.TB, w.Store)
		err := w.Commit(ctx, keep.Commit{Workflow: "w", At: w.now(), Changes: []keep.Change{keep.PutRun{Run: w.newRun("w")}}})
		w.fails("Commit", err, is(why))
		w.same("the store", Snapshot(w.TB, w.Store), before)
	}},
	{"what a caller changes later does not reach the store", func(w *world) {
		r := fullRun(w)
		w.commit("w", keep.PutRun{Run: r})
		before := get[keep.Run](w)(w.Run(w.ctx, r.ID))
		r.Prepared[0], r.Reservations[0].IDs[0], r.Error.Code = 'X', "changed", "changed"
		got := get[keep.Run](w)(w.Run(w.ctx, r.ID))
		w.same("after the written value changed", got, before)
		got.Prepared[0], got.Reservations[0].IDs[0], got.Error.Code = 'X', "changed", "changed"
		w.same("after a read value changed", get[keep.Run](w)(w.Run(w.ctx, r.ID)), get[keep.Run](w)(w.Run(w.ctx, before.ID)))
		if again := get[keep.Run](w)(w.Run(w.ctx, r.ID)); again.Prepared[0] == 'X' {
			w.Error("a read value is shared with the store")
		}
	}},
	{"workflows commit in parallel, and each sees what it wrote", func(w *world) {
		var wg sync.WaitGroup
		for i := range 16 {
			name := keep.WorkflowName(fmt.Sprint("w", i))
			wg.Go(func() { lifeOfAWorkflow(w, name, 20) })
		}
		wg.Wait()
	}},
	{"of many who open a run of one workflow at once, one succeeds", func(w *world) {
		var runs []keep.Run
		for range 16 {
			runs = append(runs, w.newRun("w"))
		}
		won := race(w, keep.ErrRunOpen, len(runs), func(i int) keep.Change { return keep.PutRun{Run: runs[i]} })
		open, _, err := openRun(w.ctx, w, "w")
		if err != nil || open.ID != runs[won].ID {
			w.Errorf("OpenRun = %s, %v, want %s", open.ID, err, runs[won].ID)
		}
	}},
	{"of many who answer a question at once, one succeeds", func(w *world) {
		w.commit("w", keep.OpenEscalation{Escalation: keep.Escalation{ID: "esc", Kind: keep.AskLogic, Workflow: "w"}})
		won := race(w, keep.ErrDecided, 16, func(i int) keep.Change {
			return keep.CloseEscalation{ID: "esc", Decision: &keep.Decision{Action: keep.Retry, By: fmt.Sprint(i)}}
		})
		if e := get[keep.Escalation](w)(w.Escalation(w.ctx, "esc")); e.Decision == nil || e.Decision.By != fmt.Sprint(won) {
			w.Errorf("decision = %+v, want that of %d", e.Decision, won)
		}
	}},
	{"refused commits do not touch those that are made beside them", func(w *world) {
		at := w.now()
		var wg sync.WaitGroup
		for i := range 8 {
			good, bad := keep.WorkflowName(fmt.Sprint("good", i)), keep.WorkflowName(fmt.Sprint("bad", i))
			wg.Go(func() { lifeOfAWorkflow(w, good, 10) })
			wg.Go(func() {
				for n := range 10 {
					err := w.Commit(w.ctx, keep.Commit{Workflow: bad, At: at, Changes: []keep.Change{
						keep.Publish{Event: event(bad, "t", keep.MessageID(fmt.Sprint(n)))},
						keep.SkipEvents{Topic: "t", IDs: []keep.MessageID{"unknown"}},
					}})
					if !cannotReserve("t", "unknown", "unknown")(err) {
						w.Errorf("Commit = %v", err)
					}
				}
			})
		}
		wg.Wait()
		for _, c := range get[[]keep.TopicCount](w)(w.TopicCounts(w.ctx, "")) {
			if c.Workflow[:3] == "bad" {
				w.Errorf("a refused commit left %+v", c)
			}
		}
	}},
	{"readers see whole commits while they are made", func(w *world) {
		for _, id := range []keep.MessageID{"a", "b"} {
			w.publish("w", "t", id)
		}
		ctx, stop := context.WithCancel(w.ctx)
		var wg sync.WaitGroup
		wg.Go(func() {
			defer stop()
			for range 20 {
				r := keep.Run{ID: keep.RunID(w.id("run")), Workflow: "w", Handler: "h", Kind: keep.Consumer, Phase: keep.Prepared, Status: keep.StatusActive}
				r.Chain = r.ID
				r.Reservations = []keep.Reservation{{Topic: "t", IDs: []keep.MessageID{"a", "b"}}}
				w.commit("w", keep.PutRun{Run: r}, keep.Reserve{Chain: r.Chain, Reservation: r.Reservations[0]})
				r.Rev, r.Status, r.Closed = 1, keep.StatusAborted, true
				w.commit("w", keep.Release{Chain: r.Chain}, keep.PutRun{Run: r})
			}
		})
		for range 2 {
			wg.Go(func() {
				for ctx.Err() == nil {
					list, err := w.EventsByID(w.ctx, "w", "t", []keep.MessageID{"a", "b"})
					if err != nil || len(list) != 2 || list[0].ReservedBy != list[1].ReservedBy {
						w.Errorf("EventsByID = %v, %v, want both free or both reserved", list, err)
						return
					}
				}
			})
		}
		wg.Wait()
	}},
	{"what was committed survives a restart", func(w *world) {
		again, ok := w.Store.(Reopener)
		if !ok {
			w.Skip("this store forgets")
		}
		populate(w)
		before, id := Snapshot(w.TB, w.Store), get[string](w)(w.StoreID(w.ctx))
		w.Store = again.Reopen(w.TB)
		if diff := cmp.Diff(before, Snapshot(w.TB, w.Store)); diff != "" {
			w.Errorf("after a restart (-before +after):\n%s", diff)
		}
		w.same("StoreID", get[string](w)(w.StoreID(w.ctx)), id)
		w.publish("w1", "t", "after")
		last := get[keep.Event](w)(w.Event(w.ctx, "w1", "t", "after"))
		if last.Seq <= before.Events[0].Seq {
			w.Errorf("seq %d after a restart, it was %d", last.Seq, before.Events[0].Seq)
		}
	}},
}

// lifeOfAWorkflow makes runs that each take the event of the one before, and
// reads after every commit what it wrote.
func lifeOfAWorkflow(w *world, name keep.WorkflowName, runs int) {
	at := w.at
	commit := func(changes ...keep.Change) {
		at = at.Add(time.Second)
		if err := w.Commit(w.ctx, keep.Commit{Workflow: name, At: at, Changes: changes}); err != nil {
			w.Errorf("Commit: %v", err)
		}
	}
	commit(keep.Publish{Event: event(name, "t", "0")})
	for i := range runs {
		id := keep.RunID(fmt.Sprintf("run_%s_%d", name, i))
		r := keep.Run{ID: id, Chain: id, Workflow: name, Handler: "h", Kind: keep.Consumer, Phase: keep.Prepared, Status: keep.StatusActive,
			Reservations: []keep.Reservation{{Topic: "t", IDs: []keep.MessageID{keep.MessageID(fmt.Sprint(i))}}}}
		commit(keep.PutRun{Run: r}, keep.Reserve{Chain: id, Reservation: r.Reservations[0]})
		if open, ok, err := openRun(w.ctx, w, name); err != nil || !ok || open.ID != id {
			w.Errorf("OpenRun = %s, %v, %v, want %s", open.ID, ok, err, id)
			return
		}
		r.Rev = 1
		commit(keep.Finish{Chain: id, Status: keep.EventConsumed}, keep.PutRun{Run: done(r)},
			keep.Publish{Event: event(name, "t", keep.MessageID(fmt.Sprint(i+1)))})
		if list, err := w.Peek(w.ctx, name, "t", 10); err != nil || len(list) != 1 {
			w.Errorf("Peek = %v, %v, want one event", list, err)
			return
		}
	}
}

// race makes n commits at once, of which one may succeed; the others must be
// refused with lost. It returns which one won.
func race(w *world, lost error, n int, change func(int) keep.Change) int {
	w.Helper()
	at := w.now()
	errs := make([]error, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			errs[i] = w.Commit(w.ctx, keep.Commit{Workflow: "w", At: at, Changes: []keep.Change{change(i)}})
		})
	}
	wg.Wait()
	won := -1
	for i, err := range errs {
		switch {
		case err == nil && won < 0:
			won = i
		case err == nil:
			w.Errorf("%d and %d both succeeded", won, i)
		case !errors.Is(err, lost):
			w.Errorf("Commit = %v, want %v", err, lost)
		}
	}
	if won < 0 {
		w.Fatal("nobody succeeded")
	}
	return won
}

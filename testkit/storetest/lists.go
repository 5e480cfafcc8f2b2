package storetest

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/keep-run/keep"
)

var listPromises = []promise{
	{"lists are newest first, and a cursor continues after its page", func(w *world) {
		populate(w)
		pages(w, "Runs", w.Runs, keep.RunFilter{}, func(r keep.Run) string { return string(r.ID) })
		pages(w, "Runs of a workflow", w.Runs, keep.RunFilter{Workflow: "w1"}, func(r keep.Run) string { return string(r.ID) })
		pages(w, "Mutations", w.Mutations, keep.MutationFilter{}, func(m keep.Mutation) string { return string(m.Key) })
		pages(w, "Mutations of a workflow", w.Mutations, keep.MutationFilter{Workflow: "w1"}, func(m keep.Mutation) string { return string(m.Key) })
		pages(w, "Events", w.Events, keep.EventFilter{}, func(e keep.Event) string { return fmt.Sprintf("%020d", e.Seq) })
		pages(w, "Events of a topic", w.Events, keep.EventFilter{Workflow: "w1", Topic: "t"}, func(e keep.Event) string { return fmt.Sprintf("%020d", e.Seq) })
		pages(w, "pending Events", w.Events, keep.EventFilter{Status: keep.EventPending}, func(e keep.Event) string { return fmt.Sprintf("%020d", e.Seq) })
		pages(w, "Inputs", w.Inputs, keep.InputFilter{}, func(in keep.Input) string { return string(in.ID) })
		pages(w, "pending Inputs", w.Inputs, keep.InputFilter{Status: keep.InputPending}, func(in keep.Input) string { return string(in.ID) })
		pages(w, "Items", w.Items, keep.ItemFilter{}, func(it keep.Item) string { return it.ID })
		pages(w, "Items of a workflow", w.Items, keep.ItemFilter{Workflow: "w1"}, func(it keep.Item) string { return it.ID })
		pages(w, "Escalations", w.Escalations, keep.EscalationFilter{}, func(e keep.Escalation) string { return string(e.ID) })
	}},
	{"a filter selects exactly what it says", func(w *world) {
		populate(w)
		filterRuns(w)
		filterMutations(w)
		filterEvents(w)
		filterOthers(w)
	}},
	{"a cursor that the list did not make is an error", func(w *world) {
		populate(w)
		_, ours, err := w.Runs(w.ctx, keep.RunFilter{}, keep.Page{Limit: 1})
		if err != nil || ours == "" {
			w.Fatalf("Runs: next %q, %v", ours, err)
		}
		for _, cursor := range []string{"x", "0", "-1", ours + "x", "r-1", "m0", "'", "99999999999999999999999"} {
			p := keep.Page{After: cursor}
			_, _, err := w.Runs(w.ctx, keep.RunFilter{}, p)
			w.fails("Runs after "+cursor, err, is(keep.ErrBadCursor))
			_, _, err = w.Mutations(w.ctx, keep.MutationFilter{}, p)
			w.fails("Mutations after "+cursor, err, is(keep.ErrBadCursor))
			_, _, err = w.Events(w.ctx, keep.EventFilter{}, p)
			w.fails("Events after "+cursor, err, is(keep.ErrBadCursor))
			_, _, err = w.Inputs(w.ctx, keep.InputFilter{}, p)
			w.fails("Inputs after "+cursor, err, is(keep.ErrBadCursor))
			_, _, err = w.Items(w.ctx, keep.ItemFilter{}, p)
			w.fails("Items after "+cursor, err, is(keep.ErrBadCursor))
			_, _, err = w.Escalations(w.ctx, keep.EscalationFilter{}, p)
			w.fails("Escalations after "+cursor, err, is(keep.ErrBadCursor))
		}
		_, _, err = w.Events(w.ctx, keep.EventFilter{}, keep.Page{After: ours})
		w.fails("a cursor of another list", err, is(keep.ErrBadCursor))
	}},
	{"a page without a limit has a hundred rows", func(w *world) {
		var changes []keep.Change
		for i := range 101 {
			changes = append(changes, keep.Publish{Event: event("w", "t", keep.MessageID(fmt.Sprint(i)))})
		}
		w.commit("w", changes...)
		list, next, err := w.Events(w.ctx, keep.EventFilter{}, keep.Page{})
		if err != nil || len(list) != 100 || next == "" {
			w.Errorf("%d rows, next %q, %v, want 100 and a cursor", len(list), next, err)
		}
		list, next, err = w.Events(w.ctx, keep.EventFilter{}, keep.Page{After: next})
		if err != nil || len(list) != 1 || next != "" {
			w.Errorf("%d rows, next %q, %v, want the last one", len(list), next, err)
		}
	}},
	{"a list stays right while rows are added and change", func(w *world) {
		for i := range 10 {
			w.publish("w", "t", keep.MessageID(fmt.Sprint(i)))
		}
		first, next, err := w.Events(w.ctx, keep.EventFilter{Workflow: "w"}, keep.Page{Limit: 4})
		if err != nil {
			w.Fatal(err)
		}
		w.publish("w", "t", "new")
		w.finish(w.start("w", "t", "0", "3"))
		rest := page[keep.Event](w)(w.Events(w.ctx, keep.EventFilter{Workflow: "w"}, keep.Page{After: next}))
		var got []keep.MessageID
		for _, e := range slices.Concat(first, rest) {
			got = append(got, e.MessageID)
		}
		w.same("both pages", got, []keep.MessageID{"9", "8", "7", "6", "5", "4", "3", "2", "1", "0"})
	}},
	{"a store knows its own name", func(w *world) {
		id := get[string](w)(w.StoreID(w.ctx))
		if again := get[string](w)(w.StoreID(w.ctx)); len(id) < 16 || again != id {
			w.Errorf("StoreID = %q, then %q", id, again)
		}
	}},
	{"a store makes one key for links, whoever asks first", func(w *world) {
		keys := make([][]byte, 8)
		var wg sync.WaitGroup
		for i := range keys {
			wg.Go(func() {
				var err error
				if keys[i], err = w.LinkKey(w.ctx); err != nil {
					w.Error(err)
				}
			})
		}
		wg.Wait()
		for _, k := range keys {
			if len(k) != 32 || !bytes.Equal(k, keys[0]) || bytes.Equal(k, make([]byte, 32)) {
				w.Errorf("LinkKey = %x, want 32 random bytes, the same for all", keys)
			}
		}
	}},
}

// populate makes two workflows with rows in many states, ids rising.
func populate(w *world) {
	w.Helper()
	for _, name := range []keep.WorkflowName{"w1", "w2"} {
		w.deploy(name, "t", "u")
		for i := range 6 {
			in := w.input(name)
			w.publish(name, "t", keep.MessageID(fmt.Sprint("t", i)), in)
			w.publish(name, "u", keep.MessageID(fmt.Sprint("u", i)))
			status := keep.ItemStatuses()[i%5]
			w.commit(name, keep.PutItem{Item: keep.Item{Workflow: name, ID: w.id("item"), Status: status, Attempt: 1}})
			if i%3 == 2 {
				w.commit(name, keep.SkipInput{Input: in})
			}
		}
		w.commit(name, keep.SkipEvents{Topic: "u", IDs: []keep.MessageID{"u5", "u1"}})
		w.finish(w.start(name, "t", "t0", "t1"))
		r, m := w.call(name)
		settle(w, &r, &m)
		doubtful(w, name)
		job(w, name)
		w.commit(name, keep.OpenEscalation{Escalation: keep.Escalation{ID: keep.EscalationID(w.id("esc")), Kind: keep.AskLogic, Workflow: name}})
		w.start(name, "u", "u0", "u3")
	}
}

// doubtful makes a run whose retry skipped what nobody could know.
func doubtful(w *world, name keep.WorkflowName) {
	w.Helper()
	r, m := w.call(name)
	esc := keep.EscalationID(w.id("esc"))
	m.State = keep.Indeterminate
	r.Status = keep.StatusReconciliation
	w.commit(name, keep.PutRun{Run: r}, keep.PutMutation{Mutation: m, Moves: []keep.Move{w.move(keep.InFlight, keep.Indeterminate)}},
		keep.OpenEscalation{Escalation: keep.Escalation{ID: esc, Kind: keep.AskUnknownOutcome, Workflow: name, Run: r.ID, Mutation: m.Key}})
	r.Rev, m.Rev = 2, 2
	retry := w.newRun(name)
	retry.Chain, retry.RetryOf, retry.Mutation = r.Chain, r.ID, m.Key
	r.Status, r.Closed = keep.StatusCrashed, true
	m.State, m.Run = keep.Skipped, retry.ID
	w.commit(name, keep.PutRun{Run: r}, keep.PutRun{Run: done(retry)},
		keep.PutMutation{Mutation: m, Moves: []keep.Move{w.move(keep.Indeterminate, keep.Skipped)}},
		keep.CloseEscalation{ID: esc, Decision: &keep.Decision{Action: keep.Skip, By: "ann", At: w.at}})
}

// job makes a run of a job with three items, each with a call that failed.
func job(w *world, name keep.WorkflowName) {
	w.Helper()
	r := jobRun(w, name)
	for i := range 3 {
		it := keep.Item{Workflow: name, ID: w.id("item"), Status: keep.ItemFailed, Attempt: 1}
		m := w.newMutation(r)
		m.Key, m.Item, m.Attempt, m.State = keep.MutationKey(w.id("key_of_run")), it.ID, 1, keep.Failed
		m.Tool = keep.ToolName(fmt.Sprint("mail.send", i%2))
		w.commit(name, keep.PutItem{Item: it}, keep.PutMutation{Mutation: m,
			Moves: []keep.Move{w.move("", keep.InFlight), w.move(keep.InFlight, keep.Failed)}})
	}
	w.commit(name, keep.PutRun{Run: done(r)})
}

// pages reads a list at once and in pages of every size, and wants the same.
func pages[F, T any](w *world, what string, list func(context.Context, F, keep.Page) ([]T, string, error), f F, id func(T) string) {
	w.Helper()
	whole := page[T](w)(list(w.ctx, f, keep.Page{Limit: 1 << 30}))
	if len(whole) < 3 {
		w.Errorf("%s: %d rows, too few to test with", what, len(whole))
	}
	sorted := slices.IsSortedFunc(whole, func(a, b T) int {
		if id(a) > id(b) {
			return -1
		}
		return 1
	})
	if !sorted {
		w.Errorf("%s: not newest first: %v", what, whole)
	}
	for size := 1; size <= len(whole)+1; size++ {
		var parts []T
		p := keep.Page{Limit: size}
		for {
			part, next, err := list(w.ctx, f, p)
			if err != nil || len(part) > size || next != "" && len(part) != size {
				w.Fatalf("%s by %d: %d rows, next %q, %v", what, size, len(part), next, err)
			}
			parts = append(parts, part...)
			if p.After = next; next == "" {
				break
			}
		}
		w.same(fmt.Sprintf("%s by %d", what, size), parts, whole)
	}
}

// filtered compares a filtered list with the whole list, filtered here.
func filtered[F, T any](w *world, what string, list func(context.Context, F, keep.Page) ([]T, string, error), f F, match func(T) bool) {
	w.Helper()
	var all F
	var want []T
	for _, v := range page[T](w)(list(w.ctx, all, keep.Page{Limit: keep.MaxPage})) {
		if match(v) {
			want = append(want, v)
		}
	}
	w.same(fmt.Sprintf("%s %+v", what, f), page[T](w)(list(w.ctx, f, keep.Page{Limit: keep.MaxPage})), want)
	if len(want) > 1 { // and a page that ends in the middle
		short, next, err := list(w.ctx, f, keep.Page{Limit: 1})
		if err != nil || next == "" {
			w.Fatalf("%s %+v: next %q, %v", what, f, next, err)
		}
		w.same(fmt.Sprintf("first of %s %+v", what, f), short, want[:1])
		w.same(fmt.Sprintf("rest of %s %+v", what, f), page[T](w)(list(w.ctx, f, keep.Page{After: next, Limit: keep.MaxPage})), want[1:])
	}
}

// want reports whether a field of a filter allows v.
func want[T comparable](field, v T) bool {
	var all T
	return field == all || field == v
}

func filterRuns(w *world) {
	w.Helper()
	chains := []keep.RunID{"", "run_0"}
	for _, r := range page[keep.Run](w)(w.Runs(w.ctx, keep.RunFilter{}, keep.Page{Limit: keep.MaxPage})) {
		if r.RetryOf != "" {
			chains = append(chains, r.Chain)
		}
	}
	for _, name := range []keep.WorkflowName{"", "w1", "none"} {
		for _, handler := range []keep.HandlerName{"", "consume", "work", "none"} {
			for _, status := range append(keep.RunStatuses(), "") {
				for _, chain := range chains {
					for _, open := range []bool{false, true} {
						f := keep.RunFilter{Workflow: name, Handler: handler, Status: status, Chain: chain, Open: open}
						filtered(w, "Runs", w.Runs, f, func(r keep.Run) bool {
							return want(name, r.Workflow) && want(handler, r.Handler) && want(status, r.Status) && want(chain, r.Chain) && (!open || !r.Closed)
						})
					}
				}
			}
		}
	}
}

func filterMutations(w *world) {
	w.Helper()
	all := page[keep.Mutation](w)(w.Mutations(w.ctx, keep.MutationFilter{}, keep.Page{}))
	runs, items := []keep.RunID{"", "run_0"}, []string{"", "none"}
	for _, m := range all {
		runs, items = append(runs, m.Run), append(items, m.Item)
	}
	for _, name := range []keep.WorkflowName{"", "w1", "none"} {
		for _, state := range append(keep.MutationStates(), "") {
			for _, tool := range []keep.ToolName{"", "crm.create", "mail.send0", "none"} {
				filtered(w, "Mutations", w.Mutations, keep.MutationFilter{Workflow: name, State: state, Tool: tool}, func(m keep.Mutation) bool {
					return want(name, m.Workflow) && want(state, m.State) && want(tool, m.Tool)
				})
			}
			for _, run := range slices.Compact(runs) {
				filtered(w, "Mutations", w.Mutations, keep.MutationFilter{Workflow: name, State: state, Run: run}, func(m keep.Mutation) bool {
					return want(name, m.Workflow) && want(state, m.State) && want(run, m.Run)
				})
			}
			for _, item := range items {
				filtered(w, "Mutations", w.Mutations, keep.MutationFilter{Workflow: name, State: state, Item: item}, func(m keep.Mutation) bool {
					return want(name, m.Workflow) && want(state, m.State) && want(item, m.Item)
				})
			}
		}
	}
	for _, in := range page[keep.Input](w)(w.Inputs(w.ctx, keep.InputFilter{}, keep.Page{})) {
		outputs := get[[]keep.MutationKey](w)(w.Outputs(w.ctx, in.ID))
		filtered(w, "Mutations", w.Mutations, keep.MutationFilter{Input: in.ID}, func(m keep.Mutation) bool { return slices.Contains(outputs, m.Key) })
	}
}

func filterEvents(w *world) {
	w.Helper()
	inputs := []keep.InputID{"", "in_0"}
	for _, in := range page[keep.Input](w)(w.Inputs(w.ctx, keep.InputFilter{}, keep.Page{}))[:3] {
		inputs = append(inputs, in.ID)
	}
	for _, name := range []keep.WorkflowName{"", "w1", "none"} {
		for _, topic := range []keep.TopicName{"", "t", "none"} {
			for _, status := range append(keep.ListedEventStatuses(), "") {
				for _, in := range inputs {
					f := keep.EventFilter{Workflow: name, Topic: topic, Status: status, Input: in}
					filtered(w, "Events", w.Events, f, func(e keep.Event) bool {
						return want(name, e.Workflow) && want(topic, e.Topic) && want(status, e.Listed()) && (in == "" || slices.Contains(e.CausedBy, in))
					})
				}
			}
		}
	}
}

func filterOthers(w *world) {
	w.Helper()
	for _, name := range []keep.WorkflowName{"", "w1", "none"} {
		for _, status := range append(keep.InputStatuses(), "") {
			filtered(w, "Inputs", w.Inputs, keep.InputFilter{Workflow: name, Status: status}, func(in keep.Input) bool {
				return want(name, in.Workflow) && want(status, in.Status)
			})
		}
		for _, status := range append(keep.ItemStatuses(), "") {
			filtered(w, "Items", w.Items, keep.ItemFilter{Workflow: name, Status: status}, func(it keep.Item) bool {
				return want(name, it.Workflow) && want(status, it.Status)
			})
		}
		for _, e := range page[keep.Escalation](w)(w.Escalations(w.ctx, keep.EscalationFilter{}, keep.Page{})) {
			for _, run := range []keep.RunID{"", e.Run} {
				for _, open := range []bool{false, true} {
					f := keep.EscalationFilter{Workflow: name, Run: run, Open: open}
					filtered(w, "Escalations", w.Escalations, f, func(e keep.Escalation) bool {
						return want(name, e.Workflow) && want(run, e.Run) && (!open || e.ClosedAt.IsZero())
					})
				}
			}
		}
	}
}

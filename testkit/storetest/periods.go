package storetest

import (
	"fmt"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/law/search"
)

// periods makes rows of every noun over some days, in which hosts with clocks that differ by
// less than keep.MaxDisorder took turns, and reads every list and count by time and error.
func periods(w *world) {
	w.Helper()
	start := w.at
	const n = 30
	codes := []string{"http-422", "conflict", "a \"<code>\" \x00\x1a"}
	for i := range n {
		name := keep.WorkflowName(fmt.Sprint("w", i%2+1))
		if i < 2 {
			w.deploy(name, "t")
		}
		made := start.Add(time.Duration(i) * 3 * time.Hour).Add(time.Duration(i%3-1) * keep.MaxDisorder / 3)
		in := keep.Input{ID: keep.InputID(w.id("in")), Workflow: name, Source: "mail", Type: "mail", ExternalID: fmt.Sprint(i), Title: fmt.Sprint("Mail ", i), CreatedAt: made}
		e := event(name, "t", keep.MessageID(fmt.Sprint("m", i)))
		e.CreatedAt, e.UpdatedAt, e.CausedBy = made, made, []keep.InputID{in.ID}
		w.commit(name, keep.PutInput{Input: in}, keep.Publish{Event: e},
			keep.PutItem{Item: keep.Item{Workflow: name, ID: w.id("item"), Title: fmt.Sprint("Mail ", i), Status: keep.ItemStatuses()[i%5], Attempt: 1, CreatedAt: made, UpdatedAt: made}})
		w.stopped(name, made, i, codes[i%3])
		q := keep.Escalation{ID: keep.EscalationID(w.id("esc")), Kind: keep.AskLogic, Workflow: name, CreatedAt: made}
		w.commit(name, keep.OpenEscalation{Escalation: q})
		if i%4 < 2 {
			w.commit(name, keep.CloseEscalation{ID: q.ID})
		}
	}
	for i, p := range []keep.Period{
		{}, {Since: start.Add(30 * time.Hour), Until: start.Add(60 * time.Hour)}, {Since: start.Add(-time.Hour)}, {Since: start.Add(30 * time.Hour)}, {Since: start.Add(1000 * time.Hour)},
		{Since: time.UnixMilli(0)}, {Until: time.UnixMilli(0)}, {Until: start.Add(30 * time.Hour)}, {Until: start.Add(-24 * time.Hour)}, {Until: start.Add(1000 * time.Hour)},
		{Since: start.Add(30 * time.Hour), Until: start.Add(31 * time.Hour)},
		{Since: start.Add(60 * time.Hour), Until: start.Add(30 * time.Hour)},
	} {
		texts, words := []string{""}, []string{""}
		if i < 2 {
			texts, words = []string{"", "mail 1"}, []string{"", "logic", "conflict", codes[2], "no"}
		}
		names := []keep.WorkflowName{""}
		if i < 2 {
			names = append(names, "w1")
		}
		for _, name := range names {
			for _, text := range texts {
				w.ofPeriod(name, p, text, words)
			}
		}
	}
}

// everyError makes a run and a call in each state, with an error, and reads every list and count by error and state.
func everyError(w *world) {
	failure := &keep.Failure{Class: keep.ClassTransient, Code: "http-503", Message: "no"}
	for _, status := range keep.RunStatuses() {
		for _, closed := range []bool{false, true} {
			r := w.newRun("w")
			r.Lane, r.Phase, r.Status, r.Closed, r.Error = keep.ChainLane(r.ID), keep.Mutating, status, closed, failure
			if status == keep.StatusCommitted {
				r.Phase = keep.Committed
			}
			ends := status == keep.StatusCommitted || status == keep.StatusAborted
			if closed && status == keep.StatusActive || !closed && ends {
				continue
			}
			if !closed && status.Waits() && status != keep.StatusActive {
				r.RetryAt = w.at
			}
			w.commit("w", keep.PutRun{Run: r})
		}
	}
	for _, status := range append(keep.RunStatuses(), "") {
		for _, open := range []bool{false, true} {
			for _, handler := range []keep.HandlerName{"", "consume"} {
				for _, word := range []string{"transient", "http-503", "none"} {
					f := keep.RunFilter{Handler: handler, Status: status, Open: open, Error: word}
					filtered(w, "Runs", w.Runs, f, func(r keep.Run) bool {
						return want(status, r.Status) && (!open || !r.Closed) && r.Status != keep.StatusActive && r.Status != keep.StatusCommitted && r.Error.Named(word)
					})
					counted(w, "Runs", w.Runs, w.CountRuns, f, func(r keep.Run) keep.RunStatus { return r.Status })
				}
			}
		}
	}
	for _, state := range keep.MutationStates() {
		r := w.newRun("w") // a consumer makes one call
		r.Lane = keep.ChainLane(r.ID)
		m := w.newMutation(r)
		m.Key, m.State, m.Error = keep.MutationKey(w.id("key")), state, failure
		m.Token = string(m.Key)
		if m.Attempts = 1; state == keep.Applied {
			m.Result = []byte(`{}`)
		}
		if state != keep.InFlight {
			m.ResolvedBy = "call"
		}
		changes := []keep.Change{keep.PutRun{Run: r}, keep.PutMutation{Mutation: m, Moves: historyOf(w, state)}}
		if state == keep.Indeterminate {
			changes = append(changes, keep.OpenEscalation{Escalation: keep.Escalation{ID: keep.EscalationID(w.id("esc")), Kind: keep.AskUnknownOutcome, Workflow: "w", Run: r.ID, Mutation: m.Key}})
		}
		w.commit("w", changes...)
	}
	for _, state := range append(keep.MutationStates(), "") {
		for _, word := range []string{"transient", "http-503", "none"} {
			f := keep.MutationFilter{State: state, Error: word}
			filtered(w, "Mutations", w.Mutations, f, func(m keep.Mutation) bool {
				return want(state, m.State) && m.State != keep.Applied && m.Error.Named(word)
			})
			counted(w, "Mutations", w.Mutations, w.CountMutations, f, func(m keep.Mutation) keep.MutationState { return m.State })
		}
	}
}

// stopped makes a run that ended, every other one with an error.
func (w *world) stopped(name keep.WorkflowName, made time.Time, i int, code string) {
	w.Helper()
	r := w.newRun(name)
	r.CreatedAt, r.UpdatedAt, r.Title, r.Phase, r.Closed = made, made, fmt.Sprint("Mail ", i), keep.Mutating, true
	m := w.newMutation(r)
	m.CreatedAt, m.UpdatedAt, m.Title = made, made, r.Title
	failure := &keep.Failure{Class: keep.Classes()[i%4], Code: code, Message: "no \x00 \" said the service"}
	r.Mutation = m.Key
	w.commit(name, keep.PutRun{Run: open(r)}, keep.PutMutation{Mutation: m, Moves: []keep.Move{w.move("", keep.InFlight)}})
	r.Rev, m.Rev = 1, 1
	if i%2 == 0 {
		m.State, m.ResolvedBy, m.Error = keep.Applied, "call", failure // of an earlier attempt
		w.commit(name, keep.PutRun{Run: done(r)}, keep.PutMutation{Mutation: m, Moves: []keep.Move{w.move(keep.InFlight, keep.Applied)}})
		return
	}
	m.State, m.Error = keep.Failed, failure
	r.Status, r.Error = keep.StatusAborted, failure
	w.commit(name, keep.PutRun{Run: r}, keep.PutMutation{Mutation: m, Moves: []keep.Move{w.move(keep.InFlight, keep.Failed)}})
}

// open returns a run before it ended.
func open(r keep.Run) keep.Run {
	r.Closed, r.Status = false, keep.StatusActive
	return r
}

// ofPeriod compares every list and count of a period with a plain filter.
func (w *world) ofPeriod(name keep.WorkflowName, p keep.Period, text string, errors []string) {
	w.Helper()
	words := search.Terms(text)
	for _, word := range errors {
		for _, status := range []keep.RunStatus{"", keep.StatusAborted, keep.StatusCommitted} {
			f := keep.RunFilter{Workflow: name, Status: status, Made: p, Error: word, Text: text}
			filtered(w, "Runs", w.Runs, f, func(r keep.Run) bool {
				return want(name, r.Workflow) && want(status, r.Status) && p.Has(r.CreatedAt) && search.OfRun(r).Has(words) &&
					(word == "" || r.Status == keep.StatusAborted && r.Error.Named(word))
			})
			counted(w, "Runs", w.Runs, w.CountRuns, f, func(r keep.Run) keep.RunStatus { return r.Status })
		}
		for _, state := range []keep.MutationState{"", keep.Failed, keep.Applied} {
			f := keep.MutationFilter{Workflow: name, State: state, Made: p, Error: word, Text: text}
			filtered(w, "Mutations", w.Mutations, f, func(m keep.Mutation) bool {
				return want(name, m.Workflow) && want(state, m.State) && p.Has(m.CreatedAt) && search.OfMutation(m).Has(words) &&
					(word == "" || m.State == keep.Failed && m.Error.Named(word))
			})
			counted(w, "Mutations", w.Mutations, w.CountMutations, f, func(m keep.Mutation) keep.MutationState { return m.State })
		}
	}
	for _, status := range []keep.EventStatus{"", keep.EventPending, keep.EventReserved, keep.EventConsumed} {
		f := keep.EventFilter{Workflow: name, Status: status, Made: p, Text: text}
		filtered(w, "Events", w.Events, f, func(e keep.Event) bool {
			return want(name, e.Workflow) && want(status, e.Listed()) && p.Has(e.CreatedAt) && search.OfEvent(e).Has(words)
		})
	}
	for _, status := range []keep.InputStatus{"", keep.InputPending} {
		f := keep.InputFilter{Workflow: name, Status: status, Made: p, Text: text}
		filtered(w, "Inputs", w.Inputs, f, func(in keep.Input) bool {
			return want(name, in.Workflow) && want(status, in.Status) && p.Has(in.CreatedAt) && search.OfInput(in).Has(words)
		})
		counted(w, "Inputs", w.Inputs, w.CountInputs, f, func(in keep.Input) keep.InputStatus { return in.Status })
	}
	for _, open := range []bool{false, true} {
		f := keep.EscalationFilter{Workflow: name, Open: open, Made: p}
		filtered(w, "Escalations", w.Escalations, f, func(q keep.Escalation) bool {
			return want(name, q.Workflow) && (!open || q.ClosedAt.IsZero()) && p.Has(q.CreatedAt)
		})
		counted(w, "Escalations", w.Escalations, w.CountEscalations, f, func(q keep.Escalation) keep.EscalationKind { return q.Kind })
	}
	for _, status := range []keep.ItemStatus{"", keep.ItemFailed} {
		f := keep.ItemFilter{Workflow: name, Status: status, Made: p, Text: text}
		filtered(w, "Items", w.Items, f, func(it keep.Item) bool {
			return want(name, it.Workflow) && want(status, it.Status) && p.Has(it.CreatedAt) && search.OfItem(it).Has(words)
		})
		counted(w, "Items", w.Items, w.CountItems, f, func(it keep.Item) keep.ItemStatus { return it.Status })
	}
}

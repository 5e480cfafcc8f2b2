package storetest

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/keep-run/keep"
)

var rivalPromises = []promise{
	{"a call that is to be made once is refused beside another of its identity, of any workflow", func(w *world) {
		for _, state := range keep.MutationStates() {
			first := equal(w, keep.WorkflowName("first "+state), string(state))
			first.State, first.ResolvedBy = state, "call"
			w.commit(first.Workflow, keep.PutMutation{Mutation: first, Moves: historyOf(w, state)})
			if state == keep.Indeterminate {
				w.commit(first.Workflow, keep.OpenEscalation{Escalation: keep.Escalation{ID: keep.EscalationID("esc_" + first.Key),
					Kind: keep.AskUnknownOutcome, Workflow: first.Workflow, Run: first.Run, Mutation: first.Key}})
			}
			second := equal(w, keep.WorkflowName("second "+state), string(state))
			u := unlike(second)
			rival, found := must(w)(w.Rival(w.ctx, u))
			if found != state.Rivals() || found && rival.Key != first.Key {
				w.Errorf("a record that is %s: Rival = %s, %t", state, rival.Key, found)
			}
			if !found {
				w.commit(second.Workflow, u, putNew(w, second))
				continue
			}
			w.refuse(second.Workflow, rivalOf(first.Key), u, putNew(w, second))
			u.Except = []keep.MutationKey{first.Key}
			if _, found := must(w)(w.Rival(w.ctx, u)); found {
				w.Errorf("a record that is excepted is a rival")
			}
			w.commit(second.Workflow, u, putNew(w, second))
		}
	}},
	{"of several rivals the one that was recorded first is named, whatever the tool is called, and what the clock said", func(w *world) {
		names := []keep.ToolName{"hub.once", "crm.once"}
		var first keep.MutationKey
		for i := range 4 {
			r := w.newRun("w")
			r.Lane = keep.ChainLane(r.ID)
			m := w.newMutation(r)
			m.Tool, m.Identity, m.CreatedAt = names[(i+1)%2], json.RawMessage(`{"id":"x"}`), w.at.Add(-time.Duration(i)*time.Hour)
			w.commit("w", keep.PutRun{Run: r}, putNew(w, m))
			if i == 0 {
				first = m.Key
			}
		}
		for _, tools := range [][]keep.ToolName{names, {names[1], names[0]}} {
			m, found := must(w)(w.Rival(w.ctx, keep.Unlike{Key: "new", Tools: tools, Identity: json.RawMessage(`{"id":"x"}`)}))
			if !found || m.Key != first {
				w.Errorf("Rival = %s, %t, want %s", m.Key, found, first)
			}
		}
	}},
	{"a call is no rival of itself, of another tool, identity or subkey", func(w *world) {
		m := equal(w, "w", "x")
		w.commit("w", unlike(m), putNew(w, m))
		m.Rev, m.Target = 1, "again"
		w.commit("w", unlike(m), keep.PutMutation{Mutation: m})
		for i, change := range []func(*keep.Mutation){
			func(m *keep.Mutation) { m.Tool = "crm.other" },
			func(m *keep.Mutation) { m.Identity = json.RawMessage(`{"id":"xx"}`) },
			func(m *keep.Mutation) { m.Subkey = "s" },
		} {
			other := equal(w, keep.WorkflowName(fmt.Sprint("other", i)), "x")
			change(&other)
			w.commit(other.Workflow, unlike(other), putNew(w, other))
		}
		long := equal(w, "long", string(slices.Repeat([]byte("long "), 100))+"a")
		w.commit("long", unlike(long), putNew(w, long))
		near := equal(w, "near", string(slices.Repeat([]byte("long "), 100))+"b")
		w.commit("near", unlike(near), putNew(w, near))
		same := equal(w, "same", string(slices.Repeat([]byte("long "), 100))+"a")
		w.refuse("same", rivalOf(long.Key), unlike(same), putNew(w, same))
	}},
	{"a call is refused beside one that was made under another name of its tool", func(w *world) {
		names := []keep.ToolName{"hub.once", "crm.once", "svc.once"}
		for i, was := range names {
			id := fmt.Sprint("renamed ", i)
			first, second := equal(w, keep.WorkflowName("was "+was), id), equal(w, keep.WorkflowName("is "+was), id)
			first.Tool, second.Tool = was, names[(i+1)%len(names)]
			w.commit(first.Workflow, putNew(w, first))
			u := unlike(second)
			if rival, found := must(w)(w.Rival(w.ctx, u)); found {
				w.Errorf("Rival under another name = %s, want none", rival.Key)
			}
			u.Tools = names
			if rival, found := must(w)(w.Rival(w.ctx, u)); !found || rival.Key != first.Key {
				w.Errorf("Rival = %s, %t, want %s", rival.Key, found, first.Key)
			}
			w.refuse(second.Workflow, rivalOf(first.Key), u, putNew(w, second))
			third := equal(w, keep.WorkflowName("also "+was), id)
			third.Tool = names[(i+2)%len(names)]
			w.commit(third.Workflow, putNew(w, third))
			if rival, _ := must(w)(w.Rival(w.ctx, u)); rival.Key != first.Key {
				w.Errorf("Rival = %s, want the oldest, %s", rival.Key, first.Key)
			}
			u.Except = []keep.MutationKey{first.Key}
			w.refuse(second.Workflow, rivalOf(third.Key), u, putNew(w, second))
			u.Except = append(u.Except, third.Key)
			w.commit(second.Workflow, u, putNew(w, second))
		}
	}},
	{"a call is refused beside one of another lane of its workflow", func(w *world) {
		var calls []keep.Mutation
		for _, lane := range []keep.Lane{keep.KeyLane("c", "a"), keep.KeyLane("c", "b")} {
			r := w.newRun("w")
			r.Lane = lane
			w.commit("w", keep.PutRun{Run: r})
			m := w.newMutation(r)
			m.Tool, m.Identity = "crm.once", json.RawMessage(`{"id":"x"}`)
			calls = append(calls, m)
		}
		w.commit("w", unlike(calls[0]), putNew(w, calls[0]))
		w.refuse("w", rivalOf(calls[0].Key), unlike(calls[1]), putNew(w, calls[1]))
	}},
	{"of calls of one identity that are recorded at the same moment, under whichever name of the tool, one is", func(w *world) {
		for round := range 10 {
			id := fmt.Sprint("round ", round)
			var calls []keep.Mutation
			names := []keep.ToolName{"crm.once", "svc.once"}
			for i := range 8 {
				calls = append(calls, equal(w, keep.WorkflowName(fmt.Sprint("w", round, "-", i)), id))
				calls[i].Tool = names[i%2]
			}
			errs := make([]error, len(calls))
			at := w.now()
			var wg sync.WaitGroup
			for i, m := range calls {
				u := unlike(m)
				u.Tools = names
				changes := []keep.Change{u, putNew(w, m)}
				wg.Go(func() {
					errs[i] = w.Commit(w.ctx, keep.Commit{Workflow: m.Workflow, At: at, Changes: changes})
				})
			}
			wg.Wait()
			made := 0
			for _, err := range errs {
				if err == nil {
					made++
				} else if !errors.Is(err, keep.ErrStale) {
					w.Errorf("Commit = %v, want a *RivalError", err)
				}
			}
			if made != 1 {
				w.Fatalf("%d of %d equal calls were recorded, want 1 (law: once)", made, len(calls))
			}
		}
	}},
}

var settingPromises = []promise{
	{"a call that sets something is not sent again after a later one that may have happened, and one that is recorded anew has no need to wait", func(w *world) {
		for _, state := range keep.MutationStates() {
			first := unclear(w, keep.WorkflowName("first "+state), string(state))
			s := setting(first)
			w.commit(first.Workflow, s, keep.PutMutation{Mutation: first})
			first.Rev++
			second := later(w, first, keep.WorkflowName("second "+state))
			w.commit(second.Workflow, setting0(second), putNew(w, second))
			if state != keep.InFlight {
				second.Rev, second.State, second.ResolvedBy = 1, state, "call"
				w.commit(second.Workflow, keep.PutMutation{Mutation: second, Moves: historyOf(w, state)[1:]})
			}
			if state == keep.Indeterminate {
				w.commit(second.Workflow, keep.OpenEscalation{Escalation: keep.Escalation{ID: keep.EscalationID("esc_" + second.Key),
					Kind: keep.AskUnknownOutcome, Workflow: second.Workflow, Run: second.Run, Mutation: second.Key}})
			}
			m, found := must(w)(w.Barring(w.ctx, s, w.now()))
			if found != (state != keep.Failed) || found && (m.Key != second.Key || !s.IsUndone(m) || string(m.Payload) != string(second.Payload)) {
				w.Errorf("beside a later one that is %s: Barring = %s, %t", state, m.Key, found)
			}
			if !found {
				w.commit(first.Workflow, s, keep.PutMutation{Mutation: first})
				continue
			}
			w.refuse(first.Workflow, rivalOf(second.Key), s, keep.PutMutation{Mutation: first})
			s.Except = []keep.MutationKey{second.Key}
			w.commit(first.Workflow, s, keep.PutMutation{Mutation: first})
		}
	}},
	{"a call in doubt is not held up by an earlier one, nor by a later one that says the same, of another tool or of another identity", func(w *world) {
		early := equal(w, "early", "x")
		early.PayloadHash, early.State, early.ResolvedBy = "early", keep.Applied, "call"
		w.commit("early", keep.PutMutation{Mutation: early, Moves: historyOf(w, keep.Applied)})
		w.now()
		first := unclear(w, "first", "x")
		for i, change := range []func(*keep.Mutation){
			func(m *keep.Mutation) { m.PayloadHash = first.PayloadHash },
			func(m *keep.Mutation) { m.Tool = "crm.other" },
			func(m *keep.Mutation) { m.Identity = json.RawMessage(`{"id":"xx"}`) },
		} {
			other := later(w, first, keep.WorkflowName(fmt.Sprint("other", i)))
			change(&other)
			w.commit(other.Workflow, setting0(other), putNew(w, other))
		}
		if m, found := must(w)(w.Barring(w.ctx, setting(first), w.now())); found {
			w.Errorf("Barring = %s, want none", m.Key)
		}
		w.commit("first", setting(first), keep.PutMutation{Mutation: first})
	}},
	{"a later call with another subkey, or under another name of the tool, counts", func(w *world) {
		names := []keep.ToolName{"hub.once", "crm.once"}
		for i, change := range []func(*keep.Mutation){
			func(m *keep.Mutation) { m.Subkey = "s" },
			func(m *keep.Mutation) { m.Tool = names[0] },
		} {
			first := unclear(w, keep.WorkflowName(fmt.Sprint("first", i)), fmt.Sprint("x", i))
			second := later(w, first, keep.WorkflowName(fmt.Sprint("second", i)))
			change(&second)
			w.commit(second.Workflow, putNew(w, second))
			s := setting(first)
			s.Tools = names
			if m, found := must(w)(w.Barring(w.ctx, s, w.now())); !found || m.Key != second.Key {
				w.Errorf("Barring = %s, %t, want %s", m.Key, found, second.Key)
			}
			w.refuse(first.Workflow, rivalOf(second.Key), s, keep.PutMutation{Mutation: first})
		}
	}},
	{"an earlier call that was made again since counts", func(w *world) {
		second := equal(w, "second", "x")
		second.PayloadHash, second.State, second.ResolvedBy = "second", keep.Failed, "call"
		w.commit("second", keep.PutMutation{Mutation: second, Moves: historyOf(w, keep.Failed)})
		w.now()
		first := unclear(w, "first", "x")
		if m, found := must(w)(w.Barring(w.ctx, setting(first), w.now())); found {
			w.Errorf("Barring = %s, want none: it failed before", m.Key)
		}
		second.Rev, second.State, second.ResolvedBy, second.Attempts, second.UpdatedAt = 1, keep.InFlight, "", 2, w.now()
		w.commit("second", keep.PutMutation{Mutation: second, Moves: []keep.Move{w.move(keep.Failed, keep.InFlight)}})
		w.refuse("first", rivalOf(second.Key), setting(first), keep.PutMutation{Mutation: first})
	}},
	{"a later call waits while one in doubt is being sent again", func(w *world) {
		first := unclear(w, "first", "x")
		first.CallDeadline = w.now().Add(time.Hour)
		first.NextReconcileAt = first.CallDeadline
		w.commit("first", setting(first), keep.PutMutation{Mutation: first})
		second := later(w, first, "second")
		if m, found := must(w)(w.Barring(w.ctx, setting0(second), w.now())); !found || m.Key != first.Key || setting0(second).IsUndone(m) {
			w.Errorf("Barring = %s, %t, want %s", m.Key, found, first.Key)
		}
		w.refuse("second", rivalOf(first.Key), setting0(second), putNew(w, second))
		first.Rev++
		first.NextReconcileAt = first.CallDeadline.Add(time.Minute) // it was not found
		w.commit("first", keep.PutMutation{Mutation: first})
		w.commit("second", setting0(second), putNew(w, second))
	}},
	{"a call that is made over a later one, as a person said, waits while that is being sent again", func(w *world) {
		first := unclear(w, "first", "x")
		first.CallDeadline = w.now().Add(time.Hour)
		first.NextReconcileAt = first.CallDeadline
		w.commit("first", keep.PutMutation{Mutation: first})
		second := later(w, first, "second")
		s := setting0(second)
		s.Since, s.Except = first.CreatedAt.Add(-time.Second), []keep.MutationKey{first.Key}
		if m, found := must(w)(w.Barring(w.ctx, s, w.now())); !found || m.Key != first.Key || s.IsUndone(m) {
			w.Errorf("Barring = %s, %t, want %s", m.Key, found, first.Key)
		}
		w.refuse("second", rivalOf(first.Key), s, putNew(w, second))
		first.Rev++
		first.NextReconcileAt = first.CallDeadline.Add(time.Minute) // it was not found
		w.commit("first", keep.PutMutation{Mutation: first})
		w.commit("second", s, putNew(w, second))
	}},
	{"a call that sets something is not recorded at an earlier time than one that is in doubt", func(w *world) {
		first := unclear(w, "first", "x")
		second := later(w, first, "second")
		at := first.CreatedAt.Add(-time.Minute)
		err := w.Commit(w.ctx, keep.Commit{Workflow: "second", At: at, Changes: []keep.Change{setting0(second), putNew(w, second)}})
		if !rivalOf(first.Key)(err) {
			w.Errorf("Commit = %v, want it to be refused for %s", err, first.Key)
		}
	}},
	{"a call that sets something is not recorded at an earlier time than one that failed after a doubt", func(w *world) {
		first := unclear(w, "first", "x")
		first.State, first.ResolvedBy, first.Doubted, first.UpdatedAt = keep.Failed, "human", true, w.now()
		w.commit("first", keep.PutMutation{Mutation: first, Moves: []keep.Move{w.move(keep.NeedsReconcile, keep.Failed)}})
		second := later(w, first, "second")
		for _, at := range []time.Time{first.CreatedAt.Add(-time.Minute), w.now()} {
			m, found, err := w.Barring(w.ctx, setting0(second), at)
			if back := at.Before(first.CreatedAt); err != nil || found != back || found && m.Key != first.Key {
				w.Errorf("Barring at %s = %s, %t, %v, want %t", at, m.Key, found, err, back)
			}
		}
		at := first.CreatedAt.Add(-time.Minute)
		err := w.Commit(w.ctx, keep.Commit{Workflow: "second", At: at, Changes: []keep.Change{setting0(second), putNew(w, second)}})
		if !rivalOf(first.Key)(err) {
			w.Errorf("Commit = %v, want it to be refused for %s", err, first.Key)
		}
		w.commit("second", setting0(second), putNew(w, second))
	}},
	{"a call that sets something is not recorded at an earlier time than one that failed, after a doubt, once the clock was set back", func(w *world) {
		first := unclear(w, "first", "x")
		first.State, first.ResolvedBy, first.Doubted, first.UpdatedAt = keep.Failed, "human", true, first.CreatedAt.Add(-time.Hour)
		w.commit("first", keep.PutMutation{Mutation: first, Moves: []keep.Move{w.move(keep.NeedsReconcile, keep.Failed)}})
		second := later(w, first, "second")
		at := first.UpdatedAt.Add(time.Minute)
		if m, found, err := w.Barring(w.ctx, setting0(second), at); err != nil || !found || m.Key != first.Key {
			w.Errorf("Barring = %s, %t, %v, want %s", m.Key, found, err, first.Key)
		}
		err := w.Commit(w.ctx, keep.Commit{Workflow: "second", At: at, Changes: []keep.Change{setting0(second), putNew(w, second)}})
		if !rivalOf(first.Key)(err) {
			w.Errorf("Commit = %v, want it to be refused for %s", err, first.Key)
		}
	}},
	{"of a call that is recorded and one that is sent again at the same moment, one is", func(w *world) {
		for round := range 10 {
			first := unclear(w, keep.WorkflowName(fmt.Sprint("first", round)), fmt.Sprint("round ", round))
			first.CallDeadline = w.now().Add(time.Hour)
			first.NextReconcileAt = first.CallDeadline
			second := later(w, first, keep.WorkflowName(fmt.Sprint("second", round)))
			at := second.CreatedAt
			var wg sync.WaitGroup
			errs := make([]error, 2)
			for i, changes := range [][]keep.Change{{setting(first), keep.PutMutation{Mutation: first}}, {setting0(second), putNew(w, second)}} {
				name := []keep.WorkflowName{first.Workflow, second.Workflow}[i]
				wg.Go(func() { errs[i] = w.Commit(w.ctx, keep.Commit{Workflow: name, At: at, Changes: changes}) })
			}
			wg.Wait()
			refused := errors.Join(errs...)
			if _, ok := errors.AsType[*keep.RivalError](refused); !ok || errs[0] != nil && errs[1] != nil {
				w.Fatalf("%v, want one to be recorded and one to be refused", errs)
			}
		}
	}},
}

// unclear returns a stored record in doubt with that identity, as it is to be written next.
func unclear(w *world, name keep.WorkflowName, id string) keep.Mutation {
	w.Helper()
	m := equal(w, name, id)
	m.CreatedAt, m.PayloadHash, m.State, m.CanReconcile = w.now(), "first", keep.NeedsReconcile, true
	w.commit(name, keep.PutMutation{Mutation: m, Moves: historyOf(w, keep.NeedsReconcile)})
	m.Rev = 1
	return m
}

// later returns a new record of the identity of m, which says something else.
func later(w *world, m keep.Mutation, name keep.WorkflowName) keep.Mutation {
	w.Helper()
	var id struct{ ID string }
	_ = json.Unmarshal(m.Identity, &id)
	other := equal(w, name, id.ID)
	other.Payload, other.PayloadHash = json.RawMessage(`{"id":"x","text":"later"}`), "later"
	other.CreatedAt = w.now()
	other.UpdatedAt = other.CreatedAt
	return other
}

// setting is that of m as it would be sent again.
func setting(m keep.Mutation) keep.Setting {
	s := setting0(m)
	s.Since = m.CreatedAt
	return s
}

// setting0 is that of m as it is recorded for the first time.
func setting0(m keep.Mutation) keep.Setting {
	return keep.Setting{Key: m.Key, Tools: []keep.ToolName{m.Tool}, Identity: m.Identity, PayloadHash: m.PayloadHash}
}

// equal returns a new record in flight with that identity, of a run of the workflow.
func equal(w *world, name keep.WorkflowName, id string) keep.Mutation {
	w.Helper()
	m := w.newMutation(w.start(name, "t"))
	m.Tool, m.Identity = "crm.once", json.RawMessage(fmt.Sprintf(`{"id":%q}`, id))
	return m
}

func unlike(m keep.Mutation) keep.Unlike {
	return keep.Unlike{Key: m.Key, Tools: []keep.ToolName{m.Tool}, Identity: m.Identity, Subkey: m.Subkey}
}

func putNew(w *world, m keep.Mutation) keep.Change {
	return keep.PutMutation{Mutation: m, Moves: []keep.Move{w.move("", keep.InFlight)}}
}

// historyOf returns moves that lead to a state.
func historyOf(w *world, s keep.MutationState) []keep.Move {
	moves := []keep.Move{w.move("", keep.InFlight)}
	switch s {
	case keep.InFlight:
		return moves
	case keep.Skipped:
		moves = append(moves, w.move(keep.InFlight, keep.Indeterminate))
		return append(moves, w.move(keep.Indeterminate, s))
	}
	return append(moves, w.move(keep.InFlight, s))
}

func rivalOf(key keep.MutationKey) func(error) bool {
	return func(err error) bool {
		r, ok := errors.AsType[*keep.RivalError](err)
		return ok && r.Rival == key && errors.Is(err, keep.ErrStale)
	}
}

func must(w *world) func(keep.Mutation, bool, error) (keep.Mutation, bool) {
	return func(m keep.Mutation, found bool, err error) (keep.Mutation, bool) {
		w.Helper()
		if err != nil {
			w.Fatal(err)
		}
		return m, found
	}
}

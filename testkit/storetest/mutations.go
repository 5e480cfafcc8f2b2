package storetest

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/keep-run/keep"
)

var mutationPromises = []promise{
	{"a mutation is read back as it was written, to the byte", func(w *world) {
		r, _ := w.call("w")
		w.commit("w", keep.PutItem{Item: keep.Item{Workflow: "w", ID: odd, Status: keep.ItemProcessing, Attempt: 7}})
		job := jobRun(w, "jobs")
		m := fullMutation(w, job)
		w.commit("jobs",
			keep.PutItem{Item: keep.Item{Workflow: "jobs", ID: m.Item, Status: keep.ItemProcessing, Attempt: m.Attempt}},
			keep.PutMutation{Mutation: m, Moves: []keep.Move{w.move("", keep.InFlight), w.move(keep.InFlight, keep.Failed),
				w.move(keep.Failed, keep.InFlight), w.move(keep.InFlight, keep.Applied)}})
		m.Rev = 1
		m.NextReconcileAt, m.CallDeadline = kept(m.NextReconcileAt), kept(m.CallDeadline)
		m.CreatedAt, m.UpdatedAt, m.SpentAt = kept(m.CreatedAt), kept(m.UpdatedAt), kept(m.SpentAt)
		w.same("Mutation", get[keep.Mutation](w)(w.Mutation(w.ctx, m.Key)), m)
		w.same("Mutations", page[keep.Mutation](w)(w.Mutations(w.ctx, keep.MutationFilter{Run: job.ID}, keep.Page{})), []keep.Mutation{m})
		if r.Workflow == job.Workflow {
			w.Error("the other workflow is there to be left out")
		}
	}},
	{"an update of a mutation replaces everything that may change", func(w *world) {
		job := jobRun(w, "w")
		m := w.newMutation(job)
		full := fullMutation(w, job)
		m.Key, m.Tool, m.Item, m.Attempt = full.Key, full.Tool, full.Item, full.Attempt
		w.commit("w",
			keep.PutItem{Item: keep.Item{Workflow: "w", ID: m.Item, Status: keep.ItemProcessing, Attempt: m.Attempt}},
			keep.PutMutation{Mutation: m, Moves: []keep.Move{w.move("", keep.InFlight)}})
		full.Rev, full.Attempts = 1, 1
		w.commit("w", keep.PutMutation{Mutation: full, Moves: []keep.Move{w.move(keep.InFlight, keep.Applied)}})
		full.Rev = 2
		full.NextReconcileAt, full.CallDeadline = kept(full.NextReconcileAt), kept(full.CallDeadline)
		full.CreatedAt, full.UpdatedAt, full.SpentAt = kept(full.CreatedAt), kept(full.UpdatedAt), kept(full.SpentAt)
		w.same("Mutation", get[keep.Mutation](w)(w.Mutation(w.ctx, m.Key)), full)
	}},
	{"the results after a mutation are those of its workflow that were applied later, oldest first", func(w *world) {
		job, other := jobRun(w, "w"), jobRun(w, "other")
		revs := make(map[keep.WorkflowName]int)
		put := func(r keep.Run, key string, state keep.MutationState, result string) {
			m := w.newMutation(r)
			m.Key, m.Item, m.Attempt, m.State, m.PayloadHash = keep.MutationKey(key), "i", 1, state, "hash of "+key
			if state == keep.Applied {
				m.ResolvedBy = "call"
			}
			if result != "" {
				m.Result = json.RawMessage(result)
			}
			moves := []keep.Move{w.move("", keep.InFlight)}
			if state != keep.InFlight {
				moves = append(moves, w.move(keep.InFlight, state))
			}
			it := keep.Item{Workflow: r.Workflow, ID: m.Item, Status: keep.ItemProcessing, Attempt: m.Attempt, Rev: revs[r.Workflow]}
			w.commit(r.Workflow, keep.PutItem{Item: it}, keep.PutMutation{Mutation: m, Moves: moves})
			revs[r.Workflow]++
		}
		put(job, "d", keep.Applied, `"d"`)
		put(job, "c", keep.Applied, "")
		put(job, "e", keep.Failed, "")
		put(other, "x", keep.Applied, `1`)
		put(job, "a", keep.Applied, `"0123456789"`)
		put(job, "f", keep.InFlight, "")
		put(job, "b", keep.Applied, `"b"`)
		for _, tt := range []struct {
			after       keep.MutationKey
			limit, size int
			want        string
		}{
			{"d", 10, 100, `c= a="0123456789" b="b" `}, {"d", 10, 12, `c= a="0123456789" b="b" `}, {"d", 10, 11, `c= b="b" `},
			{"a", 10, 100, `b="b" `}, {"d", 1, 100, `c= `}, {"d", 0, 100, ""}, {"b", 10, 100, ""}, {"unknown", 10, 100, ""}, {"x", 10, 100, ""},
		} {
			got := ""
			for _, r := range get[[]keep.StoredResult](w)(w.ResultsAfter(w.ctx, "w", tt.after, tt.limit, tt.size)) {
				got += string(r.Key) + "=" + string(r.Result) + " "
				w.same("hash", r.PayloadHash, "hash of "+string(r.Key))
			}
			w.same(fmt.Sprintf("ResultsAfter(%s, %d, %d)", tt.after, tt.limit, tt.size), got, tt.want)
		}
	}},
	{"the calls in doubt of the items of a workflow are those that nobody knows, to be asked about first, the newest first", func(w *world) {
		revs := make(map[keep.WorkflowName]int)
		put := func(r keep.Run, key, item string, states ...keep.MutationState) {
			m := w.newMutation(r)
			m.Key, m.Item, m.Attempt, m.State = keep.MutationKey(key), item, min(len(item), 1), states[len(states)-1]
			if m.State == keep.Applied {
				m.ResolvedBy = "call"
			}
			moves := []keep.Move{w.move("", states[0])}
			for i, to := range states[1:] {
				moves = append(moves, w.move(states[i], to))
			}
			var changes []keep.Change
			if item != "" {
				it := keep.Item{Workflow: r.Workflow, ID: item, Status: keep.ItemProcessing, Attempt: 1, Rev: revs[r.Workflow]}
				changes = append(changes, keep.PutItem{Item: it})
				revs[r.Workflow]++
			}
			changes = append(changes, keep.PutMutation{Mutation: m, Moves: moves})
			if m.State == keep.Indeterminate {
				changes = append(changes, keep.OpenEscalation{Escalation: keep.Escalation{ID: keep.EscalationID("esc_" + m.Key),
					Kind: keep.AskUnknownOutcome, Workflow: r.Workflow, Run: r.ID, Mutation: m.Key, Item: m.Item}})
			}
			w.commit(r.Workflow, changes...)
		}
		job, other := jobRun(w, "w"), jobRun(w, "other")
		w.same("none", get[[]keep.Mutation](w)(w.ItemDoubts(w.ctx, "w")), []keep.Mutation(nil))
		put(job, "asked", "i", keep.InFlight, keep.NeedsReconcile, keep.Indeterminate)
		put(job, "first", "i", keep.InFlight, keep.NeedsReconcile)
		put(job, "out", "i", keep.InFlight)
		put(other, "elsewhere", "i", keep.InFlight, keep.NeedsReconcile)
		put(job, "known", "i", keep.InFlight, keep.NeedsReconcile, keep.Applied)
		put(job, "in no item", "", keep.InFlight, keep.NeedsReconcile)
		put(job, "second", "i", keep.InFlight, keep.NeedsReconcile)
		put(job, "asked later", "i", keep.InFlight, keep.NeedsReconcile, keep.Indeterminate)
		var keys []keep.MutationKey
		for _, m := range get[[]keep.Mutation](w)(w.ItemDoubts(w.ctx, "w")) {
			keys = append(keys, m.Key)
			w.same("whole", m, get[keep.Mutation](w)(w.Mutation(w.ctx, m.Key)))
		}
		w.same("ItemDoubts", keys, []keep.MutationKey{"second", "first", "asked later", "asked"})
		settled := get[keep.Mutation](w)(w.Mutation(w.ctx, "first"))
		settled.State = keep.Failed
		w.commit("w", keep.PutMutation{Mutation: settled, Moves: []keep.Move{w.move(keep.NeedsReconcile, keep.Failed)}})
		w.same("one less", len(get[[]keep.Mutation](w)(w.ItemDoubts(w.ctx, "w"))), 3)
		w.same("of another one", len(get[[]keep.Mutation](w)(w.ItemDoubts(w.ctx, "other"))), 1)
		w.same("of nobody", get[[]keep.Mutation](w)(w.ItemDoubts(w.ctx, "nobody")), []keep.Mutation(nil))
	}},
	{"a ledger key is used once", func(w *world) {
		r, m := w.call("w")
		again := m
		again.Rev = 0
		w.refuse("w", is(keep.ErrMutationExists), keep.PutMutation{Mutation: again})
		settle(w, &r, &m)
		w.refuse("w", is(keep.ErrMutationExists), keep.PutMutation{Mutation: again})
		other := w.newMutation(w.start("other", "t"))
		other.Key = m.Key
		w.refuse("other", is(keep.ErrMutationExists), keep.PutMutation{Mutation: other})
	}},
	{"a mutation is moved only from the revision that was read", func(w *world) {
		r, m := w.call("w")
		stale := m
		settle(w, &r, &m)
		stale.State = keep.Failed
		w.refuse("w", is(keep.ErrStale), keep.PutMutation{Mutation: stale, Moves: []keep.Move{w.move(keep.InFlight, keep.Failed)}})
		stale.Key, stale.Rev = "unknown", 2
		w.refuse("w", is(keep.ErrStale), keep.PutMutation{Mutation: stale})
	}},
	{"history is appended in order and never rewritten", func(w *world) {
		r, m := w.call("w")
		first := get[[]keep.Move](w)(w.History(w.ctx, m.Key))
		w.same("first", first, []keep.Move{{At: w.at.Add(-time.Second), By: "call", To: keep.InFlight, Evidence: "seen"}})
		doubt := keep.Move{At: oddTime, By: odd, From: keep.InFlight, To: keep.NeedsReconcile, Evidence: odd, Detail: odd}
		ask := w.move(keep.NeedsReconcile, keep.NeedsReconcile)
		m.State = keep.NeedsReconcile
		w.commit("w", keep.PutMutation{Mutation: m, Moves: []keep.Move{doubt, ask}})
		m.Rev = 2
		w.commit("w", keep.PutMutation{Mutation: m})
		m.Rev = 3
		m.State = keep.Failed
		last := w.move(keep.NeedsReconcile, keep.Failed)
		w.commit("w", keep.PutMutation{Mutation: m, Moves: []keep.Move{last}})
		doubt.At = kept(doubt.At)
		w.same("History", get[[]keep.Move](w)(w.History(w.ctx, m.Key)), append(first, doubt, ask, last))
		w.same("History of nothing", get[[]keep.Move](w)(w.History(w.ctx, "unknown")), []keep.Move(nil))
		r.Status, r.Closed = keep.StatusAborted, true
		w.commit("w", keep.PutRun{Run: r})
	}},
	{"a retry takes its record over", func(w *world) {
		r, m := w.call("w")
		retry := w.newRun("w")
		retry.Chain, retry.RetryOf, retry.Phase, retry.Mutation = r.Chain, r.ID, keep.Mutating, m.Key
		r.Status, r.Closed = keep.StatusCrashed, true
		m.Run = retry.ID
		w.commit("w", keep.PutRun{Run: r}, keep.PutRun{Run: retry}, keep.PutMutation{Mutation: m})
		if got := get[keep.Mutation](w)(w.Mutation(w.ctx, m.Key)); got.Run != retry.ID || got.Rev != 2 {
			w.Errorf("run %s, rev %d, want %s, 2", got.Run, got.Rev, retry.ID)
		}
		w.same("of the first run", page[keep.Mutation](w)(w.Mutations(w.ctx, keep.MutationFilter{Run: r.ID}, keep.Page{})), []keep.Mutation(nil))
	}},
	{"what a mutation is never changes", func(w *world) {
		_, m := w.call("w")
		for _, change := range []func(*keep.Mutation){
			func(m *keep.Mutation) { m.Tool = "crm.delete" },
			func(m *keep.Mutation) { m.Item, m.Attempt = "i", 1 },
		} {
			other := m
			change(&other)
			w.refuse("w", invalid, keep.PutMutation{Mutation: other})
		}
		w.refuse("other", invalid, keep.PutMutation{Mutation: m})
	}},
	{"a mutation that no history could lead to is refused", func(w *world) {
		r := w.start("w", "t")
		for _, change := range []func(*keep.Mutation){
			func(m *keep.Mutation) { m.Key = "" },
			func(m *keep.Mutation) { m.State = "perhaps" },
			func(m *keep.Mutation) { m.Level = "E" },
			func(m *keep.Mutation) { m.Result = json.RawMessage(`1`) },
			func(m *keep.Mutation) { m.State = keep.Applied },
			func(m *keep.Mutation) { m.Attempts = 0 },
			func(m *keep.Mutation) { m.Token = "" },
			func(m *keep.Mutation) { m.CallDeadline = time.Time{} },
			func(m *keep.Mutation) { m.Item = "i" },
			func(m *keep.Mutation) { m.Attempt = 1 },
			func(m *keep.Mutation) { m.ReconcileAttempts = -1 },
		} {
			m := w.newMutation(r)
			change(&m)
			w.refuse("w", invalid, keep.PutMutation{Mutation: m})
		}
	}},
	{"a mutation that does not exist is not found", func(w *world) {
		_, err := w.Mutation(w.ctx, "unknown")
		w.fails("Mutation", err, notFound("mutation", "unknown"))
	}},
}

// settle records that a call had its effect, and commits its run.
func settle(w *world, r *keep.Run, m *keep.Mutation) {
	w.Helper()
	m.State, m.ResolvedBy, m.Result = keep.Applied, "call", json.RawMessage(`{"id":1}`)
	*r = done(*r)
	w.commit(r.Workflow, keep.PutMutation{Mutation: *m, Moves: []keep.Move{w.move(keep.InFlight, keep.Applied)}}, keep.PutRun{Run: *r})
	m.Rev++
	r.Rev++
}

// jobRun stores an open run of a job.
func jobRun(w *world, name keep.WorkflowName) keep.Run {
	w.Helper()
	r := w.newRun(name)
	r.Handler, r.Kind, r.Phase = "work", keep.Job, keep.Running
	w.commit(name, keep.PutRun{Run: r})
	r.Rev = 1
	return r
}

// fullMutation returns an applied record with every field set.
func fullMutation(w *world, r keep.Run) keep.Mutation {
	return keep.Mutation{
		Key: keep.MutationKey(w.id("key")), Workflow: r.Workflow, Run: r.ID, Item: odd, Attempt: 7,
		Tool: "sheet.append", Connector: "sheets", Level: keep.LevelClaim, Target: odd,
		Identity: json.RawMessage(`{"a":[1,2.50,"é"]}`), Subkey: odd, Payload: json.RawMessage(` {"text":"` + "🧾" + `"}`),
		PayloadHash: "00ff", Pin: json.RawMessage(`{"base_url":"x"}`), PinHash: "01", Doubted: true, SpentAt: oddTime,
		Spent: []keep.Spent{{Budget: "money", Amount: 1<<53 + 1, Limit: keep.MaxAmount, Per: 24 * time.Hour, Allowed: true, Was: []string{"Geldbörse \"1\"", "purse"}}, {Budget: "calls"}},
		Token: odd, Title: odd, State: keep.Applied, Result: json.RawMessage(`null`), Warning: odd,
		Error:    &keep.Failure{Class: keep.ClassTransient, Code: "c", Message: odd, Account: odd, Generation: 1 << 40, RetryAfter: time.Minute},
		Attempts: 2, ReconcileAttempts: 3, NextReconcileAt: oddTime, CallDeadline: oddTime.Add(time.Minute),
		SettleAfter: 1500*time.Millisecond + time.Nanosecond, CanReconcile: true, ResolvedBy: "reconcile",
		CreatedAt: oddTime, UpdatedAt: oddTime.Add(time.Hour),
	}
}

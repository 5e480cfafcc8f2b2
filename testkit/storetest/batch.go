package storetest

import (
	"maps"
	"slices"

	"github.com/keep-run/keep"
)

// sameAtOnce compares what is read of several things at once with what is read of
// each.
func (w *world) sameAtOnce(inputs []keep.InputID, keys []keep.MutationKey) {
	w.Helper()
	w.sameInputs(inputs)
	w.sameCalls(keys)
}

// sameInputs compares what is read of several inputs at once.
func (w *world) sameInputs(inputs []keep.InputID) {
	w.Helper()
	newest := keep.Page{Limit: 1, Bare: true}
	progress := make(map[keep.InputID]keep.Progress)
	var known []keep.InputID
	for _, id := range inputs {
		if _, err := w.Input(w.ctx, id); err != nil {
			continue
		}
		known = append(known, id)
		p := keep.Progress{Total: len(get[[]keep.MutationKey](w)(w.Outputs(w.ctx, id)))}
		p.Events, _, _ = w.Events(w.ctx, keep.EventFilter{Input: id}, newest)
		p.Outputs, _, _ = w.Mutations(w.ctx, keep.MutationFilter{Input: id}, newest)
		if len(p.Events) != 1 || len(p.Outputs) != 1 {
			w.Errorf("of %s: %d events, %d outputs, want one of each", id, len(p.Events), len(p.Outputs))
		}
		progress[id] = p
	}
	twice := slices.Concat(inputs, inputs)
	w.same("Progress", get[map[keep.InputID]keep.Progress](w)(w.Progress(w.ctx, inputs, 1, 1)), progress)
	w.same("Progress, named twice", get[map[keep.InputID]keep.Progress](w)(w.Progress(w.ctx, twice, 1, 1)), progress)
	for id, p := range progress {
		progress[id] = keep.Progress{Total: p.Total}
	}
	w.same("totals", get[map[keep.InputID]keep.Progress](w)(w.Progress(w.ctx, inputs, 0, 0)), progress)
	for _, id := range known {
		var want []keep.Run
		for _, r := range page[keep.Run](w)(w.Runs(w.ctx, keep.RunFilter{}, keep.Page{Bare: true})) {
			if slices.Contains(get[[]keep.InputID](w)(w.Causes(w.ctx, r.Chain)), id) {
				want = append(want, r)
			}
		}
		w.same("RunsOf", get[[]keep.Run](w)(w.RunsOf(w.ctx, id, 10)), want)
	}
	var found []keep.InputID
	for _, in := range get[[]keep.Input](w)(w.InputsByID(w.ctx, twice)) {
		w.same("InputsByID", in, get[keep.Input](w)(w.Input(w.ctx, in.ID)))
		found = append(found, in.ID)
	}
	slices.Sort(found)
	w.same("ids", found, slices.Sorted(slices.Values(known)))
}

// sameCalls compares what is read of several records, runs and chains at once.
func (w *world) sameCalls(keys []keep.MutationKey) {
	w.Helper()
	all := page[keep.Mutation](w)(w.Mutations(w.ctx, keep.MutationFilter{}, keep.Page{Bare: true}))
	got := get[[]keep.Mutation](w)(w.MutationsByKey(w.ctx, append(slices.Clone(keys), "none")))
	byKey := make(map[keep.MutationKey]keep.Mutation)
	for _, m := range got {
		byKey[m.Key] = m
	}
	moves := make(map[keep.MutationKey][]keep.Move)
	chains := make(map[keep.RunID]int)
	causes := make(map[keep.RunID][]keep.InputID)
	for _, m := range all {
		if slices.Contains(keys, m.Key) {
			w.same("MutationsByKey", byKey[m.Key], m)
			moves[m.Key] = get[[]keep.Move](w)(w.History(w.ctx, m.Key))
		}
	}
	w.same("as many", len(got), len(keys))
	twice := slices.Concat(keys, keys)
	w.same("MutationsByKey, named twice", len(get[[]keep.Mutation](w)(w.MutationsByKey(w.ctx, twice))), len(keys))
	w.same("Histories, named twice", get[map[keep.MutationKey][]keep.Move](w)(w.Histories(w.ctx, twice)), moves)
	w.same("Histories", get[map[keep.MutationKey][]keep.Move](w)(w.Histories(w.ctx, append(slices.Clone(keys), "none"))), moves)
	for _, r := range page[keep.Run](w)(w.Runs(w.ctx, keep.RunFilter{}, keep.Page{})) {
		chains[r.Chain]++
		w.same("RunsByID", get[[]keep.Run](w)(w.RunsByID(w.ctx, []keep.RunID{"run_0", r.ID, r.ID})), []keep.Run{r})
		if ids := get[[]keep.InputID](w)(w.Causes(w.ctx, r.Chain)); len(ids) > 0 {
			causes[r.Chain] = ids
		}
		var calls []keep.Mutation
		for _, m := range all {
			if run := get[keep.Run](w)(w.Run(w.ctx, m.Run)); run.Chain == r.Chain {
				calls = append(calls, m)
			}
		}
		w.same("Calls", get[[]keep.Mutation](w)(w.Calls(w.ctx, r.Chain, 10)), calls)
	}
	names := append(slices.Sorted(maps.Keys(chains)), "run_0")
	w.same("Attempts", get[map[keep.RunID]int](w)(w.Attempts(w.ctx, names)), chains)
	w.same("CausesOf", get[map[keep.RunID][]keep.InputID](w)(w.CausesOf(w.ctx, names)), causes)
}

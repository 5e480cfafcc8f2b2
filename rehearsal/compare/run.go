package compare

import (
	"bytes"
	"context"
	"encoding/json"
	"slices"
	"strings"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/law/ledger"
	"github.com/keep-run/keep/rehearsal/replay"
)

// A comparer goes through the runs of one version.
type comparer struct {
	cfg     Config
	replays *replay.Replayer
}

// takes reports whether a run is one of those that are compared. An attempt that another one
// took over is compared with that one. One at a job is compared by itself if it made a call: the items that it
// has done are passed over by the attempts after it.
func (c *comparer) takes(ctx context.Context, r keep.Run) (bool, error) {
	switch {
	case r.Version != c.cfg.From:
		return false, nil
	case r.Status == keep.StatusCommitted || !r.Closed:
		return true, nil
	case r.Kind != keep.Job:
		return false, nil
	}
	made, err := c.calls(ctx, r)
	return len(made) > 0, err
}

// compare compares one run. bare is as a bare page has it.
func (c *comparer) compare(ctx context.Context, bare keep.Run) (Run, error) {
	run, err := c.cfg.Store.Run(ctx, bare.ID)
	if err != nil {
		return Run{}, err
	}
	out := Run{Run: run.ID, Handler: run.Handler, At: run.CreatedAt, Before: []Effect{}, After: []Effect{}}
	found, err := c.chain(ctx, run)
	if err != nil {
		return Run{}, err
	}
	out.Why = strings.Join(found.why, "; ")
	out.Change = ChangeOf(found.differences, len(found.why) == 0)
	if found.twice {
		out.Change, out.Why = Inconclusive, "two replays of it differ: what the script does depends on something that is not recorded"
	}
	live, err := c.calls(ctx, run)
	if err != nil {
		return Run{}, err
	}
	out.Done = run.Status == keep.StatusCommitted || len(live) > 0 && (run.Kind == keep.Consumer || run.Closed || out.Change != Inconclusive)
	differs := out.Change != Same && out.Change != Inconclusive
	if differs {
		out.show(found.differences)
		made := live
		if len(made) == 0 {
			if made, err = replay.Unmade(ctx, c.cfg.Store, run); err != nil {
				return Run{}, err
			}
		}
		out.mutations = c.mutations(run, made, found.differences)
	}
	return out, c.inputs(ctx, run, found.differences, differs, &out)
}

// found is what the attempts of one chain show together.
type found struct {
	differences []replay.Difference
	why         []string // what is not known
	twice       bool     // two replays differed
}

// maxAttempts is how many attempts of one chain are gone through.
const maxAttempts = 50

// chain goes through a run and, from it back, through the attempts before that executed what
// it did not.
func (c *comparer) chain(ctx context.Context, run keep.Run) (found, error) {
	var f found
	covered := make(map[string]bool)
	attempts, err := c.attempts(ctx, run)
	if err != nil {
		return f, err
	}
	for n, id := range attempts {
		if c.whole(run, covered) {
			break
		}
		r, err := c.twice(ctx, id)
		if err != nil {
			return f, err
		}
		if r == nil {
			f.twice = true
			return f, nil
		}
		f.add(r, covered, n > 0)
	}
	if len(f.why) == 0 && len(f.differences) == 0 && !c.whole(run, covered) {
		f.why = append(f.why, "not every phase of it is recorded")
	}
	return f, nil
}

// attempts returns the run and the attempts of its chain before it, the newest first.
func (c *comparer) attempts(ctx context.Context, run keep.Run) ([]keep.RunID, error) {
	all := []keep.RunID{run.ID}
	if run.Kind != keep.Consumer || run.Chain == run.ID {
		return all, nil // each attempt at a job or a producer begins anew
	}
	list, _, err := c.cfg.Store.Runs(ctx, keep.RunFilter{Workflow: run.Workflow, Chain: run.Chain}, keep.Page{Limit: maxAttempts, Bare: true})
	for i, r := range list {
		if r.ID == run.ID {
			for _, before := range list[i+1:] {
				all = append(all, before.ID)
			}
		}
	}
	return all, err
}

// add takes over what a replay of an attempt found in phases that no later attempt covered.
func (f *found) add(r *replay.Report, covered map[string]bool, earlier bool) {
	for _, d := range r.Differences {
		if covered[d.Phase] {
			continue
		}
		f.differences = append(f.differences, d)
		if earlier && d.What == replay.Data {
			// What followed in the later attempt was gone through with what the run had prepared.
			f.why = append(f.why, "a later attempt began with what an earlier one had prepared, which would have been otherwise")
		}
	}
	open := make(map[string]bool)
	for _, m := range r.Missing {
		open[m.Phase] = true
		if covered[m.Phase] || earlier && m.Phase == "" {
			continue
		}
		f.why = append(f.why, strings.TrimPrefix(strings.TrimSpace(m.Phase+" "+m.Tool)+": "+m.Why, ": "))
	}
	for _, p := range r.Phases {
		covered[p] = covered[p] || !open[p]
	}
}

// whole reports whether every phase that a run of the other version goes through is covered.
func (c *comparer) whole(run keep.Run, covered map[string]bool) bool {
	if run.Kind != keep.Consumer {
		return covered["handler"]
	}
	h, _ := c.cfg.Definition.Handler(run.Handler)
	committed := run.Status == keep.StatusCommitted
	return covered["prepare"] &&
		(covered["mutate"] || !h.HasMutate || len(run.Reservations) == 0 || !committed && run.Mutation == "") &&
		(covered["next"] || !h.HasNext || !committed)
}

// twice goes through a run two times; nil: they differ.
func (c *comparer) twice(ctx context.Context, id keep.RunID) (*replay.Report, error) {
	first, err := c.replays.Run(ctx, id)
	if err != nil {
		return nil, err
	}
	second, err := c.replays.Run(ctx, id)
	if err != nil {
		return nil, err
	}
	a, err := json.Marshal(first)
	if err != nil {
		return nil, err
	}
	b, err := json.Marshal(second)
	if err != nil || !bytes.Equal(a, b) {
		return nil, err
	}
	return first, nil
}

// Bounds of what is shown.
const (
	maxValue = 4 << 10 // of one value
	maxRun   = 20      // differences of one run
	maxShown = 8 << 20 // of all runs
)

// show takes the differences over as what was and what would have been.
func (r *Run) show(all []replay.Difference) {
	for _, d := range all {
		if !harmless(d) {
			r.whats, r.phases = appendNamed(r.whats, d.What), appendNamed(r.phases, d.Phase)
		}
	}
	for _, d := range all[:min(len(all), maxRun)] {
		if harmless(d) {
			continue
		}
		if !isNull(d.Recorded) || isNull(d.Now) {
			r.Before = append(r.Before, Effect{d.Phase, d.What, shown(d.Recorded)})
		}
		if !isNull(d.Now) || isNull(d.Recorded) {
			r.After = append(r.After, Effect{d.Phase, d.What, shown(d.Now)})
		}
	}
}

func appendNamed[T comparable](list []T, name T) []T {
	if slices.Contains(list, name) {
		return list
	}
	return append(list, name)
}

// shown returns a value as a report has it: one that is too large as its size.
func shown(v json.RawMessage) json.RawMessage {
	if len(v) > maxValue {
		return tooLarge(len(v))
	}
	if len(v) == 0 {
		return json.RawMessage("null")
	}
	return v
}

func tooLarge(n int) json.RawMessage {
	b, _ := json.Marshal(struct { // it has an int
		Bytes int `json:"bytes_not_shown"`
	}{n})
	return b
}

// cut returns how much r shows, and leaves its values out if that is more than there is room for.
func (r *Run) cut(room int) int {
	n := 0
	for _, list := range [][]Effect{r.Before, r.After} {
		for i := range list {
			if n+len(list[i].Value) > room {
				list[i].Value = tooLarge(len(list[i].Value))
				continue
			}
			n += len(list[i].Value)
		}
	}
	return n
}

// maxCalls is how many calls of one run are looked at.
const maxCalls = 1000

// OtherKey reports whether the run would have had another order key, so that other events would wait for it.
func (r Run) OtherKey() bool { return slices.Contains(r.whats, replay.OrderKey) }

// OnlyIn reports whether all in which the run differs, also what is not shown, is in a phase.
func (r Run) OnlyIn(phase string) bool {
	return !slices.ContainsFunc(r.phases, func(p string) bool { return p != phase })
}

// calls returns the calls of a run that happened, or may have.
func (c *comparer) calls(ctx context.Context, run keep.Run) ([]keep.Mutation, error) {
	if run.Kind == keep.Producer {
		return nil, nil
	}
	if run.Kind == keep.Consumer {
		if run.Mutation == "" {
			return nil, nil
		}
		m, err := c.cfg.Store.Mutation(ctx, run.Mutation)
		if isNotFound(err) {
			return nil, nil
		}
		return []keep.Mutation{m}, err
	}
	list, _, err := c.cfg.Store.Mutations(ctx, keep.MutationFilter{Workflow: run.Workflow, Run: run.ID}, keep.Page{Limit: maxCalls})
	return slices.DeleteFunc(list, func(m keep.Mutation) bool { return !ledger.MayHaveHappened(m.State) }), err
}

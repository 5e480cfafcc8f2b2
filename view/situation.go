package view

import (
	"cmp"
	"context"
	"slices"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/law/lifecycle"
	"github.com/keep-run/keep/store"
)

// A Store is what views read. It composes the interfaces of package store, and is wide
// because a situation is made of every noun that can wait.
type Store interface {
	store.Workflows
	store.Runs
	store.Chains
	store.Topics
	store.Mutations
	store.Escalations
	store.Waiting
	store.Notices
	store.Batches
	store.Limits
	store.RepairRecords
	store.Proposals
}

// MaxQuestions bounds the open questions that a view lists. There may be more: they are counted, and grouped by what they
// are about, in the store.
const MaxQuestions = 1000

// A Run is an open run, with what it waits for (law: explained).
type Run struct {
	keep.Run
	Call     keep.Mutation    // its mutation, without payloads; zero: none
	Attempt  int              // of its chain, from 1
	Before   *keep.Failure    // why the attempt before ended; nil: it did not fail, or the run itself has an error
	Question *keep.Escalation // the open question about it, or about what it shares with other runs; nil: none
	Wait     lifecycle.Wait
}

// Fails reports whether the run has stopped: it has an error, or is not executed.
func (r *Run) Fails() bool {
	return r.Status != keep.StatusActive || r.Error != nil && !lifecycle.Limited(r.Run)
}

// A Situation is what is under way.
type Situation struct {
	Paused map[keep.WorkflowName]bool
	Runs   map[keep.WorkflowName][]*Run // oldest first; without lanes at most one (law: one-at-a-time)
}

// ReadSituation reads what is under way in a workflow: the newest open runs, up to limit.
func ReadSituation(ctx context.Context, s Store, w keep.WorkflowName, limit int) (*Situation, error) {
	all, err := s.Workflows(ctx)
	if err != nil {
		return nil, err
	}
	open, _, err := s.Runs(ctx, keep.RunFilter{Workflow: w, Open: true}, keep.Page{Limit: limit, Bare: true})
	if err != nil {
		return nil, err
	}
	return situation(ctx, s, all, open)
}

// ReadSituations reads what is under way in all workflows. Of runs of consumers that hold up an order key, or nobody, and that
// stopped for one reason there may be many: of these it has one, about which the newest question is.
func ReadSituations(ctx context.Context, s Store) (*Situation, error) {
	all, err := s.Workflows(ctx)
	if err != nil {
		return nil, err
	}
	st, _, _, err := situations(ctx, s, all)
	return st, err
}

// situations is ReadSituations for workflows that were read. It returns the groups of open questions, too, and
// the newest question of each.
func situations(ctx context.Context, s Store, all []keep.Workflow) (*Situation, []keep.QuestionGroup, []keep.Escalation, error) {
	open, err := s.Unasked(ctx, keep.MaxPage)
	if err != nil {
		return nil, nil, nil, err
	}
	groups, err := s.QuestionGroups(ctx, MaxGroups)
	if err != nil {
		return nil, nil, nil, err
	}
	newest := make([]keep.EscalationID, 0, len(groups))
	for _, g := range groups {
		newest = append(newest, g.Newest)
	}
	asked, err := s.QuestionsByID(ctx, newest)
	if err != nil {
		return nil, nil, nil, err
	}
	have := make(map[keep.RunID]bool, len(open))
	for _, r := range open {
		have[r.ID] = true
	}
	var ids []keep.RunID
	for _, q := range asked {
		if q.Run != "" && !have[q.Run] {
			have[q.Run], ids = true, append(ids, q.Run)
		}
	}
	var runs []keep.Run
	if len(ids) > 0 {
		if runs, err = s.RunsByID(ctx, ids); err != nil {
			return nil, nil, nil, err
		}
	}
	for _, r := range runs {
		if !r.Closed {
			open = append(open, r)
		}
	}
	st, err := situation(ctx, s, all, open)
	return st, groups, asked, err
}

// situation is the situation of workflows and open runs that were read.
func situation(ctx context.Context, s Store, all []keep.Workflow, open []keep.Run) (*Situation, error) {
	st := &Situation{Paused: make(map[keep.WorkflowName]bool), Runs: make(map[keep.WorkflowName][]*Run)}
	for _, v := range all {
		st.Paused[v.Name] = v.Paused
	}
	runs, err := Explain(ctx, s, open)
	for _, r := range runs {
		st.Runs[r.Workflow] = append(st.Runs[r.Workflow], r)
	}
	for _, of := range st.Runs {
		slices.SortFunc(of, func(a, b *Run) int { return cmp.Compare(a.ID, b.ID) })
	}
	return st, err
}

// First returns the run of a workflow that matters most: one for which the workflow
// waits, else one that a person is asked about, else the oldest; nil: none is open.
func First(runs []*Run) *Run {
	for _, matters := range []func(*Run) bool{
		func(r *Run) bool { return r.Lane == keep.WorkflowLane },
		func(r *Run) bool { return r.Question != nil },
	} {
		if i := slices.IndexFunc(runs, matters); i >= 0 {
			return runs[i]
		}
	}
	if len(runs) > 0 {
		return runs[0]
	}
	return nil
}

// Explain returns what open runs wait for, and the open question about each.
func Explain(ctx context.Context, s Store, open []keep.Run) ([]*Run, error) {
	calls, chains, before := make(map[keep.MutationKey]keep.Mutation), []keep.RunID(nil), []keep.RunID(nil)
	var keys []keep.MutationKey
	for _, r := range open {
		if r.Mutation != "" {
			keys = append(keys, r.Mutation)
		}
		if r.RetryOf == "" {
			continue
		}
		if chains = append(chains, r.Chain); r.Error == nil {
			before = append(before, r.RetryOf)
		}
	}
	if len(keys) > 0 {
		list, err := s.MutationsByKey(ctx, keys)
		if err != nil {
			return nil, err
		}
		for _, m := range list {
			calls[m.Key] = m
		}
	}
	attempts, failures, err := history(ctx, s, chains, before)
	if err != nil {
		return nil, err
	}
	waits, err := ReadWaits(ctx, s, open...)
	if err != nil {
		return nil, err
	}
	out := make([]*Run, 0, len(open))
	for _, r := range open {
		v := &Run{Run: r, Call: calls[r.Mutation], Attempt: max(attempts[r.Chain], 1),
			Wait: waits.WaitOf(r, calls[r.Mutation])}
		if r.Error == nil {
			v.Before = failures[r.RetryOf]
		}
		out = append(out, v)
	}
	return out, ask(ctx, s, out)
}

// history returns how many attempts chains had, and why runs failed.
func history(ctx context.Context, s Store, chains, runs []keep.RunID) (map[keep.RunID]int, map[keep.RunID]*keep.Failure, error) {
	if len(chains) == 0 {
		return nil, nil, nil
	}
	attempts, err := s.Attempts(ctx, chains)
	if err != nil || len(runs) == 0 {
		return attempts, nil, err
	}
	list, err := s.RunsByID(ctx, runs)
	failures := make(map[keep.RunID]*keep.Failure, len(list))
	for _, r := range list {
		failures[r.ID] = r.Error
	}
	return attempts, failures, err
}

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
	store.Notices
	store.Batches
	store.Limits
	store.RepairRecords
	store.Proposals
}

// MaxQuestions bounds the open questions of a view. Each of them blocks something,
// so there are few.
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
	Paused    map[keep.WorkflowName]bool
	Runs      map[keep.WorkflowName][]*Run // oldest first; without lanes at most one (law: one-at-a-time)
	Questions []keep.Escalation            // open ones, newest first, at most MaxQuestions
}

// ReadSituation reads what is under way in a workflow, or in all if w is empty.
func ReadSituation(ctx context.Context, s Store, w keep.WorkflowName) (*Situation, error) {
	all, err := s.Workflows(ctx)
	if err != nil {
		return nil, err
	}
	return situation(ctx, s, w, all)
}

// situation is ReadSituation for workflows that were read.
func situation(ctx context.Context, s Store, w keep.WorkflowName, all []keep.Workflow) (*Situation, error) {
	st := &Situation{Paused: make(map[keep.WorkflowName]bool), Runs: make(map[keep.WorkflowName][]*Run)}
	for _, v := range all {
		st.Paused[v.Name] = v.Paused
	}
	var err error
	st.Questions, _, err = s.Escalations(ctx, keep.EscalationFilter{Workflow: w, Open: true}, keep.Page{Limit: MaxQuestions})
	if err != nil {
		return nil, err
	}
	open, _, err := s.Runs(ctx, keep.RunFilter{Workflow: w, Open: true}, keep.Page{Limit: keep.MaxPage, Bare: true})
	if err != nil {
		return nil, err
	}
	runs, err := Explain(ctx, s, open, st.Questions)
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

// Explain returns what open runs wait for. questions are the open ones that may be
// about them; those about what runs share may be missing.
func Explain(ctx context.Context, s Store, open []keep.Run, questions []keep.Escalation) ([]*Run, error) {
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
	return out, ask(ctx, s, out, questions)
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

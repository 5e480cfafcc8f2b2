package web

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/lifecycle"
)

// A standing is a run that is not finished, as every page shows it: what it waits
// for, and which attempt it is (law: explained).
type standing struct {
	Run      keep.Run
	Mutation keep.Mutation // zero: none
	Attempt  int           // of its chain, from 1
	Why      string        // a sentence
	Before   *keep.Failure // what ended the attempt before; nil: none did, or Why tells
	Question *keep.Escalation
}

// A situation is what is under way in some workflows.
type situation struct {
	paused    map[keep.WorkflowName]bool
	runs      map[keep.WorkflowName]*standing // at most one each (law: one-at-a-time)
	causes    map[keep.InputID]*standing      // inputs that those runs are about
	questions []keep.Escalation               // open ones, newest first
}

// situation reads what is under way in the workflows that want says, or in all.
func (s *site) situation(ctx context.Context, want func(keep.WorkflowName) bool) (*situation, error) {
	st := &situation{
		paused: make(map[keep.WorkflowName]bool),
		runs:   make(map[keep.WorkflowName]*standing),
		causes: make(map[keep.InputID]*standing),
	}
	all, err := s.cfg.Store.Workflows(ctx)
	if err != nil {
		return nil, err
	}
	for _, w := range all {
		st.paused[w.Name] = w.Paused
	}
	qs, _, err := s.cfg.Store.Escalations(ctx, keep.EscalationFilter{Open: true}, keep.Page{Limit: maxOpen})
	if err != nil {
		return nil, err
	}
	for _, q := range qs {
		if want == nil || want(q.Workflow) {
			st.questions = append(st.questions, q)
		}
	}
	open, _, err := s.cfg.Store.Runs(ctx, keep.RunFilter{Open: true}, keep.Page{Limit: keep.MaxPage, Bare: true})
	if err != nil {
		return nil, err
	}
	for _, r := range open {
		if want != nil && !want(r.Workflow) {
			continue
		}
		if st.runs[r.Workflow], err = s.standing(ctx, r, st.questions); err != nil {
			return nil, err
		}
	}
	return st, nil
}

// here takes out of sentences where the command finds a question: pages have a link.
var here = strings.NewReplacer("; see keep inbox", "", " in keep inbox", "")

// standing reads how an open run stands.
func (s *site) standing(ctx context.Context, r keep.Run, questions []keep.Escalation) (*standing, error) {
	out := &standing{Run: r, Attempt: 1}
	var err error
	if r.Mutation != "" {
		if out.Mutation, err = s.cfg.Store.Mutation(ctx, r.Mutation); err != nil && !errors.Is(err, keep.ErrNotFound) {
			return nil, err
		}
	}
	out.Why = here.Replace(lifecycle.Explain(r, out.Mutation))
	if r.RetryOf != "" {
		chain, _, err := s.cfg.Store.Runs(ctx, keep.RunFilter{Chain: r.Chain}, keep.Page{Limit: keep.MaxPage, Bare: true})
		if err != nil {
			return nil, err
		}
		out.Attempt = max(len(chain), 1)
		if i := slices.IndexFunc(chain, func(r keep.Run) bool { return r.Error != nil }); i >= 0 && r.Error == nil {
			out.Before = chain[i].Error
		}
	}
	for _, q := range questions {
		if q.Run == r.ID {
			out.Question = &q
			break
		}
	}
	return out, nil
}

// withCauses reads which inputs the open runs are about.
func (s *site) withCauses(ctx context.Context, st *situation) error {
	for _, r := range st.runs {
		ids, err := s.cfg.Store.Causes(ctx, r.Run.Chain)
		if err != nil {
			return err
		}
		for _, id := range ids {
			st.causes[id] = r
		}
	}
	return nil
}

// waits says why a pending input of a workflow does not move, when no run is about
// it.
func (st *situation) waits(w keep.WorkflowName) string {
	r := st.runs[w]
	switch {
	case st.paused[w] && r == nil:
		return "The workflow is paused by a person; resume it to let this input go on."
	case r == nil:
		return "Waits for its turn; nothing stands before it."
	case r.Run.Status == keep.StatusActive:
		return fmt.Sprintf("Waits for its turn, behind a run of %s.", r.Run.Handler)
	}
	return fmt.Sprintf("Waits for its turn, behind a run of %s that stands still: %s.", r.Run.Handler, word(r.Run.Status))
}

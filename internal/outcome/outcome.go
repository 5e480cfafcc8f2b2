// Package outcome reads what a run knows of its call: what its record says, or, where there is no record, what a
// person treats the call as done by. Whoever executes a run, decides about it or repairs its script asks here, so
// that none of them takes a call without a record for none.
package outcome

import (
	"context"
	"errors"
	"slices"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/law/lifecycle"
)

// A Store has the runs, their records and the questions about them.
type Store interface {
	Run(ctx context.Context, id keep.RunID) (keep.Run, error)
	Mutation(ctx context.Context, key keep.MutationKey) (keep.Mutation, error)
	Escalations(ctx context.Context, f keep.EscalationFilter, p keep.Page) ([]keep.Escalation, string, error)
}

// Of returns what r knows of its call; zero: it made none.
func Of(ctx context.Context, s Store, r keep.Run) (keep.Mutation, error) {
	switch {
	case r.Mutation != "":
		return s.Mutation(ctx, r.Mutation)
	case r.Kind != keep.Consumer || r.Phase != keep.Mutated && r.Phase != keep.Emitting:
		return keep.Mutation{}, nil
	}
	answers, err := Answers(ctx, s, r.Chain, r.ID, keep.AskAlreadyDone, keep.AskApproval)
	if err != nil {
		return keep.Mutation{}, err
	}
	for _, q := range answers {
		switch {
		case q.Decision.Action != keep.TreatAsDone:
			continue
		case lifecycle.SaysDone(q):
			return lifecycle.TreatedAsDone(q.Decision.Result), nil
		}
		return ByRecord(ctx, s, q.Mutation)
	}
	return keep.Mutation{}, nil
}

// ByRecord returns what is known of a call that a person treats as done by the record of another. One that was
// swept since has no result any more; the decision holds all the same.
func ByRecord(ctx context.Context, s Store, key keep.MutationKey) (keep.Mutation, error) {
	m, err := s.Mutation(ctx, key)
	if err != nil && !errors.Is(err, keep.ErrNotFound) {
		return keep.Mutation{}, err
	}
	return lifecycle.TreatedAsDone(m.Result), nil
}

// Answers returns the questions of some kinds that persons answered about an attempt of a chain and those before
// it, newest first.
func Answers(ctx context.Context, s Store, chain, last keep.RunID, kinds ...keep.EscalationKind) (list []keep.Escalation, err error) {
	for id := last; id != ""; {
		r, err := s.Run(ctx, id)
		if err != nil {
			return nil, err
		}
		if r.Chain != chain {
			break
		}
		qs, _, err := s.Escalations(ctx, keep.EscalationFilter{Workflow: r.Workflow, Run: id}, keep.Page{})
		if err != nil {
			return nil, err
		}
		for _, q := range qs {
			if slices.Contains(kinds, q.Kind) && q.Decision != nil {
				list = append(list, q)
			}
		}
		id = lifecycle.Before(r)
	}
	return list, nil
}

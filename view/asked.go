package view

import (
	"context"
	"maps"
	"slices"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/law/account"
	"github.com/keep-run/keep/law/breaker"
	"github.com/keep-run/keep/law/lifecycle"
	"github.com/keep-run/keep/store"
)

// A subject is what several runs wait for that have one question in common: a budget, a tool whose calls
// are stopped or that its server changed, a connection or an account. The zero one is none.
type subject struct {
	kind keep.EscalationKind
	name string
}

// subjectOf returns what a run waits for together with others.
func subjectOf(r *Run) subject {
	f := r.Error
	if r.Status == keep.StatusReconciliation {
		f = r.Call.Error
	}
	switch {
	case r.Wait.Kind == lifecycle.WaitsForPerson && lifecycle.AsksForTool(r.Call.Error):
		return subject{keep.AskToolChanged, string(r.Call.Tool)}
	case r.Wait.Kind == lifecycle.WaitsForLookup && r.Wait.Why != "":
		return subject{keep.AskConnection, r.Call.Tool.Connection()}
	case f == nil:
		return subject{}
	}
	switch r.Wait.Kind {
	case lifecycle.WaitsForBudget:
		return subject{keep.AskBudget, f.Budget}
	case lifecycle.WaitsForBreaker:
		return subject{keep.AskBreaker, string(f.Tool)}
	case lifecycle.WaitsForLimit:
		return subject{keep.AskConnection, f.Tool.Connection()}
	case lifecycle.WaitsForAccount:
		return subject{keep.AskReconnect, f.Account}
	}
	return subject{}
}

// askedAbout returns what a question is about that several runs may wait for.
func askedAbout(q keep.Escalation) subject {
	switch q.Kind {
	case keep.AskBudget:
		return subject{q.Kind, q.Budget}
	case keep.AskBreaker:
		return subject{q.Kind, string(breaker.ToolOf(q.ID))}
	case keep.AskConnection:
		return subject{q.Kind, q.Connection}
	case keep.AskReconnect:
		return subject{q.Kind, account.Asked(q.ID)}
	case keep.AskToolChanged:
		return subject{q.Kind, q.Title}
	}
	return subject{}
}

// ask gives each run the open question about it: one of its own, or one about what it waits for together
// with other runs, which may be of another workflow. Of those only the kinds are read that a run may wait for.
func ask(ctx context.Context, s Store, runs []*Run) error {
	ids := make([]keep.RunID, 0, len(runs))
	for _, r := range runs {
		ids = append(ids, r.ID)
	}
	questions, err := s.QuestionsAbout(ctx, ids)
	if err != nil {
		return err
	}
	own := make(map[keep.RunID]*keep.Escalation, len(questions))
	for i, q := range questions {
		if old := own[q.Run]; old == nil || old.Kind.Shared() {
			own[q.Run] = &questions[i]
		}
	}
	shared := make(map[subject]*keep.Escalation)
	read := make(map[keep.EscalationKind]bool)
	for _, r := range runs {
		of := subjectOf(r)
		if r.Question = own[r.ID]; r.Question != nil || of == (subject{}) {
			continue
		}
		if !read[of.kind] {
			all, _, err := s.Escalations(ctx, keep.EscalationFilter{Kind: of.kind, Open: true}, keep.Page{Limit: MaxQuestions})
			if err != nil {
				return err
			}
			maps.Copy(shared, bySubject(all))
			read[of.kind] = true
		}
		r.Question = shared[of]
	}
	return askUsers(ctx, s, runs)
}

// askUsers gives the runs whose calls in doubt wait for that the open question whether an account or a secret is of the same
// user as before.
func askUsers(ctx context.Context, s Store, runs []*Run) error {
	var asked []keep.Escalation
	read := false
	for _, r := range runs {
		if r.Question != nil || r.Status != keep.StatusReconciliation || !lifecycle.AsksForUser(r.Call.Error) {
			continue
		}
		if !read {
			var err error
			if asked, err = userQuestions(ctx, s); err != nil {
				return err
			}
			read = true
		}
		if len(asked) == 0 {
			return nil
		}
		m, err := s.Mutation(ctx, r.Call.Key) // with how it was sent
		if err != nil {
			return err
		}
		if i := slices.IndexFunc(asked, func(q keep.Escalation) bool { return account.Awaits(m, q) }); i >= 0 {
			r.Question = &asked[i]
		}
	}
	return nil
}

// userQuestions returns the open questions about users, of which there are few. There may be many others of their kind.
func userQuestions(ctx context.Context, s Store) (asked []keep.Escalation, err error) {
	for q, err := range store.All(ctx, s.Escalations, keep.EscalationFilter{Kind: keep.AskPermission, Open: true}, keep.Page{Limit: MaxQuestions}) {
		if err != nil {
			return nil, err
		}
		if account.IsUserQuestion(q) {
			asked = append(asked, q)
		}
	}
	return asked, nil
}

// bySubject returns the questions that several runs may wait for.
func bySubject(questions []keep.Escalation) map[subject]*keep.Escalation {
	out := make(map[subject]*keep.Escalation)
	for i, q := range questions {
		if of := askedAbout(q); of != (subject{}) {
			out[of] = &questions[i]
		}
	}
	return out
}

// StoppedTools returns the open questions about tools whose calls are stopped.
func StoppedTools(ctx context.Context, s store.Escalations) (map[keep.ToolName]keep.EscalationID, error) {
	questions, _, err := s.Escalations(ctx, keep.EscalationFilter{Kind: keep.AskBreaker, Open: true}, keep.Page{Limit: MaxQuestions})
	out := make(map[keep.ToolName]keep.EscalationID)
	for of, q := range bySubject(questions) {
		out[keep.ToolName(of.name)] = q.ID
	}
	return out, err
}

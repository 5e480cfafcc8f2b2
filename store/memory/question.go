package memory

import (
	"cmp"
	"context"
	"maps"
	"slices"

	"github.com/keep-run/keep"
)

// causeOf returns the cause of a question. The caller holds mu.
func (s *Store) causeOf(e keep.Escalation) keep.QuestionCause {
	return e.CauseOf(s.runs[e.Run].v, s.mutations[e.Mutation].v)
}

// QuestionGroups returns the open questions by their workflow and cause, that with the newest question first.
func (s *Store) QuestionGroups(ctx context.Context, limit int) ([]keep.QuestionGroup, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	type key struct {
		keep.QuestionCause
		workflow keep.WorkflowName
	}
	groups, newest := make(map[key]keep.QuestionGroup), make(map[keep.EscalationID]int64)
	for id, e := range s.escalations {
		if !e.v.ClosedAt.IsZero() {
			continue
		}
		k := key{s.causeOf(e.v), e.v.Workflow}
		g := groups[k]
		if newest[id] = e.n; e.n > newest[g.Newest] {
			g.Newest = id
		}
		groups[k] = keep.QuestionGroup{QuestionCause: k.QuestionCause, Workflow: k.workflow, Count: g.Count + 1, Newest: g.Newest}
	}
	list := slices.SortedFunc(maps.Values(groups), func(a, b keep.QuestionGroup) int { return cmp.Compare(newest[b.Newest], newest[a.Newest]) })
	return list[:min(limit, len(list))], context.Cause(ctx)
}

// QuestionsLike returns the open questions with a cause, newest first.
func (s *Store) QuestionsLike(ctx context.Context, w keep.WorkflowName, c keep.QuestionCause, pass, limit int) ([]keep.Escalation, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	open := matchEscalation(keep.EscalationFilter{Workflow: w, Kind: c.Kind, Open: true})
	list, _, err := page("q", keep.Page{Limit: keep.MaxPage}, maps.Values(s.escalations),
		func(e keep.Escalation) bool { return open(e) && s.causeOf(e) == c }, copyEscalation)
	list = list[min(pass, len(list)):]
	return list[:min(limit, len(list))], cmp.Or(err, context.Cause(ctx))
}

// QuestionsAbout returns the open questions about runs, newest first.
func (s *Store) QuestionsAbout(_ context.Context, runs []keep.RunID) ([]keep.Escalation, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	about := make(map[keep.RunID]bool, len(runs))
	for _, id := range runs {
		about[id] = id != ""
	}
	list, _, err := page("q", keep.Page{Limit: keep.MaxPage}, maps.Values(s.escalations),
		func(e keep.Escalation) bool { return about[e.Run] && e.ClosedAt.IsZero() }, copyEscalation)
	return list, err
}

// Unasked returns the open runs but those of which there may be many that are asked about, newest first.
func (s *Store) Unasked(_ context.Context, limit int) ([]keep.Run, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	asked := make(map[keep.RunID]bool)
	for _, e := range s.escalations {
		asked[e.v.Run] = asked[e.v.Run] || e.v.ClosedAt.IsZero()
	}
	list, _, err := page("r", keep.Page{Limit: limit}, maps.Values(s.runs),
		func(r keep.Run) bool {
			return !r.Closed && (r.Kind != keep.Consumer || r.Lane == keep.WorkflowLane || !asked[r.ID])
		},
		func(r keep.Run) keep.Run {
			r.Prepared = nil
			return copyRun(r)
		})
	return list, err
}

// QuestionsByID returns questions, newest first.
func (s *Store) QuestionsByID(_ context.Context, ids []keep.EscalationID) ([]keep.Escalation, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	list, _, err := page("q", keep.Page{Limit: keep.MaxPage}, maps.Values(s.escalations),
		func(e keep.Escalation) bool { return slices.Contains(ids, e.ID) }, copyEscalation)
	return list, err
}

// OpenOf returns the open run of each chain, newest first.
func (s *Store) OpenOf(_ context.Context, chains []keep.RunID) ([]keep.Run, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	list, _, err := page("r", keep.Page{Limit: keep.MaxPage}, maps.Values(s.runs),
		func(r keep.Run) bool { return !r.Closed && slices.Contains(chains, r.Chain) },
		func(r keep.Run) keep.Run {
			r.Prepared = nil
			return copyRun(r)
		})
	return list, err
}

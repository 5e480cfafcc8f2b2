package web

import (
	"cmp"
	"context"
	"fmt"
	"html/template"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/law/lifecycle"
	"github.com/keep-run/keep/view"
)

// A standing is an open run as every page shows it: what it waits for, and which
// attempt it is (law: explained).
type standing struct{ *view.Run }

// Why is the sentence about what the run waits for.
func (s *standing) Why() template.HTML { return waitHTML(s.Wait) }

// Account is the account that the run waits for; empty: it waits for none.
func (s *standing) Account() string {
	if s.Wait.Kind == lifecycle.WaitsForAccount {
		return s.Error.Account
	}
	return ""
}

// About says which work the run is at: its title, or the event that began it; empty: neither.
func (s *standing) About() string { return cmp.Or(s.Title, string(s.Trigger.MessageID)) }

// OrderKey is the order key of the run's events; empty: it has none.
func (s *standing) OrderKey() string {
	key, _ := s.Lane.Key()
	return key
}

// A situation is what is under way, as pages show it.
type situation struct {
	*view.Situation
	runs   map[keep.WorkflowName][]*standing // oldest first
	causes map[keep.InputID]*standing        // inputs that those runs are about
}

// situation reads what is under way in a workflow, or in all if w is empty.
func (s *site) situation(ctx context.Context, w keep.WorkflowName) (*situation, error) {
	st, err := view.ReadSituation(ctx, s.cfg.Store, w)
	if err != nil {
		return nil, err
	}
	return situationOf(st), nil
}

// situationOf is a situation that was read already, as pages show it.
func situationOf(st *view.Situation) *situation {
	out := &situation{st, make(map[keep.WorkflowName][]*standing, len(st.Runs)), make(map[keep.InputID]*standing)}
	for name, runs := range st.Runs {
		for _, r := range runs {
			out.runs[name] = append(out.runs[name], &standing{r})
		}
	}
	return out
}

// first returns the run of a workflow that matters most; nil: nothing is under way.
func (st *situation) first(w keep.WorkflowName) *standing {
	if r := view.First(st.Runs[w]); r != nil {
		return &standing{r}
	}
	return nil
}

// withCauses reads which inputs the open runs are about.
func (s *site) withCauses(ctx context.Context, st *situation) error {
	if len(st.runs) == 0 {
		return nil
	}
	chains := make([]keep.RunID, 0, len(st.runs))
	of := make(map[keep.RunID]*standing, len(st.runs))
	for _, runs := range st.runs {
		for _, r := range runs {
			chains = append(chains, r.Chain)
			of[r.Chain] = r
		}
	}
	causes, err := s.cfg.Store.CausesOf(ctx, chains)
	for chain, ids := range causes {
		for _, id := range ids {
			st.causes[id] = of[chain]
		}
	}
	return err
}

// waits says why a pending input of a workflow does not move, when no run is about
// it.
func (st *situation) waits(w keep.WorkflowName) string {
	r := st.first(w)
	switch {
	case st.Paused[w] && r == nil:
		return "The workflow is paused; it waits until a person resumes the workflow."
	case r == nil:
		return "Waits for its turn; nothing is before it."
	case r.Status == keep.StatusActive:
		return fmt.Sprintf("Waits for its turn, behind a run of %s.", r.Handler)
	}
	// Runs of other order keys block nobody, and the key of the input's events is not read here: so "perhaps".
	if r.Lane != keep.WorkflowLane {
		return fmt.Sprintf("Waits for its turn, perhaps behind a run of %s of the same order key.", r.Handler)
	}
	return fmt.Sprintf("Waits for its turn: a run of %s blocks the workflow (%s).", r.Handler, word(r.Status))
}

package web

import (
	"cmp"
	"context"
	"fmt"
	"html/template"
	"slices"

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
	chains map[keep.RunID]*standing          // those runs, by their chain
}

// situationRuns is how many open runs of a workflow a page reads to say what is under way: the newest.
const situationRuns = 100

// situation reads what is under way in a workflow, or in all if w is empty.
func (s *site) situation(ctx context.Context, w keep.WorkflowName) (*situation, error) {
	var st *view.Situation
	var err error
	if w == "" {
		st, err = view.ReadSituations(ctx, s.cfg.Store)
	} else {
		st, err = view.ReadSituation(ctx, s.cfg.Store, w, situationRuns)
	}
	if err != nil {
		return nil, err
	}
	return situationOf(st), nil
}

// situationOf is a situation that was read already, as pages show it.
func situationOf(st *view.Situation) *situation {
	out := &situation{st, make(map[keep.WorkflowName][]*standing, len(st.Runs)), make(map[keep.RunID]*standing)}
	for name, runs := range st.Runs {
		for _, r := range runs {
			v := &standing{r}
			out.runs[name], out.chains[r.Chain] = append(out.runs[name], v), v
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

// withChains reads the open runs of chains that were not read with the situation.
func (s *site) withChains(ctx context.Context, st *situation, chains []keep.RunID) error {
	chains = slices.DeleteFunc(chains, func(id keep.RunID) bool { return id == "" || st.chains[id] != nil })
	if len(chains) == 0 {
		return nil
	}
	slices.Sort(chains)
	open, err := s.cfg.Store.OpenOf(ctx, slices.Compact(chains))
	if err != nil {
		return err
	}
	runs, err := view.Explain(ctx, s.cfg.Store, open)
	for _, r := range runs {
		st.chains[r.Chain] = &standing{r}
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

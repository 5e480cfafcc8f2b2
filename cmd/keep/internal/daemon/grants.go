package daemon

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/cmd/keep/internal/config"
	"github.com/keep-run/keep/cmd/keep/internal/database"
	"github.com/keep-run/keep/cmd/keep/internal/project"
	"github.com/keep-run/keep/connector"
	"github.com/keep-run/keep/host"
	"github.com/keep-run/keep/law/budget"
	"github.com/keep-run/keep/law/grant"
	"github.com/keep-run/keep/operator"
	"github.com/keep-run/keep/rehearsal/plan"
	"github.com/keep-run/keep/script/workflow"
	"github.com/keep-run/keep/store"
	"github.com/keep-run/keep/view"
)

// fromConfig is where grants of keep.toml come from, and who gives them.
var fromConfig = operator.Giver{By: config.Name, From: config.Name}

// calledTools returns the tools that a script calls, as far as that can be read.
func calledTools(r workflow.Report) []keep.ToolName {
	var out []keep.ToolName
	for _, t := range r.Tools {
		out = append(out, t.Tool)
	}
	return out
}

// withTable makes the grant of keep.toml, if it has one for the workflow, the whole of what
// is granted.
//
// The giver is then keep.toml, and not who deploys; of a proposal it stays who proposed it.
func withTable(c *operator.Consent, cfg *config.Config, w keep.WorkflowName) {
	if g, ok := cfg.GrantOf(w); ok {
		if c.Whole = g.Tools; !c.Ask {
			c.Giver = fromConfig
		}
	}
}

// consent returns what a command gives to a script of its user: what keep.toml says, or
// else what it calls.
func (s *Session) consent(sc project.Script) (operator.Consent, error) {
	r, err := workflow.Effects(sc.Declaration, sc.Sources, s.conns)
	if err != nil {
		return operator.Consent{}, fmt.Errorf("effects of %s: %w", sc.File, err)
	}
	c := operator.Consent{Giver: operator.Giver{By: User(), From: "cli"}, Calls: calledTools(r), Give: true, Await: true}
	withTable(&c, s.config(), sc.Name)
	return c, nil
}

// sayGiven tells who deploys a script what the workflow may call from now on.
func (e Env) sayGiven(w keep.WorkflowName, given []keep.GrantedTool, conns []connector.Connection) {
	if e.Say == nil {
		return
	}
	for _, t := range given {
		e.Say("%s may call %s%s", w, grant.Text(t), whatItDoes(t, conns))
	}
}

// whatItDoes says what a tool does, for people; empty if t is about several.
func whatItDoes(t keep.GrantedTool, conns []connector.Connection) string {
	for _, c := range conns {
		for _, tool := range c.Tools {
			spec := tool.Spec()
			switch {
			case c.Name+"."+spec.Name != t.Tool:
			case spec.Effect == connector.Mutate:
				return fmt.Sprintf(" (sends; level %s)", spec.Level)
			default:
				return " (reads)"
			}
		}
	}
	return ""
}

// GrantFromConfig gives each workflow that the database has what keep.toml says, if that
// has a grant for it. Workflows that are not deployed yet get theirs with the deploy.
//
// It is done at each start and after each change of the file. What is as before makes no new grant.
func (s *Session) GrantFromConfig(ctx context.Context, e Env) error {
	cfg := s.config()
	for _, g := range cfg.Grants {
		w, err := s.DB.Workflow(ctx, g.Workflow)
		switch {
		case errors.Is(err, keep.ErrNotFound):
			continue
		case err != nil:
			return err
		case s.Only != nil && !slices.Contains(s.Only, w.Name):
			continue
		}
		before := w.Granted
		now, err := s.Host.SetGrant(ctx, g.Workflow, g.Tools, fromConfig, nil)
		if err != nil {
			return fmt.Errorf("%s: %w", cfg.File, err)
		}
		if now.N != before {
			e.Log.InfoContext(ctx, "granted", "workflow", g.Workflow, "grant", now.ID(), "from", cfg.File)
		}
	}
	return nil
}

// PlanGrants returns what the scripts may call, by keep.toml or by the database, which may be
// nil. A workflow that was never given anything may call everything.
func PlanGrants(ctx context.Context, cfg *config.Config, db store.Grants, scripts []*host.Workflow) (map[keep.WorkflowName]plan.Granted, error) {
	out := make(map[keep.WorkflowName]plan.Granted)
	for _, s := range scripts {
		name := s.Name
		if g, ok := cfg.GrantOf(name); ok {
			out[name] = plan.Granted{Tools: g.Tools, Whole: true}
			continue
		}
		if db == nil {
			continue
		}
		all, err := db.GrantsBefore(ctx, name)
		if err != nil {
			return nil, err
		}
		if len(all) == 0 {
			continue
		}
		g := plan.Granted{Tools: all[0].Tools}
		for _, before := range all {
			g.Ever = append(g.Ever, before.Tools...)
		}
		out[name] = g
	}
	return out, nil
}

// PlanBudgets returns the budgets and how they stand in the database, which may be nil.
func PlanBudgets(ctx context.Context, cfg *config.Config, db database.DB, now time.Time) ([]plan.Standing, error) {
	rules := cfg.BudgetRules()
	out := make([]plan.Standing, len(rules))
	for i, r := range rules {
		out[i] = plan.Standing{Rule: r, Balance: r.BalanceOf(budget.State{}, nil, "", now)}
	}
	if db == nil {
		return out, nil
	}
	read, err := view.ReadBudgets(ctx, db, rules, now)
	for i, b := range read {
		out[i].Balance = b.Balance
	}
	return out, err
}

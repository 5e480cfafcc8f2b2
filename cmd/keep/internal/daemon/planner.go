package daemon

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/api"
	"github.com/keep-run/keep/cmd/keep/internal/database"
	"github.com/keep-run/keep/cmd/keep/internal/project"
	"github.com/keep-run/keep/host"
	"github.com/keep-run/keep/rehearsal/plan"
	"github.com/keep-run/keep/script/sandbox"
	"github.com/keep-run/keep/web"
)

// What bounds plans on a host (law: bounded), of its pages and of agents. Each has live reads, and runs of the host wait for
// the same sandboxes.
const (
	planTime = 30 * time.Second
	maxPlans = 2 // at once
)

// A ScriptPlanner plans scripts on a host, as keep plan does, with the connections of the host. A host
// does at once what is due, so that all producers and jobs are planned as if they were.
type ScriptPlanner struct {
	Deployer *ScriptDeployer
	DB       database.DB
	Now      func() time.Time

	Places chan struct{} // one for each plan at once
	Time   time.Duration // that a plan may take
}

// Plan implements web.Planner. A plan reads what the workflow was granted and nothing else, so that a
// script which nobody agreed to learns nothing more.
func (p *ScriptPlanner) Plan(ctx context.Context, name keep.WorkflowName, s *api.Script) (web.Plan, error) {
	made, err := p.bounded(ctx, func(ctx context.Context) (*plan.Plan, error) {
		w, err := p.script(ctx, name, s)
		if err != nil {
			return nil, err
		}
		return p.make(ctx, w, s == nil)
	})
	if err != nil {
		return nil, err
	}
	return made, nil
}

// PlanLoaded plans a script that was loaded, as Plan does.
func (p *ScriptPlanner) PlanLoaded(ctx context.Context, w *host.Workflow, inForce bool) (*plan.Plan, error) {
	return p.bounded(ctx, func(ctx context.Context) (*plan.Plan, error) {
		one := []project.Script{{Workflow: w}}
		if err := project.Continue(ctx, p.DB, p.Deployer.config(), one); err != nil {
			return nil, err
		}
		return p.make(ctx, one[0].Workflow, inForce)
	})
}

// bounded makes a plan when there is a place for it, within its time.
func (p *ScriptPlanner) bounded(ctx context.Context, make func(context.Context) (*plan.Plan, error)) (*plan.Plan, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, p.Time, &keep.TimeoutError{Op: "the plan", After: p.Time})
	defer cancel()
	// Whoever waits for a place does so within the time of his plan, so that no request waits forever.
	select {
	case p.Places <- struct{}{}:
		defer func() { <-p.Places }()
	case <-ctx.Done():
		return nil, &web.NoPlanError{Why: "other plans are being made. Try again."}
	}
	made, err := make(ctx)
	if cause := context.Cause(ctx); err != nil && errors.Is(cause, context.DeadlineExceeded) {
		return nil, &web.NoPlanError{Why: fmt.Sprintf("it took longer than %s. Services may be slow, or much may be due; keep plan has no such limit.", p.Time)}
	}
	return made, err
}

// script returns the script that is planned.
//
// The version in force is loaded from the database, also if this host has a newer file.
func (p *ScriptPlanner) script(ctx context.Context, name keep.WorkflowName, s *api.Script) (*host.Workflow, error) {
	if s != nil {
		files, _, err := p.Deployer.read(ctx, name, *s)
		if err != nil {
			return nil, asNoPlan(err)
		}
		return files[0].Workflow, nil
	}
	w, err := p.DB.Workflow(ctx, name)
	if err != nil {
		return nil, err
	}
	d, err := p.DB.Deployment(ctx, name, w.Version)
	if err != nil {
		return nil, err
	}
	if d.Definition.Go {
		return nil, &web.NoPlanError{Why: "its handlers are Go functions of a program; there, plan.Make of package rehearsal/plan plans it."}
	}
	out, err := host.LoadBundle(ctx, p.Deployer.Runtime, &sandbox.Bundle{Entry: d.Entry, Code: d.Code, Map: d.Map})
	if err != nil {
		return nil, asNoPlan(err)
	}
	out.Name = name // it may have been renamed since
	return out, nil
}

// asNoPlan returns what is wrong with a script as why there is no plan.
func asNoPlan(err error) error {
	if wrong, ok := errors.AsType[*api.ScriptError](asScriptError(err)); ok {
		return &web.NoPlanError{Why: wrong.Error()}
	}
	return err
}

// make plans a script, which may be the one in force.
func (p *ScriptPlanner) make(ctx context.Context, w *host.Workflow, inForce bool) (*plan.Plan, error) {
	cfg := p.Deployer.config()
	scripts := []*host.Workflow{w}
	granted, err := PlanGrants(ctx, cfg, p.DB, scripts)
	if err != nil {
		return nil, err
	}
	if _, given := granted[w.Name]; !given && !inForce {
		granted[w.Name] = plan.Granted{} // what is in force may call everything; another script needs a grant
	}
	budgets, err := PlanBudgets(ctx, cfg, p.DB, p.Now())
	if err != nil {
		return nil, err
	}
	return plan.Make(ctx, plan.Config{Scripts: scripts, Base: p.DB, Connections: p.Deployer.Conns, Granted: granted, Bound: true, Due: true, Budgets: budgets,
		Policy: &cfg.Policy, Runtime: p.Deployer.Runtime})
}

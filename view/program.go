package view

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/store"
)

// Executors returns the hosts that work on the workflows of a database, also some that are
// gone, and the time by which they are there. Nil: nobody knows of any.
type Executors func(ctx context.Context) ([]keep.Host, time.Time, error)

// Sharing are the hosts that share a database.
func Sharing(l store.Leaser) Executors {
	return func(ctx context.Context) ([]keep.Host, time.Time, error) {
		now, err := l.Poll(ctx, "") // no host's: it only tells the time
		if err != nil {
			return nil, time.Time{}, err
		}
		hosts, err := l.Hosts(ctx)
		return hosts, now.Now, err
	}
}

// Alone is the host of this process, which has the database to itself, by the versions written
// in Go that it has. It is there as long as somebody asks.
func Alone(inGo func() []string) Executors {
	return func(context.Context) ([]keep.Host, time.Time, error) {
		var now time.Time
		return []keep.Host{{InGo: inGo(), Until: now.Add(time.Hour)}}, now, nil
	}
}

// A Missing is a workflow whose version in force is written in Go, and that no host which is
// there can execute. Nothing happens in it.
type Missing struct {
	Workflow keep.WorkflowName
	Version  keep.Version
	Program  keep.Program // that has the handlers
}

// Sentence says it, and what to do.
func (m Missing) Sentence() string {
	return fmt.Sprintf("version %s of workflow %s is written in Go, and no host that is there has its handlers: start the program %s, or deploy the workflow from the program that is to execute it",
		m.Version, m.Workflow, m.Program)
}

// Missing returns those of workflows that no host can execute. Without a host nothing is
// executed at all, and a workflow that is paused is not either: of these it says nothing.
func (e Executors) Missing(ctx context.Context, s store.Workflows, workflows ...Workflow) (list []Missing, err error) {
	inGo := slices.DeleteFunc(slices.Clone(workflows), func(w Workflow) bool { return !w.Deployed.Definition.Go || w.Paused })
	if e == nil || len(inGo) == 0 {
		return nil, nil
	}
	hosts, now, err := e(ctx)
	if err != nil || !slices.ContainsFunc(hosts, func(h keep.Host) bool { return h.Until.After(now) }) {
		return nil, err
	}
	for _, w := range inGo {
		if slices.ContainsFunc(hosts, func(h keep.Host) bool { return h.Executes(w.Deployed.Hash, now) }) {
			continue
		}
		d, err := s.Deployment(ctx, w.Name, w.Version) // with its code
		if err != nil {
			return nil, err
		}
		m := Missing{Workflow: w.Name, Version: w.Version}
		if m.Program, err = d.Program(); err != nil {
			return nil, err
		}
		list = append(list, m)
	}
	return list, nil
}

// MissingOf is Missing of one workflow, by its name; a workflow that is not there misses nothing.
func (e Executors) MissingOf(ctx context.Context, s store.Workflows, name keep.WorkflowName) ([]Missing, error) {
	w, d, err := inForce(ctx, s, name)
	if err != nil || d.Workflow == "" {
		return nil, err
	}
	return e.Missing(ctx, s, WorkflowOf(w, d, nil, nil, time.Time{}))
}

// MissingOfAll is Missing of all workflows of a database.
func (e Executors) MissingOfAll(ctx context.Context, s store.Reader) ([]Missing, error) {
	if e == nil {
		return nil, nil
	}
	all, err := s.Workflows(ctx)
	if err != nil {
		return nil, err
	}
	current, err := s.Current(ctx)
	if err != nil {
		return nil, err
	}
	deployed := make(map[keep.WorkflowName]keep.Deployment, len(current))
	for _, d := range current {
		deployed[d.Workflow] = d
	}
	workflows := make([]Workflow, 0, len(all))
	for _, w := range all {
		workflows = append(workflows, Workflow{Workflow: w, Deployed: deployed[w.Name]})
	}
	return e.Missing(ctx, s, workflows...)
}

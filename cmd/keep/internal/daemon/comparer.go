package daemon

import (
	"context"
	"errors"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/api"
	"github.com/keep-run/keep/host"
	"github.com/keep-run/keep/law/rename"
	"github.com/keep-run/keep/rehearsal/compare"
	"github.com/keep-run/keep/script/sandbox"
)

// newVersion is what the script of a comparison is called that was not deployed.
const newVersion = "new"

// Compare implements api.Comparer.
//
// A script of the request has no version: it is called newVersion in the report. A version that waits for
// a person can be compared like one that was deployed: that is when somebody wants to know.
func (r *ScriptReplayer) Compare(ctx context.Context, name keep.WorkflowName, q api.CompareRequest) (api.Comparison, error) {
	w, err := r.DB.Workflow(ctx, name)
	if err != nil {
		return api.Comparison{}, err
	}
	from := w.Version
	if q.From != "" {
		if from, err = keep.ParseVersion(q.From); err != nil {
			return api.Comparison{}, &keep.NotFoundError{What: "version", ID: q.From}
		}
	}
	own, err := r.DB.Deployment(ctx, name, from)
	if err != nil {
		return api.Comparison{}, err
	}
	if err := goneThrough(own); err != nil {
		return api.Comparison{}, err
	}
	rt, conns, limits, err := r.Tools(ctx)
	if err != nil {
		return api.Comparison{}, err
	}
	cfg := compare.Config{Store: r.DB, Workflow: name, From: from, To: newVersion, Connections: conns, Policy: limits}
	var bundle *sandbox.Bundle
	if q.Script == nil {
		bundle, cfg.Definition, err = r.stored(ctx, name, q.Version)
		cfg.To = q.Version
	} else {
		bundle, cfg.Definition, err = given(ctx, rt, own, q)
	}
	if err != nil {
		return api.Comparison{}, err
	}
	if cfg.Script, err = host.LoadScript(ctx, rt, own, bundle); err != nil {
		return api.Comparison{}, err
	}
	report, err := compare.Do(ctx, cfg)
	if err != nil {
		return api.Comparison{}, err
	}
	return comparisonOf(report), nil
}

// stored returns a version of a workflow that was deployed, or waits for a person.
//
// What is no number of a version is not found, as one that does not exist.
func (r *ScriptReplayer) stored(ctx context.Context, name keep.WorkflowName, version string) (*sandbox.Bundle, keep.Definition, error) {
	v, err := keep.ParseVersion(version)
	if err != nil {
		return nil, keep.Definition{}, &keep.NotFoundError{What: "version", ID: version}
	}
	d, err := r.DB.Deployment(ctx, name, v)
	if errors.Is(err, keep.ErrNotFound) {
		var p keep.Proposal
		if p, err = r.DB.Proposal(ctx, name, v); errors.Is(err, keep.ErrNotFound) {
			err = &keep.NotFoundError{What: "version", ID: version}
		}
		d = p.Deployment
	}
	return &sandbox.Bundle{Entry: d.Entry, Code: d.Code, Map: d.Map}, d.Definition, err
}

// given returns the script of a request, which has to declare the workflow.
//
// It must declare the same workflow: the runs of another one would differ in everything, and show nothing.
func given(ctx context.Context, rt *sandbox.Runtime, own keep.Deployment, q api.CompareRequest) (*sandbox.Bundle, keep.Definition, error) {
	mistake := func(text string) error {
		return &api.ScriptError{Mistakes: []api.Mistake{{File: q.Script.File, Line: 1, Column: 1, Message: text}}}
	}
	if q.Version != "" {
		return nil, keep.Definition{}, mistake("a script and a version: name one of them")
	}
	w, err := loadScript(ctx, rt, *q.Script)
	if err != nil {
		return nil, keep.Definition{}, asScriptError(err)
	}
	d, err := rename.Follow([]keep.Deployment{own}, w.Definition)
	if err != nil || d.Name != own.Workflow {
		return nil, keep.Definition{}, mistake("it declares the workflow " + string(w.Name) + ", not " + string(own.Workflow))
	}
	return w.Bundle, d, nil
}

// comparisonOf returns the object of a report.
func comparisonOf(r *compare.Report) api.Comparison {
	out := api.Comparison{
		Workflow: r.Workflow, From: r.From, To: r.To, Impact: string(r.Impact), Declared: r.Declared, Whole: r.Whole, Older: r.Older,
		Runs: []api.ComparedRun{}, Inputs: []api.ComparedInput{}, Mutations: []api.ComparedMutation{}, Counts: make(map[string]int),
	}
	effects := func(list []compare.Effect) []api.ComparedEffect {
		all := []api.ComparedEffect{}
		for _, e := range list {
			all = append(all, api.ComparedEffect{Phase: e.Phase, What: string(e.What), Value: e.Value})
		}
		return all
	}
	for _, c := range r.Runs {
		out.Runs = append(out.Runs, api.ComparedRun{Run: c.Run, Input: c.Input, Handler: c.Handler, At: api.Time(c.At), Done: c.Done,
			Change: string(c.Change), Why: c.Why, Before: effects(c.Before), After: effects(c.After)})
	}
	for _, in := range r.Inputs {
		out.Inputs = append(out.Inputs, api.ComparedInput(in))
	}
	for _, m := range r.Mutations {
		out.Mutations = append(out.Mutations, api.ComparedMutation{Key: m.Key, Run: m.Run, Tool: m.Tool, Title: m.Title,
			Change: string(m.Change), Remedy: string(m.Remedy), How: m.How})
	}
	for c, n := range r.Counts {
		out.Counts[string(c)] = n
	}
	return out
}

package daemon

import (
	"context"
	"errors"
	"fmt"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/api"
	"github.com/keep-run/keep/connector"
	"github.com/keep-run/keep/host"
	"github.com/keep-run/keep/law/policy"
	"github.com/keep-run/keep/rehearsal/replay"
	"github.com/keep-run/keep/rehearsal/scripttest"
	"github.com/keep-run/keep/script/sandbox"
	"github.com/keep-run/keep/store"
)

// A ScriptReplayer goes through runs of a database again. It has descriptions of tools alone,
// and nothing reaches a service (package replay).
type ScriptReplayer struct {
	DB store.Reader

	// Tools returns what runs scripts, and the tools that they may call.
	Tools func(ctx context.Context) (*sandbox.Runtime, []connector.Connection, *policy.Policy, error)
}

// Replay implements api.Replayer.
func (r *ScriptReplayer) Replay(ctx context.Context, id keep.RunID, q api.ReplayRequest) (api.Replay, error) {
	run, err := r.DB.Run(ctx, id)
	if err != nil {
		return api.Replay{}, err
	}
	own, err := r.DB.Deployment(ctx, run.Workflow, run.Version)
	if err != nil {
		return api.Replay{}, fmt.Errorf("the version of the run: %w", err)
	}
	if err := goneThrough(own); err != nil {
		return api.Replay{}, err
	}
	rt, conns, limits, err := r.Tools(ctx)
	if err != nil {
		return api.Replay{}, err
	}
	bundle, def, err := r.choose(ctx, rt, own, q)
	if err != nil {
		return api.Replay{}, err
	}
	script, err := host.LoadScript(ctx, rt, own, bundle)
	if err != nil {
		return api.Replay{}, err
	}
	report, err := replay.Run(ctx, replay.Config{Store: r.DB, Run: id, Script: script, Definition: def, Connections: conns, Policy: limits})
	if err != nil {
		return api.Replay{}, err
	}
	return replayOf(report), nil
}

// goneThrough returns why this host cannot go through the runs of a version, which who asks has to know; nil: it can.
func goneThrough(d keep.Deployment) error {
	if !d.Definition.Go {
		return nil
	}
	return &api.ScriptError{Mistakes: []api.Mistake{{File: d.Entry, Line: 1, Column: 1,
		Message: fmt.Sprintf("version %s of workflow %s is written in Go, and only the program that has its handlers can go through its runs", d.Version, d.Workflow)}}}
}

// Record implements api.Replayer: it makes a test of a run, tried with the version of the run.
//
// The script of the run is loaded, and the test must pass with it: one that fails from the beginning is worth
// nothing. Why a run cannot become a test is an error for the person who asked.
func (r *ScriptReplayer) Record(ctx context.Context, id keep.RunID, q api.RecordRequest) (api.RecordedTest, error) {
	run, err := r.DB.Run(ctx, id)
	if err != nil {
		return api.RecordedTest{}, err
	}
	own, err := r.DB.Deployment(ctx, run.Workflow, run.Version)
	if err != nil {
		return api.RecordedTest{}, fmt.Errorf("the version of the run: %w", err)
	}
	rt, conns, limits, err := r.Tools(ctx)
	if err != nil {
		return api.RecordedTest{}, err
	}
	script, err := host.LoadBundle(ctx, rt, &sandbox.Bundle{Entry: own.Entry, Code: own.Code, Map: own.Map})
	if err != nil {
		return api.RecordedTest{}, fmt.Errorf("version %s of %s: %w", run.Version, run.Workflow, err)
	}
	made, err := scripttest.Record(ctx, scripttest.RecordConfig{
		Config: scripttest.Config{Script: script, Connections: conns, Policy: limits, Runtime: rt},
		Store:  r.DB, Run: id, Plain: q.Plain,
	})
	if why, ok := errors.AsType[*scripttest.RecordError](err); ok {
		return api.RecordedTest{}, &api.RecordError{Err: why}
	}
	if err != nil {
		return api.RecordedTest{}, err
	}
	f := scripttest.File{Script: q.Script, Tests: []scripttest.Test{made.Test}}
	return api.RecordedTest{
		Run: id, Workflow: run.Workflow, Version: run.Version.String(), Entry: own.Entry,
		Text:       string(f.TOML(fmt.Sprintf("What run %s of version %s saw and did.", id, run.Version))),
		Checkpoint: made.Checkpoint(), Scrubbed: append([]string{}, made.Scrubbed...), Loose: append([]string{}, made.Loose...),
	}, nil
}

// choose returns the script that is asked for; nil is the run's own.
//
// Go handlers have no bundle: host.LoadScript refuses those, whichever is asked for.
func (r *ScriptReplayer) choose(ctx context.Context, rt *sandbox.Runtime, own keep.Deployment, q api.ReplayRequest) (*sandbox.Bundle, keep.Definition, error) {
	other := own
	switch {
	case q.Script != nil && q.Version != "":
		return nil, own.Definition, &api.ScriptError{Mistakes: []api.Mistake{{File: q.Script.File, Message: "a script and a version: name one of them"}}}
	case q.Script != nil:
		w, err := loadScript(ctx, rt, *q.Script)
		if err != nil {
			return nil, own.Definition, asScriptError(err)
		}
		return w.Bundle, w.Definition, nil
	case q.Version == "":
		return nil, own.Definition, nil
	case q.Version == "current":
		w, err := r.DB.Workflow(ctx, own.Workflow)
		if err != nil {
			return nil, own.Definition, err
		}
		other.Version = w.Version
	default:
		v, err := keep.ParseVersion(q.Version)
		if err != nil {
			return nil, own.Definition, &keep.NotFoundError{What: "version", ID: q.Version}
		}
		other.Version = v
	}
	d, err := r.DB.Deployment(ctx, own.Workflow, other.Version)
	if errors.Is(err, keep.ErrNotFound) {
		return nil, own.Definition, &keep.NotFoundError{What: "version", ID: q.Version}
	}
	return &sandbox.Bundle{Entry: d.Entry, Code: d.Code, Map: d.Map}, d.Definition, err
}

// replayOf returns the object of a report.
func replayOf(r *replay.Report) api.Replay {
	out := api.Replay{
		Run: r.Run, Version: r.Version.String(), Verdict: string(r.Verdict), Phases: r.Phases,
		Differences: []api.Difference{}, Missing: []api.Missing{},
	}
	for _, d := range r.Differences {
		out.Differences = append(out.Differences, api.Difference{Phase: d.Phase, What: string(d.What), Recorded: d.Recorded, Now: d.Now})
	}
	for _, m := range r.Missing {
		if m.Params == nil {
			m.Params = []byte("null")
		}
		out.Missing = append(out.Missing, api.Missing(m))
	}
	return out
}

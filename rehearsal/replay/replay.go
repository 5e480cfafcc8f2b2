package replay

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector"
	"github.com/keep-run/keep/engine"
	"github.com/keep-run/keep/law/lifecycle"
	"github.com/keep-run/keep/law/policy"
	"github.com/keep-run/keep/law/trace"
	"github.com/keep-run/keep/rehearsal"
	"github.com/keep-run/keep/store"
	"github.com/keep-run/keep/store/memory"
)

// A Store has the run and what is recorded of it. It is read only, and wide because runs
// depend on every noun.
type Store interface {
	store.Runs
	store.Traces
	store.Events
	store.Mutations
	store.Chains
	store.Workflows
}

// Config says what is gone through again.
type Config struct {
	// Store has the run. Required.
	Store Store

	// Run is gone through. Required.
	Run keep.RunID

	// Script and Definition are those that are tried. Required.
	Script     engine.Script
	Definition keep.Definition

	// Connections describe the tools that there are. Nothing of them is called.
	Connections []connector.Connection

	// Policy has the limits. If nil, policy.Default().
	Policy *policy.Policy
}

// A Verdict says how a replay ended.
type Verdict string

// The verdicts.
const (
	Equal        Verdict = "equal"        // everything that the run did, and nothing else
	Different    Verdict = "different"    // something else; see Report.Differences
	Inconclusive Verdict = "inconclusive" // not known; see Report.Missing
)

// A Report is what came of a replay.
type Report struct {
	Run         keep.RunID   `json:"run"`
	Version     keep.Version `json:"version"` // of the run
	Verdict     Verdict      `json:"verdict"`
	Phases      []string     `json:"phases"` // that were gone through, whole or in part
	Differences []Difference `json:"differences"`
	Missing     []Missing    `json:"missing"`
}

// A Difference is what the script does otherwise than the run did.
type Difference struct {
	Phase    string          `json:"phase"`
	What     What            `json:"what"`
	Recorded json.RawMessage `json:"recorded"` // null: nothing, or it is not kept
	Now      json.RawMessage `json:"now"`      // null: nothing
}

// What is a kind of difference.
type What string

// The kinds of differences.
const (
	OrderKey     What = "order_key" // of the events that the run had
	Reservations What = "reservations"
	Data         What = "data" // what prepare returned besides
	Call         What = "call" // another tool, a call more or a call less
	Identity     What = "identity"
	Payload      What = "payload"
	Publishes    What = "publishes"
	MadeIDs      What = "made_ids" // the same events, some under other ids that Keep made: they name the line of the call
	Items        What = "items"
	Checkpoint   What = "checkpoint"
	Failed       What = "error"
)

// A Missing is what would have to be known to continue.
type Missing struct {
	Phase  string          `json:"phase"`
	Tool   string          `json:"tool"` // or the host call; empty: the phase itself
	Params json.RawMessage `json:"params"`
	Why    string          `json:"why"` // a sentence without its end
}

// Run goes through a run. An error means that there is no such run, or that the script could
// not be executed.
func Run(ctx context.Context, cfg Config) (*Report, error) {
	run, err := cfg.Store.Run(ctx, cfg.Run)
	if err != nil {
		return nil, err
	}
	return (&Replayer{cfg: cfg}).replay(ctx, run)
}

// A Replayer goes through many runs of one workflow with one script. Only one goroutine may
// use it at a time.
type Replayer struct {
	cfg    Config
	engine *engine.Engine // nil: not made yet
}

// New returns a Replayer of the runs of a workflow. cfg.Run is not used.
func New(cfg Config, w keep.WorkflowName) (*Replayer, error) {
	e, err := newEngine(cfg, w)
	return &Replayer{cfg, e}, err
}

// Run is as the function Run.
func (p *Replayer) Run(ctx context.Context, id keep.RunID) (*Report, error) {
	run, err := p.cfg.Store.Run(ctx, id)
	if err != nil {
		return nil, err
	}
	return p.replay(ctx, run)
}

func (p *Replayer) replay(ctx context.Context, run keep.Run) (*Report, error) {
	r := &replay{cfg: p.cfg, run: run, engine: p.engine, prepared: run.Prepared, report: Report{
		Run: run.ID, Version: run.Version, Phases: []string{}, Differences: []Difference{}, Missing: []Missing{},
	}}
	phases, err := r.recorded(ctx)
	if err != nil {
		return nil, err
	}
	if len(phases) > 0 && r.engine == nil {
		if r.engine, err = newEngine(p.cfg, run.Workflow); err != nil {
			return nil, err
		}
	}
	for _, p := range phases {
		more, err := r.step(ctx, p)
		if err != nil {
			return nil, fmt.Errorf("replay %s of run %s: %w", p.name, run.ID, err)
		}
		if !more {
			break
		}
	}
	switch {
	case len(r.report.Differences) > 0:
		r.report.Verdict = Different
	case len(r.report.Missing) > 0:
		r.report.Verdict = Inconclusive
	default:
		r.report.Verdict = Equal
	}
	return &r.report, nil
}

// newEngine returns an engine that is never started: it checks and parses as one does.
func newEngine(cfg Config, w keep.WorkflowName) (*engine.Engine, error) {
	tools, err := engine.NewTools(rehearsal.Describe(cfg.Connections))
	if err != nil {
		return nil, err
	}
	return engine.New(given{memory.New(), w}, nil, tools, engine.Config{
		Policy: cfg.Policy, Logger: slog.New(slog.NewTextHandler(io.Discard, nil)),
	})
}

// given is an empty database whose inputs are all there: those that a script names were
// given to it.
type given struct {
	*memory.Store
	workflow keep.WorkflowName
}

// Input implements store.Inputs. The engine asks whether it is one of the workflow.
func (g given) Input(_ context.Context, id keep.InputID) (keep.Input, error) {
	return keep.Input{ID: id, Workflow: g.workflow}, nil
}

// A replay is under way.
type replay struct {
	cfg      Config
	run      keep.Run
	engine   *engine.Engine
	trigger  keep.Event      // that prepare began with, as it was then; zero: none
	prepared json.RawMessage // what prepare returned
	idle     bool            // prepare reserved nothing
	report   Report
}

// A phase is what is recorded of one.
type phase struct {
	name    string
	seen    []trace.Entry
	dropped bool // some of seen may be missing
	end     trace.Entry
}

// recorded returns the phases that the run came to the end of, in their order, each as the
// run went through it last. What hinders a replay is said in the report.
func (r *replay) recorded(ctx context.Context) ([]phase, error) {
	parts, err := r.cfg.Store.Trace(ctx, r.run.ID)
	if err != nil {
		return nil, err
	}
	if len(parts) == 0 {
		if nothing, err := r.executedNothing(ctx); err != nil || nothing {
			return nil, err
		}
		r.missing("", "", nil, "what the run saw was not recorded, or is not kept any more ([trace] in keep.toml)")
		return nil, nil
	}
	t, err := trace.Join(parts)
	if err != nil {
		r.missing("", "", nil, "what the run saw is damaged: "+err.Error())
		return nil, nil
	}
	if t.Gap {
		r.missing("", "", nil, "a part of what the run saw is not kept any more ([trace] in keep.toml)")
		return nil, nil
	}
	ended, open := split(t)
	for _, p := range ended {
		if p.end.Script == nil {
			r.missing(p.name, "", nil, "an earlier version of Keep recorded it, without the clock and the chance of the script")
			return nil, nil
		}
	}
	switch {
	case t.Dropped > 0 && !r.complete(ended):
		r.missing("", "", nil, fmt.Sprintf("%d entries did not fit into [trace] limit", t.Dropped))
	case open != "":
		r.missing(open, "", nil, "the run ended within this phase")
	case len(ended) == 0 && r.executes():
		r.missing("", "", nil, "no phase of the script is recorded")
	}
	return ended, nil
}

// split returns the phases of a trace that came to their end, and the one that did not.
func split(t trace.Trace) (ended []phase, open string) {
	seen := make(map[string][]trace.Entry)
	at := make(map[string]int)
	for _, e := range t.Entries {
		switch e.What {
		case trace.Read:
			seen[e.Phase] = append(seen[e.Phase], e)
		case trace.Phase:
			p := phase{name: e.Phase, seen: seen[e.Phase], dropped: t.Dropped > 0, end: e}
			delete(seen, e.Phase)
			if i, again := at[e.Phase]; again {
				ended[i] = p
				continue
			}
			at[e.Phase] = len(ended)
			ended = append(ended, p)
		}
	}
	for _, name := range []string{"prepare", "mutate", "next", "handler"} {
		if len(seen[name]) > 0 {
			open = name
		}
	}
	return ended, open
}

// executes reports whether a committed run of this kind executed any function for sure.
func (r *replay) executes() bool { return r.run.Kind != keep.Consumer || r.run.Chain == r.run.ID }

// executedNothing reports whether the run certainly executed no function, so that there was nothing
// to record: it was made and committed in one step because the call of an earlier run of its chain
// was settled, or done as a person says, and the handler has no next.
func (r *replay) executedNothing(ctx context.Context) (bool, error) {
	if r.executes() || r.run.Rev != 1 {
		return false, nil
	}
	own, err := r.cfg.Store.Deployment(ctx, r.run.Workflow, r.run.Version)
	if err != nil {
		return false, err
	}
	for _, d := range []keep.Definition{own.Definition, r.cfg.Definition} {
		if h, ok := d.Handler(r.run.Handler); !ok || h.HasNext {
			return false, nil
		}
	}
	if r.run.Mutation == "" {
		return r.treated(ctx)
	}
	m, err := r.cfg.Store.Mutation(ctx, r.run.Mutation)
	if isNotFound(err) {
		return false, nil
	}
	return lifecycle.Settled(m.State), err
}

// complete reports whether the phase that ends the run is among those that are recorded.
func (r *replay) complete(ended []phase) bool {
	if len(ended) == 0 {
		return false
	}
	last := ended[len(ended)-1].name
	if r.run.Kind != keep.Consumer {
		return last == "handler"
	}
	return last == "next"
}

// step goes through a phase, and reports whether the next one can be.
func (r *replay) step(ctx context.Context, p phase) (bool, error) {
	args, ok, err := r.args(ctx, p)
	if err != nil || !ok {
		return false, err
	}
	r.report.Phases = append(r.report.Phases, p.name)
	if begins, err := r.compareKey(ctx, p); err != nil || !begins {
		return false, err
	}
	got, err := r.execute(ctx, p, args)
	if err != nil {
		return false, err
	}
	if f := got.Failure; f != nil && f.Code == "unknown-tool" && p.end.Error == nil {
		r.missing(p.name, string(f.Tool), nil, f.Message)
		return false, nil
	}
	if u := got.Unknown; u != nil {
		why := u.Why
		if p.dropped {
			why += ", or it did not fit into [trace] limit"
		}
		r.missing(p.name, u.Tool, u.Params, why)
		r.compareAsked(p, got) // up to there
		return false, nil
	}
	same, err := r.compare(ctx, p, got)
	if err != nil {
		return false, err
	}
	if p.name == "prepare" {
		r.prepared, r.idle = got.Result, len(got.Reservations) == 0
	}
	return same && got.Failure == nil, nil
}

// execute executes a phase. One that the script does not have does nothing, nor does mutate if
// nothing is reserved, as in a run.
func (r *replay) execute(ctx context.Context, p phase, args []json.RawMessage) (engine.ReplayResult, error) {
	h, ok := r.cfg.Definition.Handler(r.run.Handler)
	if ok && h.Kind == keep.Consumer && (p.name == "mutate" && (!h.HasMutate || r.idle) || p.name == "next" && !h.HasNext) {
		return engine.ReplayResult{Out: trace.Digest[json.RawMessage](nil)}, nil
	}
	return r.engine.Replay(ctx, engine.Replay{Script: r.cfg.Script, Definition: r.cfg.Definition, Run: r.run},
		engine.ReplayPhase{Name: p.name, Args: args, Seen: p.seen, Clock: p.end.Script.Clock, Seed: p.end.Script.Seed})
}

// missing says what is not known.
func (r *replay) missing(phase, tool string, params json.RawMessage, why string) {
	r.report.Missing = append(r.report.Missing, Missing{phase, tool, params, why})
}

// differs says what the script does otherwise.
func (r *replay) differs(phase string, what What, recorded, now any) {
	r.report.Differences = append(r.report.Differences, Difference{phase, what, asJSON(recorded), asJSON(now)})
}

// asJSON returns v as JSON; nothing is null.
func asJSON(v any) json.RawMessage {
	if raw, ok := v.(json.RawMessage); ok && len(raw) == 0 {
		return json.RawMessage("null")
	}
	b, err := json.Marshal(v)
	if err != nil {
		return json.RawMessage("null") // of what no store and no script can hold
	}
	return b
}

func isNotFound(err error) bool { return errors.Is(err, keep.ErrNotFound) }

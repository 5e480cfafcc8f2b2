package repair

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector"
	"github.com/keep-run/keep/engine"
	"github.com/keep-run/keep/host"
	"github.com/keep-run/keep/law/grant"
	"github.com/keep-run/keep/law/policy"
	"github.com/keep-run/keep/law/rename"
	law "github.com/keep-run/keep/law/repair"
	"github.com/keep-run/keep/rehearsal"
	"github.com/keep-run/keep/script/sandbox"
	"github.com/keep-run/keep/script/workflow"
	"github.com/keep-run/keep/store"
	"github.com/keep-run/keep/store/memory"
)

// A Store has the runs and what is recorded of them. It is read only, and wide because runs
// depend on every noun.
type Store interface {
	host.Names
	store.Workflows
	store.Grants
	store.Runs
	store.Traces
	store.Chains
	store.Events
	store.Inputs
	store.Lineage
	store.Mutations
	store.Rivals
	store.Escalations
}

// A Comparer goes through the recorded runs of a version with another script.
type Comparer interface {
	// Compare says what would have been otherwise, besides in the phase in which the run that
	// failed did so.
	Compare(ctx context.Context, base keep.Deployment, script engine.Script, d keep.Definition, failed keep.Run) (law.Comparison, error)
}

// A Bench is what proposals are tried with.
type Bench struct {
	Store       Store
	Connections []connector.Connection // described: nothing of them is called
	Runtime     *sandbox.Runtime
	Policy      *policy.Policy // nil: policy.Default()
	Comparer    Comparer
}

// MaxSource bounds the text of a proposal, in bytes (law: bounded).
const MaxSource = 1 << 20

// A Base is the version that failed.
type Base struct {
	keep.Deployment
	Script law.Script
	Files  map[string]string // texts, by the names that errors use
}

// Text returns all that the base is made of.
func (b Base) Text() string {
	var all strings.Builder
	for _, name := range slices.Sorted(maps.Keys(b.Files)) {
		all.WriteString(b.Files[name] + "\n")
	}
	return all.String()
}

// Source returns the text of the file that declares the workflow.
func (b Base) Source() string { return b.Files[b.Entry] }

// Base reads a version.
func (b *Bench) Base(ctx context.Context, w keep.WorkflowName, v keep.Version) (Base, error) {
	d, err := b.Store.Deployment(ctx, w, v)
	if err != nil {
		return Base{}, err
	}
	loaded, err := host.LoadBundle(ctx, b.Runtime, &sandbox.Bundle{Entry: d.Entry, Code: d.Code, Map: d.Map})
	if err != nil {
		return Base{}, fmt.Errorf("load version %s of %s: %w", v, w, err)
	}
	effects, err := workflow.Effects(loaded.Declaration, loaded.Sources, b.Connections)
	if err != nil {
		return Base{}, err
	}
	if _, ok := loaded.Sources[d.Entry]; !ok {
		return Base{}, fmt.Errorf("the source of version %s of %s is not kept", v, w)
	}
	return Base{Deployment: d, Script: scriptOf(d.Definition, loaded.Sources, effects), Files: loaded.Sources}, nil
}

func scriptOf(d keep.Definition, files map[string]string, effects workflow.Report) law.Script {
	s := law.Script{Definition: d, Files: slices.Sorted(maps.Keys(files)), Names: effects.Names, Keys: make(map[keep.HandlerName]string), Code: make(map[keep.HandlerName]string)}
	for _, t := range effects.Tools {
		s.Calls = append(s.Calls, t.Tool)
	}
	for _, h := range effects.Handlers {
		s.Code[h.Handler] = h.Code
		if h.Key != "" {
			s.Keys[h.Handler] = h.Key
		}
	}
	return s
}

// A Tried is a proposal after it was tried.
type Tried struct {
	Workflow *host.Workflow // nil: it cannot be read
	Verdict  law.Verdict
	Reasons  []string
	Evidence law.Evidence
}

// Check reads a proposal and returns why it may not be one, in sentences. The workflow is nil
// if it cannot be read.
func (b *Bench) Check(ctx context.Context, base Base, source string) (*host.Workflow, []string, error) {
	w, _, why, err := b.check(ctx, base, source)
	return w, why, err
}

func (b *Bench) check(ctx context.Context, base Base, source string) (w *host.Workflow, now law.Script, why []string, err error) {
	if len(source) > MaxSource {
		return nil, now, []string{fmt.Sprintf("it has %d bytes, and %d at most are allowed", len(source), MaxSource)}, nil
	}
	files := make(map[string][]byte, len(base.Files))
	for name, text := range base.Files {
		files[name] = []byte(text)
	}
	files[path.Clean(base.Entry)] = []byte(source)
	bundle, err := sandbox.BuildFiles(base.Entry, files)
	if err == nil {
		w, err = host.LoadBundle(ctx, b.Runtime, bundle)
	}
	if err == nil { // it has the names that scripts give, and the base those of the database
		w, err = host.Continued(ctx, b.Store, w)
	}
	if err != nil {
		if ctx.Err() != nil || !mistake(err) {
			return nil, now, nil, err
		}
		return nil, now, []string{err.Error()}, nil
	}
	effects, err := workflow.Effects(w.Declaration, w.Sources, b.Connections)
	if err != nil {
		return nil, now, nil, err
	}
	for _, f := range effects.Findings {
		if f.Severity == workflow.Error {
			why = append(why, fmt.Sprintf("%s:%d: %s", f.Position.File, f.Position.Line, f.Text()))
		}
	}
	g, err := b.Store.Grant(ctx, base.Workflow)
	if err != nil && !errors.Is(err, keep.ErrNotFound) {
		return nil, now, nil, err
	}
	now = scriptOf(w.Definition, w.Sources, effects)
	return w, now, append(why, law.Admit(base.Script, now, g)...), nil
}

// mistake reports whether an error is one of the author of a script.
func mistake(err error) bool {
	_, build := errors.AsType[*sandbox.BuildError](err)
	_, script := errors.AsType[*sandbox.ScriptError](err)
	_, limit := errors.AsType[*sandbox.LimitError](err)
	_, declared := errors.AsType[*workflow.DeclarationError](err)
	_, renamed := errors.AsType[rename.Doubt](err)
	return build || script || limit || declared || renamed
}

// Try tries a proposal for a run that failed.
func (b *Bench) Try(ctx context.Context, base Base, failed keep.Run, source string) (Tried, error) {
	w, now, refused, err := b.check(ctx, base, source)
	if err != nil {
		return Tried{}, err
	}
	names := slices.Concat(base.Script.Names, now.Names)
	for _, c := range b.Connections {
		for _, tool := range c.Tools {
			names = append(names, c.Name+"."+tool.Spec().Name)
		}
	}
	t := Tried{Workflow: w, Evidence: law.Evidence{Refused: refused, Rekeyed: law.Rekeyed(base.Script, now), Names: names}}
	if len(refused) == 0 {
		if err := b.evidence(ctx, base, failed, w, &t.Evidence); err != nil {
			return Tried{}, err
		}
		t.Evidence.Reworked = law.Reworked(base.Script, now, t.Evidence.Was, t.Evidence.Is)
	}
	t.Verdict, t.Reasons = law.Judge(t.Evidence)
	return t, nil
}

// evidence executes the proposal in shadow.
func (b *Bench) evidence(ctx context.Context, base Base, failed keep.Run, w *host.Workflow, e *law.Evidence) error {
	e.Was = base.Text()
	for _, name := range slices.Sorted(maps.Keys(w.Sources)) {
		e.Is += w.Sources[name] + "\n"
	}
	e.Rekeyed = append(e.Rekeyed, law.Rebased(e.Was, e.Is, base.Script.Keys)...)
	timed, err := b.timed(ctx, w)
	if err != nil {
		return err
	}
	e.Timed = timed
	script, err := host.LoadScript(ctx, b.Runtime, base.Deployment, w.Bundle)
	if err != nil {
		return err
	}
	rules, err := b.rules(ctx, base.Workflow)
	if err != nil {
		return err
	}
	s, err := b.newShadow(failed, script, w.Definition, rules)
	if err != nil {
		return err
	}
	if e.Shadow, err = s.run(ctx); err != nil {
		return err
	}
	if e.Neighbours, err = b.neighbours(ctx, failed); err != nil {
		return err
	}
	e.Compared, err = b.Comparer.Compare(ctx, base.Deployment, script, w.Definition, failed)
	return err
}

// timed reports whether the top level of a script asks for the time or for chance. In shadow both are those of the base; when the
// script becomes current they are others.
func (b *Bench) timed(ctx context.Context, w *host.Workflow) (bool, error) {
	p, err := b.Runtime.Load(ctx, w.Bundle)
	if err != nil {
		return false, err
	}
	return !p.Constant(), p.Close()
}

// rules returns what the grant allows; nil: everything.
func (b *Bench) rules(ctx context.Context, w keep.WorkflowName) (*grant.Rules, error) {
	g, err := b.Store.Grant(ctx, w)
	if errors.Is(err, keep.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	rules, _ := grant.Compile(g.Tools) // a condition that cannot be used is never a yes
	return rules, nil
}

// engineOf returns an engine that is never started: it checks and parses as one does.
func (b *Bench) engineOf(w keep.WorkflowName) (*engine.Engine, error) {
	tools, err := engine.NewTools(rehearsal.Describe(b.Connections))
	if err != nil {
		return nil, err
	}
	return engine.New(given{memory.New(), w}, nil, tools, engine.Config{Policy: b.Policy, Logger: slog.New(slog.NewTextHandler(io.Discard, nil))})
}

// given is an empty database whose inputs are all there: those that a script names were given
// to it.
type given struct {
	*memory.Store
	workflow keep.WorkflowName
}

// Input implements store.Inputs.
func (g given) Input(_ context.Context, id keep.InputID) (keep.Input, error) {
	return keep.Input{ID: id, Workflow: g.workflow}, nil
}

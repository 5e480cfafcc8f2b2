package host

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector"
	"github.com/keep-run/keep/handler"
	"github.com/keep-run/keep/law/rename"
	"github.com/keep-run/keep/operator"
	"github.com/keep-run/keep/script/sandbox"
	"github.com/keep-run/keep/script/workflow"
)

// A Workflow is a script, or a workflow written in Go, that was read and checked, ready to be deployed.
type Workflow struct {
	keep.Definition
	Bundle      *sandbox.Bundle
	Declaration json.RawMessage   // as the sandbox describes it
	Sources     map[string]string // the author's files, by the names that errors use

	native *handler.Workflow // nil: it is a script
}

// Load reads the script in a file below root, and checks it without any call
// outside. The error is a *sandbox.BuildError, *sandbox.ScriptError,
// *sandbox.LimitError or *workflow.DeclarationError if the script is wrong; each
// names every problem with its file and line. See [sandbox.BundlerMain] for scripts
// whose authors are not trusted with the host.
func (h *Host) Load(ctx context.Context, root, entry string) (*Workflow, error) {
	rt, err := h.runtime.get(ctx)
	if err != nil {
		return nil, err
	}
	return Load(ctx, rt, root, entry)
}

// LoadBundle is Load for a script that is bundled already.
func (h *Host) LoadBundle(ctx context.Context, b *sandbox.Bundle) (*Workflow, error) {
	rt, err := h.runtime.get(ctx)
	if err != nil {
		return nil, err
	}
	return LoadBundle(ctx, rt, b)
}

// Load is Host.Load without a host, for a check that needs no store.
func Load(ctx context.Context, rt *sandbox.Runtime, root, entry string) (*Workflow, error) {
	b, err := sandbox.Build(root, entry)
	if err != nil {
		return nil, err
	}
	return LoadBundle(ctx, rt, b)
}

// LoadBundle is Load for a script that is bundled already.
func LoadBundle(ctx context.Context, rt *sandbox.Runtime, b *sandbox.Bundle) (*Workflow, error) {
	if name, inGo := strings.CutSuffix(b.Entry, nativeEntry); inGo {
		return nil, fmt.Errorf("workflow %s is written in Go: its handlers run only in the program that has them", name)
	}
	p, err := rt.Load(ctx, b)
	if err != nil {
		return nil, err
	}
	defer p.Close()
	w := &Workflow{Bundle: b, Declaration: p.Declaration(), Sources: sources(b.Map)}
	if w.Definition, err = workflow.Parse(w.Declaration, w.Sources); err != nil {
		return nil, err
	}
	return w, nil
}

// sources returns the files that a source map quotes.
func sources(sourceMap []byte) map[string]string {
	var m struct {
		Sources        []string `json:"sources"`
		SourcesContent []string `json:"sourcesContent"`
	}
	files := make(map[string]string)
	if json.Unmarshal(sourceMap, &m) != nil {
		return files // places are then less exact
	}
	for i, name := range m.Sources {
		if i < len(m.SourcesContent) {
			files[name] = m.SourcesContent[i]
		}
	}
	return files
}

// Deploy makes the script current and returns its version: the current one if
// nothing changed, else one with the next major number. One that says which workflow it was
// continues that one, under the name that the store has; see [Continued].
func (h *Host) Deploy(ctx context.Context, w *Workflow) (keep.Version, error) {
	d, err := h.deployment(ctx, w)
	if err != nil {
		return keep.Version{}, err
	}
	return h.Operator.Deploy(ctx, d)
}

// Replace is Deploy over the version that is current for sure; see
// operator.Operator.Replace.
func (h *Host) Replace(ctx context.Context, w *Workflow, over keep.Version) (keep.Version, error) {
	d, err := h.deployment(ctx, w)
	if err != nil {
		return keep.Version{}, err
	}
	return h.Operator.Replace(ctx, d, over)
}

// DeployGranted is Deploy, or Replace if over is not nil, of a workflow that may do only what
// it was granted; see operator.Operator.DeployGranted. A workflow that is only ever deployed
// by the others may call every tool.
func (h *Host) DeployGranted(ctx context.Context, w *Workflow, over *keep.Version, c operator.Consent) (operator.Deployed, error) {
	d, err := h.deployment(ctx, w)
	if err != nil {
		return operator.Deployed{}, err
	}
	c.Was = h.formerNames()
	return h.Operator.DeployGranted(ctx, d, over, c)
}

// formerNames returns the names that tools had before, by those of today.
func (h *Host) formerNames() map[keep.ToolName][]keep.ToolName {
	h.set.Lock()
	defer h.set.Unlock()
	names := make(map[keep.ToolName][]keep.ToolName)
	for _, c := range h.cfg.Connections {
		for _, t := range c.Tools {
			if was := connector.FormerNames(c, t.Spec()); len(was) > 0 {
				names[keep.ToolName(c.Name+"."+t.Spec().Name)] = was
			}
		}
	}
	return names
}

// deployment returns what is stored of w, under the name by which the store knows it. What is written in Go is known
// to the host from now on.
func (h *Host) deployment(ctx context.Context, w *Workflow) (keep.Deployment, error) {
	if w == nil || w.Bundle == nil {
		return keep.Deployment{}, errors.New("deploy: the workflow was not loaded: it comes from Load or LoadGo")
	}
	if h.isClosed() {
		return keep.Deployment{}, ErrClosed
	}
	if w.native != nil {
		if err := h.scripts.claim(w.Name, w.Was); err != nil {
			return keep.Deployment{}, fmt.Errorf("deploy: %w", err)
		}
	}
	loaded := w.Name
	w, err := Continued(ctx, h.store, w)
	if err != nil {
		return keep.Deployment{}, fmt.Errorf("deploy: %w", err)
	}
	if err := h.ruled(loaded, w.Name); err != nil {
		return keep.Deployment{}, fmt.Errorf("deploy: %w", err)
	}
	if w.native != nil {
		if err := h.renamed(ctx, w); err != nil {
			return keep.Deployment{}, fmt.Errorf("deploy: %w", err)
		}
	}
	if w.native != nil && h.scripts.addNative(w, h.cfg.Sandbox.Limits) {
		defer h.Engine.Reload() // the version may be current already
	}
	return keep.Deployment{
		Workflow: w.Name, Hash: w.Bundle.Hash(), Entry: w.Bundle.Entry,
		Code: w.Bundle.Code, Map: w.Bundle.Map, Definition: w.Definition,
	}, nil
}

// ruled returns an error if the configuration is about a workflow by its new name alone, so that it would not hold.
func (h *Host) ruled(fresh, first keep.WorkflowName) error {
	alone := func(names []keep.WorkflowName) bool {
		return fresh != first && slices.Contains(names, fresh) && !slices.Contains(names, first)
	}
	d := rename.Doubt{Kind: rename.Ruled, Gone: string(first), Fresh: string(fresh), Table: "Config.Only"}
	if alone(h.cfg.Only) {
		return fmt.Errorf("%w; %s", d, d.Fix())
	}
	for _, b := range h.Engine.Budgets() {
		if d.Table = fmt.Sprintf("the budget %s of Config.Budgets", b.Name); alone(b.Workflows) {
			return fmt.Errorf("%w; %s", d, d.Fix())
		}
	}
	return nil
}

// Continued returns w as db continues it: what says which workflow, topic, job or producer it was (Definition.Was) has
// the first name of that one, if db has one that was called so; see [rename.Follow]. Deploy, Replace and DeployGranted do
// this, so that nothing is done again under a new name. If it is not certain which one it was, the error wraps a
// [rename.Doubt].
func Continued(ctx context.Context, db Names, w *Workflow) (*Workflow, error) {
	if !rename.Says(w.Definition) {
		return w, nil
	}
	current, err := db.Current(ctx)
	if err != nil {
		return nil, fmt.Errorf("workflow %s: %w", w.Name, err)
	}
	d, err := rename.Follow(current, w.Definition)
	if doubt, ok := errors.AsType[rename.Doubt](err); ok {
		doubt.InGo = w.native != nil
		return nil, fmt.Errorf("%w; %s", doubt, doubt.Fix())
	}
	if err != nil {
		return nil, err
	}
	followed := *w
	followed.Definition = d
	return &followed, nil
}

// Names tells which workflows a database has, and what they are called. Every store does.
type Names interface {
	Current(ctx context.Context) ([]keep.Deployment, error)
}

package host

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector"
	"github.com/keep-run/keep/law/ledger"
	"github.com/keep-run/keep/law/rename"
	"github.com/keep-run/keep/script/workflow"
	"github.com/keep-run/keep/store"
)

// Records tells what the law about names must know of what was done. It is wide because that is all that has a name: workflows,
// versions, handlers, checkpoints, topics, calls and items. Every store does.
type Records interface {
	Names
	store.Workflows
	store.Checkpoints
	store.Topics
	store.Usage
	store.Mutations
	store.Items
	LastApplied(ctx context.Context, tools []keep.ToolName) (map[keep.ToolName]keep.Mutation, error)
}

// Renamed returns what of workflows, as [Continued] returned them, or of the connections may be, by another name, what db has work
// of; see [rename.Workflows] and [rename.Tools]. Root is where the files of scripts are; empty: it is not known which there are.
// Deploy, Replace and DeployGranted refuse a workflow in Go of which there is something. Who deploys scripts asks here first,
// with all of them: a host does not know which there are.
func Renamed(ctx context.Context, db Records, root string, workflows []*Workflow, conns []connector.Connection) ([]rename.Doubt, error) {
	return renamed(ctx, db, root, nil, workflows, conns)
}

// renamed is Renamed where others are known, by their first names, to be in use.
func renamed(ctx context.Context, db Records, root string, others []keep.WorkflowName, workflows []*Workflow, conns []connector.Connection) ([]rename.Doubt, error) {
	used, err := db.UsedTools(ctx)
	if err != nil {
		return nil, err
	}
	r := renames{db: db, used: used, workflows: workflows, others: others, conns: conns}
	tools, err := r.tools(ctx)
	if err != nil {
		return nil, err
	}
	more, err := r.ofWorkflows(ctx, root)
	return append(tools, more...), err
}

// renamed returns an error if a workflow of this program may be, by another name, what the store has work of.
func (h *Host) renamed(ctx context.Context, w *Workflow) error {
	h.set.Lock()
	conns := h.cfg.Connections
	h.set.Unlock()
	doubts, err := renamed(ctx, h.store, "", h.scripts.inProgram(), []*Workflow{w}, conns)
	errs := []error{err}
	for _, d := range doubts {
		d.InGo = true
		errs = append(errs, fmt.Errorf("%w; %s", d, d.Fix()))
	}
	return errors.Join(errs...)
}

// renames reads what the law about names must know.
type renames struct {
	db        Records
	used      map[keep.WorkflowName][]keep.ToolName
	workflows []*Workflow
	others    []keep.WorkflowName // that are in use, besides workflows
	conns     []connector.Connection
}

// tools returns the doubts about tools and connections.
//
// Of a tool that is configured no more, or whose name was another one's, the records are read: if no call of it
// can have had an effect, there is nothing that could be done twice under another name.
func (r renames) tools(ctx context.Context) ([]rename.Doubt, error) {
	configured, err := r.configured()
	if err != nil {
		return nil, err
	}
	last, err := r.last(ctx)
	if err != nil {
		return nil, err
	}
	there := make(map[keep.ToolName]bool)
	for _, t := range configured {
		there[t.Name] = true
		for _, was := range t.Was {
			there[was] = true
		}
	}
	for _, u := range last {
		for _, was := range u.Was {
			there[was] = false
		}
	}
	var used []rename.Used
	for _, w := range r.names() {
		for _, tool := range r.used[w] {
			if slices.ContainsFunc(used, func(u rename.Used) bool { return u.Tool == tool }) {
				continue
			}
			if !there[tool] {
				if did, err := r.did(ctx, w, tool); err != nil {
					return nil, err
				} else if !did {
					continue
				}
			}
			u := last[tool]
			u.Tool = tool
			used = append(used, u)
		}
	}
	return rename.Tools(used, configured), nil
}

// names returns the names of the workflows of the scripts, and those that they had before.
func (r renames) names() (out []keep.WorkflowName) {
	for _, s := range r.workflows {
		for _, w := range []keep.WorkflowName{s.Name, s.Was} {
			if w != "" {
				out = append(out, w)
			}
		}
	}
	return out
}

// last returns what the newest applied record of each tool says that the scripts used.
func (r renames) last(ctx context.Context) (map[keep.ToolName]rename.Used, error) {
	var tools []keep.ToolName
	for _, w := range r.names() {
		tools = append(tools, r.used[w]...)
	}
	slices.Sort(tools)
	last, err := r.db.LastApplied(ctx, slices.Compact(tools))
	if err != nil {
		return nil, err
	}
	used := make(map[keep.ToolName]rename.Used)
	for tool, m := range last {
		m, err = r.db.Mutation(ctx, m.Key) // its pin may be large, so a list has none
		if err != nil && !errors.Is(err, keep.ErrNotFound) {
			return nil, err
		}
		used[tool] = rename.Used{Tool: tool, Connector: m.Connector, Was: m.SentAs().Was}
	}
	return used, nil
}

// did reports whether a call of the tool may have had an effect.
//
// A call in doubt counts as one that had: it may have happened.
func (r renames) did(ctx context.Context, w keep.WorkflowName, tool keep.ToolName) (bool, error) {
	counts, err := r.db.CountMutations(ctx, keep.MutationFilter{Workflow: w, Tool: tool})
	for state, n := range counts {
		if n > 0 && ledger.MayHaveHappened(state) {
			return true, err
		}
	}
	return false, err
}

// calls returns the tools that a workflow may call, by the names of today. A function in Go may call every tool.
func (r renames) calls(w *Workflow) (map[keep.ToolName]bool, error) {
	called := make(map[keep.ToolName]bool)
	if w.native != nil {
		for _, c := range r.conns {
			for _, t := range c.Tools {
				called[keep.ToolName(c.Name+"."+t.Spec().Name)] = true
			}
		}
		return called, nil
	}
	effects, err := workflow.Effects(w.Declaration, w.Sources, r.conns)
	if err != nil {
		return nil, fmt.Errorf("effects of workflow %s: %w", w.Name, err)
	}
	for _, t := range effects.Tools {
		called[t.Tool] = true
	}
	return called, nil
}

// configured describes the tools of connections.
func (r renames) configured() ([]rename.ToolOf, error) {
	called, inGo := make(map[keep.ToolName]bool), false
	for _, w := range r.workflows {
		if w.native != nil {
			inGo = true
			continue
		}
		calls, err := r.calls(w)
		if err != nil {
			return nil, err
		}
		maps.Copy(called, calls)
	}
	var out []rename.ToolOf
	for _, c := range r.conns {
		for _, t := range c.Tools {
			spec := t.Spec()
			of := rename.ToolOf{Name: keep.ToolName(c.Name + "." + spec.Name), Connector: c.Connector, Was: connector.FormerNames(c, spec),
				New: connector.IsNew(c, spec), NewConn: c.New}
			of.Called = spec.Effect == connector.Mutate && (called[of.Name] || inGo && r.isUnused(of))
			out = append(out, of)
		}
	}
	return out, nil
}

// isUnused reports whether no workflow called a tool, and none but those that are asked about another one of its connection. Of a
// function in Go nobody knows what it calls: a tool that has work of others is no new name of what this one called.
func (r renames) isUnused(t rename.ToolOf) bool {
	names := append([]keep.ToolName{t.Name}, t.Was...)
	for w, tools := range r.used {
		ours := slices.Contains(r.names(), w)
		for _, used := range tools {
			if slices.ContainsFunc(names, func(n keep.ToolName) bool { return n == used || !ours && n.Connection() == used.Connection() }) {
				return false
			}
		}
	}
	return true
}

// ofWorkflows returns the doubts about workflows and their jobs, topics and producers.
//
// A script with a name that the database does not know may be one of its workflows: that of the same file,
// or one whose file is gone. What these did is read for nothing else.
func (r renames) ofWorkflows(ctx context.Context, root string) ([]rename.Doubt, error) {
	current, err := r.db.Current(ctx)
	if err != nil {
		return nil, err
	}
	exists := func(entry string) bool { return exists(root, entry) }
	known := func(name keep.WorkflowName) bool {
		return slices.ContainsFunc(current, func(d keep.Deployment) bool { return d.Workflow == name })
	}
	written := make([]rename.Written, len(r.workflows))
	for i, w := range r.workflows {
		written[i] = rename.Written{Definition: w.Definition}
		if written[i].Entry, err = entryOf(keep.Deployment{Entry: w.Bundle.Entry, Code: w.Bundle.Code}); err != nil {
			return nil, err
		}
	}
	stored := make([]rename.Stored, 0, len(current))
	for _, d := range current {
		if slices.Contains(r.others, d.Workflow) && !slices.Contains(r.names(), d.Workflow) {
			continue
		}
		entry, err := r.entry(ctx, d)
		if err != nil {
			return nil, err
		}
		s := rename.Stored{Name: d.Workflow, Entry: entry, Topics: d.Definition.Topics, Handlers: d.Definition.Handlers}
		for i, w := range written {
			switch {
			case w.Name == d.Workflow || w.Was == d.Workflow:
				if err := r.parts(ctx, d, w, &s); err != nil {
					return nil, err
				}
			case !known(w.Name) && (w.Entry == entry || !exists(entry)):
				if err := r.addWork(ctx, d, &s); err != nil {
					return nil, err
				}
				calls, err := r.mayRepeat(ctx, r.workflows[i], s.Did)
				if err != nil {
					return nil, err
				}
				written[i].Calls = append(written[i].Calls, calls...)
			}
		}
		stored = append(stored, s)
	}
	return rename.Workflows(stored, written, exists), nil
}

// exists reports whether there is the file, below root if that is known, or the program that versions come from.
func exists(root, entry string) bool {
	if inGo := strings.HasPrefix(entry, programEntry); inGo || root == "" {
		return !inGo // which other programs there are is not known
	}
	_, err := os.Stat(filepath.Join(root, filepath.FromSlash(entry)))
	return err == nil
}

// addWork adds to s what the law must know of a workflow that may be gone.
func (r renames) addWork(ctx context.Context, d keep.Deployment, s *rename.Stored) (err error) {
	if s.Did, s.Worked, err = r.worked(ctx, d.Workflow); err != nil {
		return err
	}
	row, err := r.db.Workflow(ctx, d.Workflow)
	s.Goes = !row.Paused && !InGo(d.Entry) // without its program it does nothing
	return err
}

// programEntry begins what is for a workflow in Go what its file is for a script: the program that it is in.
const programEntry = "program "

// entry returns where a version comes from. Where all that are asked about are scripts, it is its file.
func (r renames) entry(ctx context.Context, d keep.Deployment) (string, error) {
	inGo := func(w *Workflow) bool { return w.native != nil }
	if !InGo(d.Entry) || !slices.ContainsFunc(r.workflows, inGo) {
		return d.Entry, nil
	}
	d, err := r.db.Deployment(ctx, d.Workflow, d.Version) // with its code
	if err != nil {
		return "", err
	}
	return entryOf(d)
}

// entryOf returns where a version that was read with its code comes from: the file of a script, or the program that has it.
func entryOf(d keep.Deployment) (string, error) {
	if !InGo(d.Entry) {
		return d.Entry, nil
	}
	p, err := d.Program()
	return programEntry + p.Path, err
}

// worked returns the tools of the calls of a workflow that may have happened, and reports
// whether it has such calls or items.
func (r renames) worked(ctx context.Context, w keep.WorkflowName) (tools []keep.ToolName, worked bool, err error) {
	for _, tool := range r.used[w] {
		did, err := r.did(ctx, w, tool)
		if err != nil {
			return nil, false, err
		}
		if did {
			tools = append(tools, tool)
		}
	}
	if len(tools) > 0 {
		return tools, true, nil
	}
	worked, err = r.hasItems(ctx, w)
	return nil, worked, err
}

// mayRepeat returns the tools that a script may call and that change something, by all
// their names, and those of did that are configured no more and are of the kind of one of
// them.
func (r renames) mayRepeat(ctx context.Context, w *Workflow, did []keep.ToolName) ([]keep.ToolName, error) {
	calls, err := r.calls(w)
	if err != nil {
		return nil, err
	}
	var out []keep.ToolName
	there, kinds := make(map[keep.ToolName]bool), make(map[string]bool)
	for _, c := range r.conns {
		for _, t := range c.Tools {
			spec := t.Spec()
			name := keep.ToolName(c.Name + "." + spec.Name)
			names := append(connector.FormerNames(c, spec), name)
			for _, n := range names {
				there[n] = true
			}
			if calls[name] && spec.Effect == connector.Mutate {
				out, kinds[c.Connector] = append(out, names...), true
			}
		}
	}
	last, err := r.db.LastApplied(ctx, did)
	for _, tool := range did {
		if kind := last[tool].Connector; !there[tool] && (kinds[kind] || kind == "" && len(kinds) > 0) {
			out = append(out, tool)
		}
	}
	return out, err
}

// hasItems reports whether a workflow has items: under another name its jobs would meet them as new ones.
func (r renames) hasItems(ctx context.Context, w keep.WorkflowName) (bool, error) {
	counts, err := r.db.CountItems(ctx, keep.ItemFilter{Workflow: w})
	for _, n := range counts {
		if n > 0 {
			return true, err
		}
	}
	return false, err
}

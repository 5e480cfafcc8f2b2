package project

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/cmd/keep/internal/config"
	"github.com/keep-run/keep/cmd/keep/internal/exit"
	"github.com/keep-run/keep/cmd/keep/internal/terminal"
	"github.com/keep-run/keep/connector"
	"github.com/keep-run/keep/host"
	"github.com/keep-run/keep/law/ledger"
	"github.com/keep-run/keep/law/rename"
	"github.com/keep-run/keep/script/workflow"
	"github.com/keep-run/keep/store"
)

// A RenameError is returned when something of a project may be, by another name, what a
// database has work of.
type RenameError struct {
	Doubts []rename.Doubt
	files  map[string]string // of scripts, by the names of their workflows
}

// Error has one line for each doubt.
func (e *RenameError) Error() string {
	lines := make([]string, len(e.Doubts))
	for i, d := range e.Doubts {
		lines[i] = d.Error() + "; " + d.Fix()
	}
	return strings.Join(lines, "\n")
}

// problems returns the doubts as complaints.
func (e *RenameError) problems() []terminal.Problem {
	var out []terminal.Problem
	for _, d := range e.Doubts {
		p := terminal.Problem{Severity: string(workflow.Error), Code: "renamed", File: e.files[string(d.Workflow)], Message: d.Error(), Fix: d.Fix()}
		switch d.Kind {
		case rename.Workflow, rename.Both:
			p.File = e.files[d.Fresh]
		case rename.Ruled:
			p.File = config.Name
		}
		out = append(out, p)
	}
	return out
}

// Continue gives scripts that say which workflow they were the name by which the database
// knows it. It returns an error if the database knows both names, or if grants or budgets of cfg are
// about the other one alone.
func Continue(ctx context.Context, db host.Names, cfg *config.Config, scripts []Script) error {
	for i := range scripts {
		s := &scripts[i]
		w, err := host.Continued(ctx, db, s.Workflow)
		if both, ok := errors.AsType[rename.Doubt](err); ok {
			return exit.Misusef("%w", &RenameError{Doubts: []rename.Doubt{both}, files: map[string]string{string(s.Name): s.File}})
		}
		if err != nil {
			return err
		}
		if w.Name != s.Name {
			if doubts := ruled(cfg, s.Name, w.Name); len(doubts) > 0 {
				return exit.Misusef("%w", &RenameError{Doubts: doubts, files: map[string]string{}})
			}
		}
		s.Workflow = w
	}
	return nil
}

// ruled returns the tables of grants and budgets that are about a workflow by its new name alone.
func ruled(cfg *config.Config, fresh, first keep.WorkflowName) (out []rename.Doubt) {
	add := func(table string) {
		out = append(out, rename.Doubt{Kind: rename.Ruled, Gone: string(first), Fresh: string(fresh), Table: table})
	}
	_, isNew := cfg.GrantOf(fresh)
	if _, isFirst := cfg.GrantOf(first); isNew && !isFirst {
		add(fmt.Sprintf("[grants.%s]", fresh))
	}
	for _, b := range cfg.Budgets {
		if slices.Contains(b.Workflows, fresh) && !slices.Contains(b.Workflows, first) {
			add(fmt.Sprintf("[budgets.%s]", b.Name))
		}
	}
	return out
}

// Renamed returns a *RenameError if something of the scripts or of the connections may be,
// by another name, what the database has work of. Root is where the scripts are; empty: it
// is not known which files there are.
func Renamed(ctx context.Context, db store.Reader, root string, scripts []Script, conns []connector.Connection) error {
	used, err := db.UsedTools(ctx)
	if err != nil {
		return err
	}
	r := renames{db: db, used: used, scripts: scripts, conns: conns}
	doubts, err := r.tools(ctx)
	if err != nil {
		return err
	}
	more, err := r.workflows(ctx, root)
	if err != nil {
		return err
	}
	if doubts = append(doubts, more...); len(doubts) == 0 {
		return nil
	}
	e := &RenameError{Doubts: doubts, files: make(map[string]string)}
	for _, s := range scripts {
		e.files[string(s.Name)] = s.File
		if root != "" {
			e.files[string(s.Name)] = terminal.Short(filepath.Join(root, filepath.FromSlash(s.File)))
		}
	}
	return exit.Misusef("%w", e)
}

// renames reads what the law about names must know.
type renames struct {
	db      store.Reader
	used    map[keep.WorkflowName][]keep.ToolName
	scripts []Script
	conns   []connector.Connection
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
	for _, s := range r.scripts {
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

// calls returns the tools that a script may call, by the names of today.
func (r renames) calls(s Script) (map[keep.ToolName]bool, error) {
	effects, err := workflow.Effects(s.Declaration, s.Sources, r.conns)
	if err != nil {
		return nil, fmt.Errorf("effects of %s: %w", s.File, err)
	}
	called := make(map[keep.ToolName]bool)
	for _, t := range effects.Tools {
		called[t.Tool] = true
	}
	return called, nil
}

// configured describes the tools of connections.
func (r renames) configured() ([]rename.ToolOf, error) {
	called := make(map[keep.ToolName]bool)
	for _, s := range r.scripts {
		calls, err := r.calls(s)
		if err != nil {
			return nil, err
		}
		maps.Copy(called, calls)
	}
	var out []rename.ToolOf
	for _, c := range r.conns {
		for _, t := range c.Tools {
			spec := t.Spec()
			name := keep.ToolName(c.Name + "." + spec.Name)
			out = append(out, rename.ToolOf{Name: name, Connector: c.Connector, Was: connector.FormerNames(c, spec),
				New: connector.IsNew(c, spec), NewConn: c.New, Called: called[name] && spec.Effect == connector.Mutate})
		}
	}
	return out, nil
}

// workflows returns the doubts about workflows and their jobs, topics and producers.
//
// A script with a name that the database does not know may be one of its workflows: that of the same file,
// or one whose file is gone. What these did is read for nothing else.
func (r renames) workflows(ctx context.Context, root string) ([]rename.Doubt, error) {
	current, err := r.db.Current(ctx)
	if err != nil {
		return nil, err
	}
	exists := func(entry string) bool {
		if root == "" {
			return true
		}
		_, err := os.Stat(filepath.Join(root, filepath.FromSlash(entry)))
		return err == nil
	}
	known := func(name keep.WorkflowName) bool {
		return slices.ContainsFunc(current, func(d keep.Deployment) bool { return d.Workflow == name })
	}
	written := make([]rename.Written, len(r.scripts))
	for i, s := range r.scripts {
		written[i] = rename.Written{Definition: s.Definition, Entry: s.Bundle.Entry}
	}
	stored := make([]rename.Stored, 0, len(current))
	for _, d := range current {
		s := rename.Stored{Name: d.Workflow, Entry: d.Entry, Topics: d.Definition.Topics, Handlers: d.Definition.Handlers}
		for i, w := range written {
			switch {
			case w.Name == d.Workflow || w.Was == d.Workflow:
				if err := r.parts(ctx, d, w, &s); err != nil {
					return nil, err
				}
			case !known(w.Name) && (w.Entry == d.Entry || !exists(d.Entry)):
				if s.Did, s.Worked, err = r.worked(ctx, d.Workflow); err != nil {
					return nil, err
				}
				row, err := r.db.Workflow(ctx, d.Workflow)
				if err != nil {
					return nil, err
				}
				s.Goes = !row.Paused
				calls, err := r.mayRepeat(ctx, r.scripts[i], s.Did)
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

// NamesOf returns the names of scripts.
func NamesOf(scripts []Script) (names []keep.WorkflowName) {
	for _, s := range scripts {
		names = append(names, s.Name)
	}
	return names
}

// WithoutScript returns the workflows that continue as a database has them, though none of those of which a project has
// scripts, by the names of the database, is of them. Another project may have theirs. The ledger of the calls of agents, and
// workflows written in Go, have no script anywhere; entry returns that of the version in force.
func WithoutScript(all []keep.Workflow, ours []keep.WorkflowName, entry func(keep.WorkflowName) (string, error)) (names []string, err error) {
	for _, w := range all {
		if w.Paused || slices.Contains(ours, w.Name) {
			continue
		}
		d := keep.Deployment{Workflow: w.Name}
		if d.Entry, err = entry(w.Name); err != nil {
			return nil, err
		}
		if host.HasScript(d) {
			names = append(names, string(w.Name))
		}
	}
	return names, nil
}

// Entries returns the files of the versions that are in force, as a function of the workflow.
func Entries(ctx context.Context, db store.Reader) func(keep.WorkflowName) (string, error) {
	current := sync.OnceValues(func() ([]keep.Deployment, error) { return db.Current(ctx) })
	return func(w keep.WorkflowName) (string, error) {
		all, err := current()
		for _, d := range all {
			if d.Workflow == w {
				return d.Entry, err
			}
		}
		return "", err
	}
}

// Continues says that workflows continue without a script.
func Continues(names []string) string {
	return fmt.Sprintf("no script here has the name of %s, which continues in the database", strings.Join(names, ", "))
}

// HowToEnd says how workflows that continue without a script end.
func HowToEnd(names []string) string {
	return "if nothing else has its script, end it: keep pause " + names[0]
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
func (r renames) mayRepeat(ctx context.Context, s Script, did []keep.ToolName) ([]keep.ToolName, error) {
	calls, err := r.calls(s)
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

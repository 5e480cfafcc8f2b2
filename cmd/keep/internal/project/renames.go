package project

import (
	"context"
	"errors"
	"fmt"
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

// A TwinError is returned when two scripts continue one workflow of a database, by names that it had one after the other: each
// deploy would put one in the place of the other, and what the other one does would be done no more.
type TwinError struct {
	Workflow keep.WorkflowName // by the name of the database
	scripts  [2]Script
}

// Error names both.
func (e *TwinError) Error() string {
	return fmt.Sprintf("the workflows %s (%s) and %s (%s) are both what the database continues as %s: each deploy would put one in the place of the other",
		writtenName(e.scripts[0]), e.scripts[0].File, writtenName(e.scripts[1]), e.scripts[1].File, e.Workflow)
}

// problems returns it as a complaint about the second one.
func (e *TwinError) problems() []terminal.Problem {
	return []terminal.Problem{{Severity: string(workflow.Error), Code: "renamed", File: e.scripts[1].File, Message: e.Error(),
		Fix: "take was out of one of them, and give it a name that no workflow had"}}
}

// writtenName returns the name that a script gives its workflow.
func writtenName(s Script) string {
	for _, r := range s.Renamed {
		if r.Kind == keep.RenamedWorkflow {
			return r.Name
		}
	}
	return string(s.Name)
}

// Apart returns a *TwinError if two scripts have one name, that of the database.
func Apart(scripts []Script) error {
	for i, s := range scripts {
		if k := slices.IndexFunc(scripts[:i], func(o Script) bool { return o.Name == s.Name }); k >= 0 {
			return exit.Misusef("%w", &TwinError{s.Name, [2]Script{scripts[k], s}})
		}
	}
	return nil
}

// Continue gives scripts that say which workflow they were the name by which the database
// knows it. It returns an error if the database knows both names, if two of them are one workflow there, or if grants, budgets or
// retention of cfg are about the other one alone.
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
	return Apart(scripts)
}

// ruled returns the tables of grants, budgets and retention that are about a workflow by its new name alone.
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
	kept := cfg.Retention.Workflows
	if _, isNew := kept[fresh]; isNew {
		if _, isFirst := kept[first]; !isFirst {
			add("[retention.workflows]")
		}
	}
	return out
}

// Ruled returns a *RenameError if grants, budgets or retention of cfg are about a workflow of a database by a name that it got later,
// and not by its first one, by which they are held. What another workflow is called first is about that one.
func Ruled(ctx context.Context, db host.Names, cfg *config.Config) error {
	current, err := db.Current(ctx)
	if err != nil {
		return err
	}
	var doubts []rename.Doubt
	for _, d := range current {
		for _, r := range d.Definition.Renamed {
			fresh := keep.WorkflowName(r.Name)
			taken := slices.ContainsFunc(current, func(d keep.Deployment) bool { return d.Workflow == fresh })
			if r.Kind == keep.RenamedWorkflow && !taken {
				doubts = append(doubts, ruled(cfg, fresh, d.Workflow)...)
			}
		}
	}
	if len(doubts) == 0 {
		return nil
	}
	return exit.Misusef("%w", &RenameError{Doubts: doubts, files: map[string]string{}})
}

// Renamed returns a *RenameError if something of the scripts or of the connections may be,
// by another name, what the database has work of. Root is where the scripts are; empty: it
// is not known which files there are.
func Renamed(ctx context.Context, db store.Reader, root string, scripts []Script, conns []connector.Connection) error {
	workflows := make([]*host.Workflow, len(scripts))
	for i, s := range scripts {
		workflows[i] = s.Workflow
	}
	doubts, err := host.Renamed(ctx, db, root, workflows, conns)
	if err != nil || len(doubts) == 0 {
		return err
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

package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/api"
	"github.com/keep-run/keep/config"
	"github.com/keep-run/keep/host"
	"github.com/keep-run/keep/sandbox"
	"github.com/spf13/cobra"
)

// deployCmd puts scripts into the database of a host that may be running.
func (a *app) deployCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "deploy PATH",
		Short: "Deploy into the database, beside a running daemon",
		Long: `Deploy checks the scripts of a file or a directory and makes them the current
versions in the database. A running host takes them up within a second. A run
that failed because of its script is tried again with the new one; an unknown
outcome stays blocked. A script that did not change keeps its version.

Items stay what they are. Which of them a new version will not come to again is not
known before it runs, so deploy says how many are not done.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return a.deploy(cmd.Context(), args[0]) },
	}
}

// A deployed is what became of one script.
type deployed struct {
	Workflow keep.WorkflowName `json:"workflow"`
	Version  string            `json:"version"`
	Changed  bool              `json:"changed"`
}

// deploy loads everything before it opens the database, so that a mistake in one
// script leaves all of them as they were.
func (a *app) deploy(ctx context.Context, path string) (err error) {
	p, err := a.openProject(path)
	if err != nil {
		return a.rejected(p, err)
	}
	// The connections are only checked: nothing is called here.
	conns, err := p.cfg.Connect()
	if err := errors.Join(err, closeAll(conns)); err != nil {
		return err
	}
	a.complain(ofConfig(p.cfg.Warnings, "warning"))
	rt, err := a.openRuntime(ctx, p.cfg)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, rt.Close()) }()
	scripts, found, err := a.loadToRun(ctx, rt, p)
	if err != nil {
		return err
	}
	if a.complain(found); len(found) > 0 {
		return said(exitMisused)
	}
	return a.askOf(ctx, p.cfg, a.openingToDeploy(p, rt), func(c *api.Client) error {
		out, err := a.deployScripts(ctx, c, p, scripts)
		if err != nil {
			return err
		}
		return a.printDeployed(out)
	})
}

// openingToDeploy opens the database as what takes scripts. The tools that they
// may use are those of the project.
func (a *app) openingToDeploy(p *project, rt *sandbox.Runtime) opener {
	return func(ctx context.Context, cfg *config.Config) (database, actors, func() error, error) {
		conns, err := cfg.Describe()
		if err != nil {
			return nil, actors{}, nil, errors.Join(err, closeAll(conns))
		}
		db, err := openStore(ctx, cfg, toDeploy)
		if err != nil {
			return nil, actors{}, nil, errors.Join(err, closeAll(conns))
		}
		h, err := host.Open(ctx, db, host.Config{Policy: &cfg.Policy, Runtime: rt, Logger: a.log})
		if err != nil {
			return nil, actors{}, nil, errors.Join(err, db.Close(), closeAll(conns))
		}
		closer := func() error { return errors.Join(h.Close(), db.Close(), closeAll(conns)) }
		return db, actors{h, &scriptDeployer{a: a, host: h, runtime: rt, conns: conns}}, closer, nil
	}
}

// deployScripts makes each script current, in the place of the version that is
// current now.
func (a *app) deployScripts(ctx context.Context, c *api.Client, p *project, scripts []script) ([]deployed, error) {
	all, err := c.Workflows(ctx)
	if err != nil {
		return nil, err
	}
	before := make(map[keep.WorkflowName]string, len(all))
	for _, w := range all {
		before[w.Name] = w.Version
	}
	out := []deployed{}
	for _, s := range scripts {
		w, err := c.Deploy(ctx, s.Name, textOf(s), before[s.Name])
		switch {
		case errors.Is(err, keep.ErrStale):
			return nil, fmt.Errorf("deploy %s: somebody else deployed it meanwhile: %w; see keep workflows versions %s", s.file, err, s.Name)
		case err != nil:
			if found := a.complaints(p.root, err); len(found) > 0 {
				a.complain(found)
				fmt.Fprintln(a.err, "The daemon refused it. It has the connections of its start: if keep.toml changed since, restart it.")
				return nil, said(exitMisused)
			}
			return nil, fmt.Errorf("deploy %s: %w", s.file, err)
		}
		changed := before[s.Name] != w.Version
		if changed {
			if err := a.warnOfItems(ctx, c, s); err != nil {
				return nil, err
			}
		}
		out = append(out, deployed{s.Name, w.Version, changed})
	}
	return out, nil
}

// textOf returns the files of a script as a daemon takes them.
func textOf(s script) api.Script {
	out := api.Script{File: s.Bundle.Entry, Imports: make(map[string]string)}
	for name, text := range s.Bundle.Files {
		if name == s.Bundle.Entry {
			out.Source = string(text)
		} else {
			out.Imports[name] = string(text)
		}
	}
	return out
}

// printDeployed says which scripts have a new version.
func (a *app) printDeployed(out []deployed) error {
	if a.json {
		return a.printJSON(out)
	}
	t := table{header: []string{"WORKFLOW", "VERSION", "CHANGED"}}
	for _, d := range out {
		t.add(string(d.Workflow), d.Version, map[bool]string{true: "yes", false: "no"}[d.Changed])
	}
	return t.print(a.out, a.outInk)
}

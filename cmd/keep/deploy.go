package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/api"
	"github.com/keep-run/keep/cmd/keep/internal/client"
	"github.com/keep-run/keep/cmd/keep/internal/config"
	"github.com/keep-run/keep/cmd/keep/internal/daemon"
	"github.com/keep-run/keep/cmd/keep/internal/database"
	"github.com/keep-run/keep/cmd/keep/internal/exit"
	"github.com/keep-run/keep/cmd/keep/internal/project"
	"github.com/keep-run/keep/cmd/keep/internal/terminal"
	"github.com/keep-run/keep/host"
	"github.com/keep-run/keep/law/rename"
	"github.com/keep-run/keep/script/sandbox"
)

// deployCmd puts scripts into the database of a host that may be running. A daemon takes them if
// there is one: it knows its connections. Without one this process does the same.
func (a *app) deployCmd() *cobra.Command {
	compare := false
	cmd := &cobra.Command{
		Use:   "deploy PATH",
		Short: "Deploy into the database, beside a running daemon",
		Long: `Deploy checks the scripts of a file or a directory and makes them the current
versions in the database. A running host takes them up within a second. A run
that failed because of its script is tried again with the new one; an unknown
outcome stays blocked. A script that did not change keeps its version.

Items stay as they are. A new version may not come to all of them again, which is not
known before it runs: deploy says how many are not done.

With --compare nothing is deployed: the recorded runs of the current versions are gone
through with the scripts, and it says what would have been otherwise (exit code 0 if
nothing, 4 if a person should look).`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return a.deploy(cmd.Context(), args[0], compare) },
	}
	cmd.Flags().BoolVar(&compare, "compare", false, "deploy nothing; say what would have been otherwise")
	return cmd
}

// A deployed is what became of one script. Changed tells a new version from one that was current
// already; a version that calls more than is granted is stored, and waits.
type deployed struct {
	Workflow keep.WorkflowName `json:"workflow"`
	Version  string            `json:"version"`
	Changed  bool              `json:"changed"`
	Waiting  *api.Proposed     `json:"waiting"` // null: the version is current
}

// deploy loads everything before it opens the database, so that a mistake in one
// script leaves all of them as they were.
func (a *app) deploy(ctx context.Context, path string, compare bool) (err error) {
	p, err := a.OpenProject(path)
	if err != nil {
		return project.WithConnectionErrors(p, err)
	}
	// The connections are only checked: nothing is called here.
	conns, err := p.Cfg.Connect()
	if err := errors.Join(err, project.CloseConnections(conns)); err != nil {
		return err
	}
	a.PrintProblems(project.ConfigProblems(p.Cfg.Warnings, "warning"))
	rt, err := project.OpenSandbox(ctx, p.Cfg, a.log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, rt.Close()) }()
	scripts, found, err := project.LoadToRun(ctx, rt, p)
	if err != nil {
		return err
	}
	if a.PrintProblems(found); len(found) > 0 {
		return exit.With(exit.Misused)
	}
	// A database that is not there has no runs: all scripts are new.
	if compare {
		err := a.client().Call(ctx, p.Cfg, a.opening(database.ToRead), func(c *api.Client) error { return a.compareScripts(ctx, c, p, scripts) })
		if errors.Is(err, keep.ErrNoDatabase) {
			return a.compareWithNothing(scripts)
		}
		return err
	}
	return a.client().Call(ctx, p.Cfg, a.openingToDeploy(p, rt), func(c *api.Client) error {
		out, err := a.deployScripts(ctx, c, p, scripts)
		if err != nil {
			return errors.Join(err, a.sayDeployedBefore(out))
		}
		if isDir(path) {
			if err := a.sayWithoutScript(ctx, c, out); err != nil {
				return err
			}
		}
		return a.printDeployed(out)
	})
}

// sayWithoutScript says which workflows continue though the scripts that were deployed, which are all of the project, are
// of others.
func (a *app) sayWithoutScript(ctx context.Context, c *api.Client, out []deployed) error {
	all, err := c.Workflows(ctx)
	if err != nil {
		return err
	}
	rows := make([]keep.Workflow, len(all))
	for i, w := range all {
		rows[i] = keep.Workflow{Name: w.Name, Paused: w.Paused}
	}
	var ours []keep.WorkflowName
	for _, d := range out {
		ours = append(ours, d.Workflow)
	}
	return a.sayContinuing(rows, ours, func(w keep.WorkflowName) (string, error) {
		versions, err := c.Versions(ctx, w)
		for _, v := range versions {
			if v.State == api.VersionCurrent {
				return v.Entry, err
			}
		}
		return "", err
	})
}

// sayContinuing says which workflows continue without a script.
func (a *app) sayContinuing(all []keep.Workflow, ours []keep.WorkflowName, entry func(keep.WorkflowName) (string, error)) error {
	names, err := project.WithoutScript(all, ours, entry)
	if len(names) > 0 {
		fmt.Fprintf(a.Err, "keep: %s; %s\n", project.Continues(names), project.HowToEnd(names))
	}
	return err
}

// openingToDeploy opens the database as what takes scripts. The tools that they
// may use are those of the project. The host that it opens never runs: it only plans and
// records a deploy, as the daemon would. Nothing is called, so secrets may be missing.
func (a *app) openingToDeploy(p *project.Project, rt *sandbox.Runtime) client.Opener {
	return func(ctx context.Context, cfg *config.Config) (database.DB, daemon.Actors, func() error, error) {
		conns, err := cfg.Describe()
		if err != nil {
			return nil, daemon.Actors{}, nil, errors.Join(err, project.CloseConnections(conns))
		}
		db, err := database.Open(ctx, cfg, database.ToDeploy)
		if err != nil {
			return nil, daemon.Actors{}, nil, errors.Join(err, project.CloseConnections(conns))
		}
		h, err := host.Open(ctx, db, host.Config{Policy: &cfg.Policy, Runtime: rt, Logger: a.log})
		if err != nil {
			return nil, daemon.Actors{}, nil, errors.Join(err, db.Close(), project.CloseConnections(conns))
		}
		closer := func() error { return errors.Join(h.Close(), db.Close(), project.CloseConnections(conns)) }
		return db, daemon.Actors{Actor: h, Deployer: &daemon.ScriptDeployer{Host: h, DB: db, Runtime: rt, Conns: conns, Config: func() *config.Config { return cfg }}}, closer, nil
	}
}

// continuedAs returns the name by which a database that has all continues a script. What is in doubt is refused where it
// is deployed.
func continuedAs(all []api.Workflow, d keep.Definition) keep.WorkflowName {
	var current []keep.Deployment
	for _, w := range all {
		has := keep.Deployment{Workflow: w.Name, Definition: keep.Definition{Name: w.Name}}
		for _, name := range w.Names {
			has.Definition.Renamed = append(has.Definition.Renamed, keep.Renamed{Kind: keep.RenamedWorkflow, Name: string(name), First: string(w.Name)})
		}
		current = append(current, has)
	}
	followed, err := rename.Follow(current, keep.Definition{Name: d.Name, Was: d.Was})
	if err != nil {
		return d.Name
	}
	return followed.Name
}

// continued returns scripts by the names by which a database that has all continues them. Two that are one there are refused.
func continued(all []api.Workflow, scripts []project.Script) ([]project.Script, error) {
	scripts = slices.Clone(scripts)
	for i, s := range scripts {
		// The loaded script is shared; only the name of this copy changes.
		script := *s.Workflow
		script.Name = continuedAs(all, script.Definition)
		if script.Name != s.Name {
			script.Renamed = []keep.Renamed{{Kind: keep.RenamedWorkflow, Name: string(s.Name), First: string(script.Name)}}
		}
		scripts[i].Workflow = &script
	}
	return scripts, project.Apart(scripts)
}

// deployScripts makes each script current, in the place of the version that is
// current now. The versions are read once, before the first: if somebody deploys meanwhile, the
// deploy of that script fails as stale and does not undo the other one. Scripts before it stay
// deployed; to repeat the command deploys the rest, since what did not change keeps its version. They are returned with the error, too.
func (a *app) deployScripts(ctx context.Context, c *api.Client, p *project.Project, scripts []project.Script) ([]deployed, error) {
	// What each deploy replaces is fixed here, before the first of them.
	all, err := c.Workflows(ctx)
	if err != nil {
		return nil, err
	}
	before := make(map[keep.WorkflowName]string, len(all))
	for _, w := range all {
		before[w.Name] = w.Version
	}
	if scripts, err = continued(all, scripts); err != nil {
		return nil, err
	}
	out := []deployed{}
	for _, s := range scripts {
		w, err := c.Deploy(ctx, s.Name, textOf(s), before[s.Name])
		switch {
		// Not tried again: what came in between may be the work of somebody who should be asked.
		case errors.Is(err, keep.ErrStale):
			return out, fmt.Errorf("deploy %s: somebody else deployed it meanwhile: %w; see keep workflows versions %s", s.File, err, s.Name)
		case err != nil:
			if found := project.Problems(p.Root, err); len(found) > 0 {
				a.PrintProblems(found)
				fmt.Fprintln(a.Err, "It is not deployed. Where a host runs, it has the connections that are in force: keep status says whether keep.toml as it is now is.")
				return out, exit.With(exit.Misused)
			}
			return out, fmt.Errorf("deploy %s: %w", s.File, err)
		}
		// Not current, so that nothing of it meets items or runs yet.
		if w.Waiting != nil {
			out = append(out, deployed{s.Name, w.Version, false, w.Waiting})
			continue
		}
		changed := before[s.Name] != w.Version
		out = append(out, deployed{s.Name, w.Version, changed, nil})
		// An unchanged script finds the same items and runs as before: there is nothing to warn of.
		if changed {
			if err := a.warnOfItems(ctx, c, s); err != nil {
				return out, err
			}
			if err := a.warnOfOrder(ctx, c, s); err != nil {
				return out, err
			}
			if err := a.warnOfReturn(ctx, c, s.Name, s.Bundle, before[s.Name]); err != nil {
				return out, err
			}
		}
	}
	return out, nil
}

// textOf returns the files of a script as a daemon takes them, and gives it what it calls: who
// deploys from a shell agrees to his own script, unless keep.toml grants something else.
func textOf(s project.Script) api.Script {
	out := filesOf(s.Bundle)
	out.Give = true
	return out
}

// filesOf returns the files of a bundle as a daemon takes them.
func filesOf(b *sandbox.Bundle) api.Script {
	out := api.Script{File: b.Entry, Imports: make(map[string]string)}
	for name, text := range b.Files {
		if name == b.Entry {
			out.Source = string(text)
		} else {
			out.Imports[name] = string(text)
		}
	}
	return out
}

// sayDeployedBefore says which scripts have a new version, or one that waits, although the deploy of another one failed.
func (a *app) sayDeployedBefore(out []deployed) error {
	out = slices.DeleteFunc(out, func(d deployed) bool { return !d.Changed && d.Waiting == nil })
	if len(out) == 0 {
		return nil
	}
	fmt.Fprintln(a.Err, "Not all scripts were deployed. These were, before that, and stay so:")
	_, err := a.listDeployed(out)
	return err
}

// printDeployed says which scripts have a new version. The status is 4 if one waits: a pipeline
// that deploys must not take that for done.
func (a *app) printDeployed(out []deployed) error {
	waits, err := a.listDeployed(out)
	if err == nil && waits {
		err = exit.With(exit.NeedsPerson)
	}
	return err
}

// listDeployed lists scripts, and reports whether a version of one waits.
func (a *app) listDeployed(out []deployed) (waits bool, err error) {
	t := terminal.Table{Header: []string{"WORKFLOW", "VERSION", "CHANGED"}}
	for _, d := range out {
		if d.Waiting == nil {
			t.Add(string(d.Workflow), d.Version, map[bool]string{true: "yes", false: "no"}[d.Changed])
			continue
		}
		waits = true
		t.Add(string(d.Workflow), cmp.Or(d.Version, "-"), "no: "+d.Waiting.Version+" waits")
		fmt.Fprintf(a.Err, "Version %s of %s calls more than is granted. It waits for a person: keep inbox show %s\n", d.Waiting.Version, d.Workflow, d.Waiting.Question)
	}
	if a.JSON {
		return waits, a.PrintJSON(out)
	}
	return waits, t.Print(a.Out, a.OutInk)
}

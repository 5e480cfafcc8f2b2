package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/host"
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
	db, err := openStore(ctx, p.cfg, toDeploy)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	before, err := versionsOf(ctx, db)
	if err != nil {
		return err
	}
	h, err := host.Open(ctx, db, host.Config{Policy: &p.cfg.Policy, Runtime: rt, Logger: a.log})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, h.Close()) }()
	out := []deployed{}
	for _, s := range scripts {
		v, err := h.Deploy(ctx, s.Workflow)
		if err != nil {
			return fmt.Errorf("deploy %s: %w", s.file, err)
		}
		changed := before[s.Name] != v.String()
		if changed {
			if err := a.warnOfItems(ctx, db, s); err != nil {
				return err
			}
		}
		out = append(out, deployed{s.Name, v.String(), changed})
	}
	return a.printDeployed(out)
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

package main

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/api"
	"github.com/keep-run/keep/cmd/keep/internal/terminal"
	"github.com/keep-run/keep/script/sandbox"
)

// replaced returns the newest earlier version that has a script; empty: there is none.
func replaced(all []api.Version, b *sandbox.Bundle) string {
	i := slices.IndexFunc(all, func(v api.Version) bool {
		return v.State == api.VersionReplaced && v.Hash == b.Hash() && v.Entry == b.Entry
	})
	if i < 0 {
		return ""
	}
	return all[i].Version
}

// warnOfFile says that the file of a workflow still has the script of an earlier version. A file that is not on
// this disk, or has a script that was never deployed, is nothing to warn of.
func (a *app) warnOfFile(ctx context.Context, c *api.Client, name keep.WorkflowName) error {
	all, err := c.Versions(ctx, name)
	i := slices.IndexFunc(all, func(v api.Version) bool { return v.State == api.VersionCurrent })
	if err != nil || i < 0 {
		return err
	}
	now := all[i]
	if file, was := a.fileOf(all, now); was != "" {
		fmt.Fprintf(a.Err, "The file %s still has the text of version %s. keep run, dev and serve leave version %s current; keep deploy would take it back.\n"+
			"The text to put there: keep workflows show %s --source\n", file, was, now.Version, name)
	}
	return nil
}

// fileOf returns the file of a version, and the earlier version whose script it has; empty: it has none.
func (a *app) fileOf(all []api.Version, now api.Version) (file, was string) {
	cfg, _ := a.LoadConfig(".") // whatever is wrong in it, it says where the scripts are
	if cfg == nil {
		return "", ""
	}
	b, err := sandbox.Build(cfg.Dir, now.Entry)
	if err != nil || b.Hash() == now.Hash {
		return "", ""
	}
	return terminal.Short(filepath.Join(cfg.Dir, filepath.FromSlash(now.Entry))), replaced(all, b)
}

// warnOfReturn says that a deploy brought back the script of an earlier version, and which one it took back.
func (a *app) warnOfReturn(ctx context.Context, c *api.Client, name keep.WorkflowName, b *sandbox.Bundle, before string) error {
	all, err := c.Versions(ctx, name)
	if was := replaced(all, b); err == nil && was != "" && was != before { // the one before has other comments only
		fmt.Fprintf(a.Err, "Workflow %s has the text of version %s again. That takes back version %s.\n", name, was, before)
	}
	return err
}

package daemon

import (
	"context"
	"errors"
	"slices"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/cmd/keep/internal/config"
	"github.com/keep-run/keep/cmd/keep/internal/project"
	"github.com/keep-run/keep/connector"
	"github.com/keep-run/keep/host"
	"github.com/keep-run/keep/llm"
	"github.com/keep-run/keep/repair"
)

// repairsOf returns who repairs the scripts of the session, as keep.toml says; nil: nobody does.
//
// A configuration that is taken later gets a repairer of its own, with its connections and limits.
func (s *Session) repairsOf(e Env, cfg *config.Config, conns []connector.Connection) *host.Repairs {
	r := cfg.Repair
	if r == nil {
		return nil
	}
	asks := r.LLM
	asks.Retry = cfg.Policy.Retry
	model, err := llm.New(asks)
	if err != nil { // the configuration was checked
		e.Log.Error("nothing is repaired", "err", err)
		return nil
	}
	keeper := &repair.Keeper{
		Store: s.DB, Clock: e.now,
		Repairer: &repair.Repairer{
			Model: model, Name: r.Model, Limits: r.Limits,
			Bench: &repair.Bench{
				Store: s.DB, Connections: conns, Runtime: s.Runtime, Policy: &cfg.Policy,
				Comparer: repair.Recorded{Store: s.DB, Connections: conns, Policy: &cfg.Policy, Since: r.Replay, Now: e.now},
			},
		},
	}
	return &host.Repairs{Repairer: keeper, Activate: r.Activate}
}

// isNewer reports whether the version that is current came after the one that sc has the text of, by a
// repair or on the pages: who has not changed a file since does not want that taken back. keep deploy
// deploys it all the same.
func (s *Session) isNewer(ctx context.Context, e Env, sc project.Script) (bool, error) {
	w, err := s.DB.Workflow(ctx, sc.Name)
	if errors.Is(err, keep.ErrNotFound) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	all, err := s.DB.Deployments(ctx, sc.Name)
	pages := slices.ContainsFunc(all, func(d keep.Deployment) bool { return d.Version == w.Version && d.Definition.Writing.Pages })
	for _, d := range all {
		repaired := w.Version.Minor > 0 && d.Version.Major == w.Version.Major
		if (pages || repaired) && d.Version != w.Version && d.Hash == sc.Bundle.Hash() && d.Entry == sc.Bundle.Entry {
			why := "a file has the text of a version that was repaired, and the repaired one continues"
			if pages {
				why = "a file has the text of a version that was replaced on the pages, and the one from there continues"
			}
			e.Log.WarnContext(ctx, why, "workflow", sc.Name, "file", sc.File, "replaced", d.Version.String(), "current", w.Version.String())
			return true, err
		}
	}
	return false, err
}

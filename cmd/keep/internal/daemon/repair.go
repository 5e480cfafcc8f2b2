package daemon

import (
	"github.com/keep-run/keep/cmd/keep/internal/config"
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

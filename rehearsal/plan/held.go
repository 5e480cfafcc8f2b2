package plan

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/law/breaker"
	"github.com/keep-run/keep/law/limit"
	"github.com/keep-run/keep/rehearsal"
)

// held says which calls would wait: those of a tool whose calls are stopped, and those of a connection that is shut now, with its reads.
// A tool that has another name now is stopped by the one of then.
func (p *Plan) held(ctx context.Context, cfg Config, now time.Time) error {
	base := cfg.Base
	if base == nil {
		return nil
	}
	before := newLive(cfg.Connections).before
	tools, connections := make(map[keep.ToolName]bool), make(map[string]bool)
	for _, m := range p.Mutations {
		tools[m.Tool], connections[m.Tool.Connection()] = true, true
	}
	for _, r := range p.Reads {
		connections[r.Tool.Connection()] = true
	}
	for _, t := range slices.Sorted(maps.Keys(tools)) {
		for _, name := range append([]keep.ToolName{t}, before[t]...) {
			var s breaker.State
			if err := readGate(ctx, base, keep.ToolGate(name), &s); err != nil {
				return err
			}
			if s.Open != nil {
				p.Unknown = append(p.Unknown, fmt.Sprintf("No call of %s is made before a person lets them through (keep inbox): %s.", t, s.Open.Sentence(name)))
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(connections)) {
		var s limit.State
		if err := readGate(ctx, base, name, &s); err != nil {
			return err
		}
		if at, shut := s.NextCall(); shut {
			next := "the next one finds out whether it answers again"
			if at.Until.After(now) {
				next = "the next one is made at " + at.Until.UTC().Format("2006-01-02 15:04:05Z")
			}
			p.Unknown = append(p.Unknown, fmt.Sprintf("Calls and reads of %s wait for %s; %s.", name, at.Sentence(name), next))
		}
	}
	return nil
}

// readGate reads what the users of a gate share; without one it leaves state as it is.
func readGate(ctx context.Context, base rehearsal.Base, name string, state any) error {
	g, err := base.Gate(ctx, name)
	if err != nil || g.Rev == 0 {
		return err
	}
	if err := json.Unmarshal(g.State, state); err != nil {
		return fmt.Errorf("gate %s: %w", name, err)
	}
	return nil
}

package plan

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/rehearsal"
)

// A dueBase is a database in which every producer and job of a workflow is due.
type dueBase struct {
	rehearsal.Base
	of  keep.Definition
	now time.Time
}

// due returns base with the producers and jobs of a workflow due at a time, which may be zero.
func due(base rehearsal.Base, of keep.Definition, at time.Time) rehearsal.Base {
	if base == nil {
		return nil
	}
	return dueBase{base, of, cmp.Or(at, time.Now()).UTC().Truncate(time.Millisecond)}
}

// Handlers implements store.Workflows.
func (b dueBase) Handlers(ctx context.Context, w keep.WorkflowName) ([]keep.HandlerState, error) {
	states, err := b.Base.Handlers(ctx, w)
	if err != nil || w != b.of.Name {
		return states, err
	}
	states = slices.Clone(states)
	for _, h := range b.of.Handlers {
		if h.Kind == keep.Consumer {
			continue
		}
		i := slices.IndexFunc(states, func(s keep.HandlerState) bool { return s.Handler == h.Name && s.Kind == h.Kind })
		if i < 0 {
			states = append(slices.DeleteFunc(states, func(s keep.HandlerState) bool { return s.Handler == h.Name }),
				keep.HandlerState{Workflow: w, Handler: h.Name, Kind: h.Kind})
			i = len(states) - 1
		}
		states[i].NextAt = b.now
	}
	return states, nil
}

package engine

import (
	"context"
	"log/slog"

	"github.com/keep-run/keep"
)

// facts are the attributes of every line that is about a run, and about a mutation
// where there is one; more follow them.
func facts(run keep.RunID, handler keep.HandlerName, mutation keep.MutationKey, more ...any) []any {
	var list []any
	if run != "" {
		list = append(list, "run", string(run))
	}
	if handler != "" {
		list = append(list, "handler", string(handler))
	}
	if mutation != "" {
		list = append(list, "mutation", string(mutation))
	}
	return append(list, more...)
}

// facts are those of the run, and of its mutation.
func (x *execution) facts(more ...any) []any {
	key := x.mut.Key
	if key == "" {
		key = x.run.Mutation
	}
	return facts(x.run.ID, x.run.Handler, key, more...)
}

// facts are those of what the actor was at when its turn failed.
func (a *actor) facts(more ...any) []any {
	switch {
	case a.last != nil:
		return a.last.facts(more...)
	case a.open != nil:
		return facts(a.open.ID, a.open.Handler, a.open.Mutation, more...)
	}
	return more
}

// tell writes a line for each move of a mutation and for each run that is over, once
// they are durable.
func (e *Engine) tell(ctx context.Context, w keep.WorkflowName, changes []keep.Change) {
	if !e.log.Enabled(ctx, slog.LevelInfo) {
		return
	}
	for _, change := range changes {
		switch c := change.(type) {
		case keep.PutMutation:
			for _, m := range c.Moves {
				e.log.InfoContext(ctx, "mutation moved", facts(c.Mutation.Run, "", c.Mutation.Key, "workflow", string(w), "tool", string(c.Mutation.Tool),
					"from", string(m.From), "to", string(m.To), "evidence", m.Evidence, "by", m.By)...)
			}
		case keep.PutRun:
			if c.Run.Status == keep.StatusCommitted || c.Run.Status == keep.StatusAborted {
				e.log.InfoContext(ctx, "run over", facts(c.Run.ID, c.Run.Handler, c.Run.Mutation, "workflow", string(w), "status", string(c.Run.Status))...)
			}
		}
	}
}

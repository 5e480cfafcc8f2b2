// Package commitlog writes the log lines of a commit that is durable.
package commitlog

import (
	"context"
	"log/slog"

	"github.com/keep-run/keep"
)

// Write writes a line for each move of a mutation and for each run that has ended.
func Write(ctx context.Context, log *slog.Logger, c keep.Commit) {
	if !log.Enabled(ctx, slog.LevelInfo) {
		return
	}
	for _, change := range c.Changes {
		switch ch := change.(type) {
		case keep.PutMutation:
			for _, m := range ch.Moves {
				log.InfoContext(ctx, "mutation moved", Attrs(ch.Mutation.Run, "", ch.Mutation.Key, "workflow", string(c.Workflow), "tool", string(ch.Mutation.Tool),
					"from", string(m.From), "to", string(m.To), "evidence", m.Evidence, "by", m.By)...)
			}
		case keep.PutRun:
			if ch.Run.Status == keep.StatusCommitted || ch.Run.Status == keep.StatusAborted {
				log.InfoContext(ctx, "run over", Attrs(ch.Run.ID, ch.Run.Handler, ch.Run.Mutation, "workflow", string(c.Workflow), "status", string(ch.Run.Status))...)
			}
		}
	}
}

// Attrs returns the attributes of every line about a run, and about a mutation where
// there is one; more follow them.
func Attrs(run keep.RunID, handler keep.HandlerName, mutation keep.MutationKey, more ...any) []any {
	var attrs []any
	if run != "" {
		attrs = append(attrs, "run", string(run))
	}
	if handler != "" {
		attrs = append(attrs, "handler", string(handler))
	}
	if mutation != "" {
		attrs = append(attrs, "mutation", string(mutation))
	}
	return append(attrs, more...)
}

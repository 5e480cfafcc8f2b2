package engine

import (
	"cmp"

	"github.com/keep-run/keep/internal/commitlog"
)

// facts are those of the run, and of its mutation.
func (x *execution) facts(more ...any) []any {
	key := x.mut.Key
	key = cmp.Or(key, x.run.Mutation)
	return commitlog.Attrs(x.run.ID, x.run.Handler, key, more...)
}

// facts are those of what the actor was at when its turn failed.
func (a *actor) facts(more ...any) []any {
	switch {
	case a.last != nil:
		return a.last.facts(more...)
	case len(a.open) > 0:
		r := a.open[0].Run
		return commitlog.Attrs(r.ID, r.Handler, r.Mutation, more...)
	}
	return more
}

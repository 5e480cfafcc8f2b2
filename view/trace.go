package view

import (
	"context"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/law/lifecycle"
	"github.com/keep-run/keep/law/trace"
	"github.com/keep-run/keep/store"
)

// Trace returns what is kept of a run. None: nothing was recorded, or it is no longer kept.
func Trace(ctx context.Context, s store.Traces, run keep.RunID) (t trace.Trace, some bool, err error) {
	parts, err := s.Trace(ctx, run)
	if err != nil || len(parts) == 0 {
		return t, false, err
	}
	t, err = trace.Join(parts)
	return t, true, err
}

// WaitIn returns w with the read in which a run that is executed waits, if its trace t says so.
func WaitIn(w lifecycle.Wait, t trace.Trace) lifecycle.Wait {
	if e, under := t.Under(); under {
		return w.In(e.Tool, e.At)
	}
	return w
}

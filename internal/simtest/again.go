package simtest

import (
	"context"
	"fmt"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/rehearsal/replay"
)

// replays goes through every committed run again, on its own version: nothing may be different.
// A run of which something was swept may be inconclusive. In a world whose configuration was
// edited a script calls tools by other names than it did, so its runs are left out.
func (a audit) replays() {
	w := a.w
	db, ok := w.store.(replay.Store)
	if w.edited || !ok {
		return
	}
	ctx := context.Background()
	p := &process{w: w}
	conns := w.connections(0, w.settings)
	type version struct {
		workflow keep.WorkflowName
		number   keep.Version
	}
	replayers := make(map[version]*replay.Replayer)
	for _, run := range a.runs {
		if run.Status != keep.StatusCommitted {
			continue
		}
		if _, err := w.store.Run(ctx, run.ID); err != nil {
			continue // it was swept
		}
		v := version{run.Workflow, run.Version}
		if replayers[v] == nil {
			d, err := w.store.Deployment(ctx, run.Workflow, run.Version)
			w.must("read a version", err)
			sc, err := scripts{p}.Script(ctx, d)
			w.must("load a version", err)
			own := sc.(script)
			own.again = true
			replayers[v], err = replay.New(replay.Config{Store: db, Script: own, Definition: d.Definition, Connections: conns, Policy: &w.policy}, run.Workflow)
			w.must("prepare to replay a version", err)
		}
		r, err := replayers[v].Run(ctx, run.ID)
		w.must("replay a run", err)
		switch {
		case err != nil:
		case r.Verdict == replay.Equal:
			w.seen["replay: equal"]++
		case r.Verdict == replay.Inconclusive && w.seen["sweep: traces"]+w.seen["sweep: mutations"] > 0:
			w.seen["replay: swept"]++
		default:
			w.broken("explained", "the replay of run %s of %s on its own version is %s: %s %s", run.ID, run.Handler, r.Verdict, differences(r), missing(r))
		}
	}
}

func differences(r *replay.Report) (out []string) {
	for _, d := range r.Differences {
		out = append(out, fmt.Sprintf("%s %s: %s, now %s", d.Phase, d.What, d.Recorded, d.Now))
	}
	return out
}

func missing(r *replay.Report) (out []string) {
	for _, m := range r.Missing {
		out = append(out, fmt.Sprintf("%s %s %s: %s", m.Phase, m.Tool, m.Params, m.Why))
	}
	return out
}

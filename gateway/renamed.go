package gateway

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/engine"
	"github.com/keep-run/keep/law/ledger"
	"github.com/keep-run/keep/law/lifecycle"
	"github.com/keep-run/keep/law/repeat"
)

// otherwise returns the run of an equal call that is out or in doubt, and that is known by another name than the request: the
// identity of its tool changed since, or its server is gone and this one may be it. Zero: there is none. The last one of the name of the request
// is none: that has failed, and is made again.
func (g *Gateway) otherwise(ctx context.Context, r request, last *repeat.Last) (run keep.Run, tool keep.ToolName, err error) {
	open, err := g.store.OpenRuns(ctx, keep.DirectWorkflow)
	if err != nil {
		return run, "", err
	}
	for _, run := range open {
		p := pinnedOf(run)
		tool := g.today(p.Tool)
		if p.Agent != r.agent || p.Content != ledger.Hash(r.params) || run.Mutation == "" || last != nil && run.ID == last.Run.ID ||
			tool != r.tool && (ownName(tool) != ownName(r.tool) || g.server(tool.Connection()) != nil) {
			continue
		}
		m, err := g.store.Mutation(ctx, run.Mutation)
		if err != nil {
			return run, "", err
		}
		if tool != r.tool && !lifecycle.Unknown(m.State) {
			continue
		}
		if run.Lane == laneOf(repeat.Identity{Agent: r.agent, Tool: cmp.Or(p.Known, p.Tool), Identity: m.Identity, Intent: r.intent}.Hash()) {
			return run, tool, nil
		}
	}
	return keep.Run{}, "", nil
}

// begins answers a request that would begin a call, or make one again that has failed, if an equal one is known otherwise. Again says that this
// one is known by the name of the request from now on.
func (g *Gateway) begins(ctx context.Context, r request, last *repeat.Last, unchanged []keep.Change) (a answer, again bool, err error) {
	run, tool, err := g.otherwise(ctx, r, last)
	switch {
	case err != nil || run.ID == "":
		return a, false, err
	case tool == r.tool:
		return a, true, g.store.Commit(ctx, keep.Commit{Workflow: keep.DirectWorkflow, At: g.engine.Now(), Changes: append(slices.Clone(unchanged),
			delivery{Run: run.ID}.put(r.id, lastKey))})
	}
	return failed(fmt.Sprintf("An equal call of %s was made before, and its outcome is not known yet. The server %s is not in keep.toml any more: if %s is that server, its table must say was = %q. "+
		"Nothing was sent. If both calls are meant, give this one a text of its own as _meta[%q].", tool, tool.Connection(), r.tool.Connection(), tool.Connection(), metaIntent), nil), false, nil
}

// laneOf returns the lane of the calls of a name.
func laneOf(id string) keep.Lane { return keep.KeyLane(engine.DirectHandler, id) }

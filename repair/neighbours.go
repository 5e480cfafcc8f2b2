package repair

import (
	"context"
	"errors"
	"time"

	"github.com/keep-run/keep"
	law "github.com/keep-run/keep/law/repair"
	"github.com/keep-run/keep/law/trace"
)

// maxNeighbours is how many runs are looked at, the newest.
const maxNeighbours = 50

// neighbours returns the newest runs of the handler whose work is done, as far as it is kept what
// they did and what they did it with.
func (b *Bench) neighbours(ctx context.Context, failed keep.Run) ([]law.Neighbour, error) {
	list, _, err := b.Store.Runs(ctx, keep.RunFilter{Workflow: failed.Workflow, Handler: failed.Handler, Status: keep.StatusCommitted},
		keep.Page{Limit: maxNeighbours})
	if err != nil {
		return nil, err
	}
	var out []law.Neighbour
	for _, bare := range list {
		run, err := b.Store.Run(ctx, bare.ID)
		if errors.Is(err, keep.ErrNotFound) {
			continue // it was deleted meanwhile
		}
		if err != nil {
			return nil, err
		}
		if !law.IsNeighbour(run, failed) || run.Kind == keep.Consumer && len(run.Reservations) == 0 {
			continue
		}
		n, known, err := b.neighbour(ctx, run)
		if err != nil {
			return nil, err
		}
		if known {
			out = append(out, n)
		}
	}
	return out, nil
}

// neighbour returns what a run did, and whether that is known.
func (b *Bench) neighbour(ctx context.Context, run keep.Run) (law.Neighbour, bool, error) {
	n := law.Neighbour{Sources: law.Sources{}}
	t, why, err := readTrace(ctx, b.Store, run.ID)
	if err != nil || why != "" {
		return n, false, err
	}
	for _, e := range t.Entries {
		if e.What == trace.Read && e.Result != nil {
			n.Sources[e.Tool] = append(n.Sources[e.Tool], e.Result)
		}
		if e.What == trace.Read && e.Tool == "item.begin" {
			n.Effects = append(n.Effects, law.ItemEffect(itemOf(e.Params)))
		}
	}
	if n.Reserved, err = b.reserved(ctx, run, n.Sources); err != nil {
		return n, false, err
	}
	if err := b.calls(ctx, run, &n); err != nil {
		return n, false, err
	}
	return n, true, b.published(ctx, run, &n)
}

// reserved adds the events that a run reserved to its sources, and returns how many there were.
func (b *Bench) reserved(ctx context.Context, run keep.Run, to law.Sources) (n int, err error) {
	for _, r := range run.Reservations {
		n += len(r.IDs)
		events, err := b.Store.EventsByID(ctx, run.Workflow, r.Topic, r.IDs)
		if err != nil {
			return n, err
		}
		for _, e := range events {
			addEvent(to, e)
		}
	}
	return n, nil
}

func addEvent(to law.Sources, e keep.Event) {
	payload, id := "event "+string(e.Topic), "id of "+string(e.Topic)
	to[payload] = append(to[payload], e.Payload)
	to[id] = append(to[id], jsonText(string(e.MessageID)))
}

// calls adds the calls of a run that had their effect.
func (b *Bench) calls(ctx context.Context, run keep.Run, n *law.Neighbour) error {
	var list []keep.Mutation
	if run.Kind == keep.Consumer {
		if run.Mutation == "" {
			return nil
		}
		m, err := b.Store.Mutation(ctx, run.Mutation)
		if errors.Is(err, keep.ErrNotFound) {
			return nil
		}
		if err != nil {
			return err
		}
		list = append(list, m)
	} else {
		var err error
		if list, _, err = b.Store.Mutations(ctx, keep.MutationFilter{Workflow: run.Workflow, Run: run.ID}, keep.Page{Limit: keep.MaxPage}); err != nil {
			return err
		}
	}
	for _, m := range list {
		if law.Happened(m) {
			n.Effects = append(n.Effects, law.CallEffect(m.Tool, m.Subkey, m.Identity, m.Payload))
			if m.Result != nil {
				n.Sources["result of "+string(m.Tool)] = append(n.Sources["result of "+string(m.Tool)], m.Result)
			}
		}
	}
	return nil
}

// published adds the events that a run published.
func (b *Bench) published(ctx context.Context, run keep.Run, n *law.Neighbour) error {
	// What a run publishes was made when it committed.
	list, _, err := b.Store.Events(ctx, keep.EventFilter{Workflow: run.Workflow,
		Made: keep.Period{Since: run.UpdatedAt, Until: run.UpdatedAt.Add(time.Millisecond)}}, keep.Page{Limit: keep.MaxPage})
	for _, e := range list {
		if e.CreatedBy.Run() == run.ID {
			n.Effects = append(n.Effects, law.PublishEffect(e.Topic, e.MessageID, run.MadeID(e.MessageID), e.Payload))
		}
	}
	return err
}

package replay

import (
	"context"
	"encoding/json"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/engine"
	"github.com/keep-run/keep/law/lifecycle"
	"github.com/keep-run/keep/law/trace"
)

// args returns what a phase is given. They are made of the records that the run was given
// them from, if these still say the same: the digest in the trace tells.
func (r *replay) args(ctx context.Context, p phase) (args []json.RawMessage, ok bool, err error) {
	switch p.name {
	case "prepare":
		return r.triggerArg(ctx, p)
	case "mutate":
		if r.ran("prepare") {
			return []json.RawMessage{r.prepared}, true, nil
		}
		args = []json.RawMessage{r.run.Prepared}
		if trace.Digest(args...) != p.end.Script.In {
			r.missing(p.name, "", nil, "what an earlier attempt had prepared is not kept as it was")
			return nil, false, nil
		}
		return args, true, nil
	case "next":
		return r.outcomeArgs(ctx, p)
	}
	return nil, trace.Digest[json.RawMessage]() == p.end.Script.In, nil
}

// ran reports whether the replay went through a phase.
func (r *replay) ran(phase string) bool {
	for _, p := range r.report.Phases {
		if p == phase {
			return true
		}
	}
	return false
}

// triggerArg returns the event that prepare began with.
func (r *replay) triggerArg(ctx context.Context, p phase) (args []json.RawMessage, ok bool, err error) {
	args = []json.RawMessage{nil}
	var ref struct {
		Topic     keep.TopicName
		MessageID keep.MessageID
	}
	if p.end.Params != nil && json.Unmarshal(p.end.Params, &ref) == nil {
		e, err := r.cfg.Store.Event(ctx, r.run.Workflow, ref.Topic, ref.MessageID)
		if err != nil && !isNotFound(err) {
			return nil, false, err
		}
		if err == nil {
			e.Status = keep.EventPending // as it was
			own, err := r.cfg.Store.Deployment(ctx, r.run.Workflow, r.run.Version)
			if err != nil && !isNotFound(err) {
				return nil, false, err
			}
			for n, arg := range engine.TriggerArgs(own.Definition, e) {
				if args[0] = arg; trace.Digest(args...) == p.end.Script.In {
					r.trigger = at(e, n)
					break
				}
			}
		}
	}
	if trace.Digest(args...) != p.end.Script.In {
		r.missing(p.name, "trigger", p.end.Params, "the event says something else since, or is not kept any more")
		return nil, false, nil
	}
	return args, true, nil
}

// outcomeArgs returns what next began with: what prepare returned, and what became of the call.
func (r *replay) outcomeArgs(ctx context.Context, p phase) (args []json.RawMessage, ok bool, err error) {
	could, err := r.outcomes(ctx)
	if err != nil {
		return nil, false, err
	}
	for _, m := range could {
		result := engine.ResultArg(m)
		if trace.Digest(r.run.Prepared, result) == p.end.Script.In || trace.Digest(r.prepared, result) == p.end.Script.In {
			return []json.RawMessage{r.prepared, result}, true, nil
		}
	}
	r.missing(p.name, "", nil, "what it began with, what was prepared or what became of the call, is not kept as it was")
	return nil, false, nil
}

// outcomes returns what may have become of the call of the run: what its record says, nothing,
// or what a person treats it as done by.
func (r *replay) outcomes(ctx context.Context) ([]keep.Mutation, error) {
	could := []keep.Mutation{{}, {State: keep.Skipped}, lifecycle.TreatedAsDone(nil)}
	add := func(key keep.MutationKey) error {
		m, err := r.cfg.Store.Mutation(ctx, key)
		if err == nil {
			could = append(could, m, lifecycle.TreatedAsDone(m.Result))
		} else if !isNotFound(err) {
			return err
		}
		return nil
	}
	if r.run.Mutation != "" {
		return could, add(r.run.Mutation)
	}
	asked, err := r.cfg.Store.EscalationsOf(ctx, r.run.Chain, keep.MaxPage)
	if err != nil {
		return nil, err
	}
	for _, q := range asked {
		if lifecycle.SaysDone(q) {
			could = append(could, lifecycle.TreatedAsDone(q.Decision.Result))
		}
		if q.Kind == keep.AskAlreadyDone && q.Mutation != "" {
			if err := add(q.Mutation); err != nil {
				return nil, err
			}
		}
	}
	return could, nil
}

package engine

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/law/policy"
	"github.com/keep-run/keep/law/schedule"
	"github.com/keep-run/keep/law/trace"
)

// produce runs a producer. Its publishes, inputs and checkpoint commit together
// at the end, in the one commit of the run.
func (x *execution) produce(ctx context.Context) error {
	host := x.host(policy.InProducer)
	host.kv, host.kvBefore = make(map[string]json.RawMessage), make(map[string]json.RawMessage)
	out, err := x.call(ctx, "", nil, host, x.e.slow(200*time.Millisecond), x.announce(ctx))
	if err != nil {
		return x.fail(ctx, err)
	}
	if f := x.checkKV(ctx, host); f != nil {
		return x.fail(ctx, f)
	}
	unfinished := hasMore(out)
	if f := x.moreOfNothing(out, host); f != nil {
		return x.fail(ctx, f)
	}
	x.trace(BeforeCommit)
	if err := x.transition(keep.Committed); err != nil {
		return x.fail(ctx, err)
	}
	x.run.Idle = len(host.inputs) == 0 && len(host.publishes) == 0
	now := x.run.UpdatedAt
	var more []keep.Change
	for _, in := range host.inputs {
		more = append(more, keep.PutInput{Input: in})
	}
	for _, ev := range host.publishes {
		ev.CreatedAt, ev.UpdatedAt = now, now
		more = append(more, keep.Publish{Event: ev})
	}
	// A person who changed the checkpoint meanwhile, on any host, did so for the run that comes next: this one begins anew.
	for _, key := range sortedKeys(host.kvBefore) {
		more = append(more, keep.IfKV{Producer: x.checkpoint(), Key: key, Value: host.kvBefore[key]})
	}
	for _, key := range sortedKeys(host.kv) {
		more = append(more, keep.SetKV{Producer: x.checkpoint(), Key: key, Value: host.kv[key]})
	}
	state := x.state(now)
	if unfinished {
		state.NextAt = now // after consumers that have events, and others that are due
	}
	more = append(more, keep.PutHandler{State: state, Served: x.served()})
	if err := x.commit(ctx, more...); err != nil {
		return err
	}
	x.remember(&state)
	x.trace(AfterCommit)
	return nil
}

// hasMore reports whether a producer says that it has not read all that there is: it returned
// {more: true}. Its next run begins at once, so that a long list is read in parts, each with a
// commit of its own (law: bounded). Whatever else it returns means nothing.
func hasMore(result json.RawMessage) bool {
	var r struct {
		More json.RawMessage `json:"more"`
	}
	return len(result) > 0 && result[0] == '{' && json.Unmarshal(result, &r) == nil && string(r.More) == "true"
}

// moreOfNothing returns the failure of a producer that says that there is more, and would begin where it began.
func (x *execution) moreOfNothing(out json.RawMessage, h *scriptHost) *keep.Failure {
	if !hasMore(out) || len(h.kv) > 0 {
		return nil
	}
	return keep.Failf(keep.ClassLogic, "more-without-checkpoint",
		"%s says that there is more, but stores nothing with ctx.kv.set: it would read the same again, and again at once", x.run.Handler)
}

// saysMore is what a producer mostly returns that has not read all.
const saysMore = `{"more":true}`

// SaysMore reports whether out is the digest of what a producer mostly returns that has not read all that there is.
func SaysMore(out trace.Sum) bool { return out == trace.Digest(json.RawMessage(saysMore)) }

// checkpoint returns the name under which the checkpoint of the producer is kept.
func (x *execution) checkpoint() keep.HandlerName { return keep.HandlerName(x.def.ItemsOf()) }

// checkKV refuses a checkpoint that would grow over its limit.
func (x *execution) checkKV(ctx context.Context, h *scriptHost) error {
	if len(h.kv) == 0 {
		return nil
	}
	size, err := x.e.store.KVSize(ctx, x.a.name, x.checkpoint())
	if err != nil {
		return &storeError{err}
	}
	for key, value := range h.kv {
		old, err := x.e.store.KV(ctx, x.a.name, x.checkpoint(), key)
		if err != nil {
			return &storeError{err}
		}
		if _, read := h.kvBefore[key]; !read {
			h.kvBefore[key] = old
		}
		if old != nil {
			size -= len(key) + len(old)
		}
		if value != nil {
			size += len(key) + len(value)
		}
	}
	if limit := x.e.policy.Limits.KVTotal; size > limit {
		return keep.Failf(keep.ClassLogic, "kv-full", "the checkpoint of %s would hold %d bytes: at most %d; keep cursors there, not data", x.run.Handler, size, limit)
	}
	return nil
}

func kvKey(c HostCall) (string, *keep.Failure) {
	key, err := nameText(c.arg(0))
	if err != nil {
		return "", c.logicf("bad-kv", "ctx.%s: key: %v", c.Name, err)
	}
	return key, nil
}

func (h *scriptHost) kvGet(ctx context.Context, c HostCall) (json.RawMessage, error) {
	key, f := kvKey(c)
	if f != nil {
		return nil, f
	}
	value, ok := h.kv[key]
	if !ok {
		stored, err := h.x.e.store.KV(ctx, h.x.a.name, h.x.checkpoint(), key)
		if err != nil {
			return nil, &storeError{err}
		}
		if _, read := h.kvBefore[key]; !read {
			h.kvBefore[key] = stored
		}
		value = stored
	}
	if value == nil {
		value = json.RawMessage("null")
	}
	return value, nil
}

func (h *scriptHost) kvSet(_ context.Context, c HostCall) (json.RawMessage, error) {
	key, f := kvKey(c)
	if f != nil {
		return nil, f
	}
	value := c.arg(1)
	switch {
	case value == nil:
		return nil, c.logicf("bad-kv", "ctx.kv.set(%q): the value is undefined; use ctx.kv.delete", key)
	case len(value) > h.x.e.policy.Limits.KVValue:
		return nil, c.logicf("kv-value-too-large", "ctx.kv.set(%q): %d bytes: at most %d", key, len(value), h.x.e.policy.Limits.KVValue)
	}
	h.kv[key] = slices.Clone(value)
	return nil, nil
}

func (h *scriptHost) kvDelete(_ context.Context, c HostCall) (json.RawMessage, error) {
	key, f := kvKey(c)
	if f != nil {
		return nil, f
	}
	h.kv[key] = nil
	return nil, nil
}

// nextTick returns when a producer or job with that schedule is due after a run
// that began then and ended now.
func (e *Engine) nextTick(s keep.Schedule, began, now time.Time) time.Time {
	plan, err := schedule.Parse(s, e.policy.DefaultInterval)
	if err != nil {
		// It was checked when the version was deployed.
		e.log.Error("schedule of a deployed version is broken", "schedule", s, "err", err)
		return now.Add(e.policy.DefaultInterval)
	}
	return plan.Next(began, now)
}

func (e *Engine) slow(d time.Duration) time.Duration {
	if e.cfg.Slow > 0 {
		return e.cfg.Slow
	}
	return d
}

func isNotFound(err error) bool { return errors.Is(err, keep.ErrNotFound) }

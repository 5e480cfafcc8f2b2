package engine

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector"
	"github.com/keep-run/keep/law/canonical"
	"github.com/keep-run/keep/law/ledger"
	"github.com/keep-run/keep/law/policy"
	"github.com/keep-run/keep/law/trace"
)

// A Replay goes through a phase of a run again, with the answers that the run got: by its own
// script or by another one. What comes from outside comes from the record; the rest is what the
// engine does in a run. Nothing is read, sent or stored.
type Replay struct {
	Script     Script
	Definition keep.Definition // of the script
	Run        keep.Run
}

// A ReplayPhase is a phase as the run went through it.
type ReplayPhase struct {
	Name  string // prepare, mutate, next or handler
	Args  []json.RawMessage
	Seen  []trace.Entry // the reads of the phase, in order
	Clock time.Time
	Seed  []byte
}

// A ReplayCall is a call of a mutate tool that the script would make.
type ReplayCall struct {
	Tool                        keep.ToolName
	Names                       []keep.ToolName // all that its records may have
	Target, Subkey              string
	Identity, Payload, asPassed json.RawMessage
}

// A ReplayResult is what came of a phase.
type ReplayResult struct {
	Result       json.RawMessage
	Reservations []keep.Reservation // of prepare
	Call         *ReplayCall        // that ended mutate; nil: none
	More         bool               // a producer says that it has not read all that there is
	Publishes    []keep.Event       // only topic, message id and payload
	Asked        []trace.Entry      // what it asked from outside, and the answers it got

	In, Out, Published, Stored trace.Sum // as trace.Script has them

	Failure *keep.Failure  // what ended it; nil: nothing
	Unknown *UnknownAnswer // an answer that is not recorded, where it ended; nil: it came to its end
}

// An UnknownAnswer ends a replay: the script asked for what the run did not.
type UnknownAnswer struct {
	Tool   string
	Params json.RawMessage
	Why    string
}

// Error names the question.
func (u *UnknownAnswer) Error() string { return fmt.Sprintf("%s %s: %s", u.Tool, u.Params, u.Why) }

// Replay goes through a phase. An error means that it could not be executed for another reason
// than the script. The engine must not be running: its store is not asked.
func (e *Engine) Replay(ctx context.Context, r Replay, p ReplayPhase) (ReplayResult, error) {
	def, ok := r.Definition.Handler(r.Run.Handler)
	if !ok || def.Kind != r.Run.Kind {
		return ReplayResult{Failure: keep.Failf(keep.ClassLogic, "no-handler", "the script has no %s %s", r.Run.Kind, r.Run.Handler)}, nil
	}
	x := e.replayed(r, def)
	x.again = &recorded{phase: p.Name, left: p.Seen}
	phase := p.Name
	if phase == "handler" {
		phase = ""
	}
	host := x.host(placeIn(r.Run.Kind, p.Name))
	host.now = p.Clock
	if r.Run.Kind == keep.Producer {
		host.kv = make(map[string]json.RawMessage)
	}
	x.called = x.path(phase)
	out, err := r.Script.Call(ctx, ScriptCall{Path: x.called, Args: p.Args, Now: p.Clock, Seed: p.Seed, Host: host, Log: func(_, _, _ string) {}})
	res := ReplayResult{Result: out, Publishes: host.publishes, Asked: x.again.asked, In: trace.Digest(p.Args...), Out: trace.Digest(out)}
	res.Published, res.Stored = host.wrote()
	if unknown, ok := errors.AsType[*UnknownAnswer](err); ok {
		res.Unknown, err = unknown, nil
	}
	switch f, failed := errors.AsType[*keep.Failure](err); {
	case errors.Is(err, errTaken):
		c := host.taken
		res.Out = c.digest()
		res.Call = &ReplayCall{c.tool.name, c.tool.names, c.target, c.subkey, c.identity, c.payload, c.params}
	case failed:
		res.Failure = f
	case err != nil:
		return res, err
	case r.Run.Kind == keep.Producer && res.Unknown == nil:
		res.More, res.Failure = hasMore(out), x.moreOfNothing(out, host)
	case p.Name == "prepare" && res.Unknown == nil:
		parsed, f := parsePrepared(out, r.Definition, def, e.policy, p.Clock)
		if res.Reservations = parsed.reservations; f != nil {
			res.Failure = x.located(ctx, f)
		}
	}
	return res, nil
}

// replayed returns an execution of a run that is over.
func (e *Engine) replayed(r Replay, def keep.Handler) *execution {
	return &execution{
		a: &actor{e: e, name: r.Run.Workflow}, e: e, run: r.Run, def: def,
		v: version{Deployment: keep.Deployment{Workflow: r.Run.Workflow, Definition: r.Definition}, script: r.Script},
	}
}

// ReplayKey returns the order key that a run of a consumer would have had: that of the events which it
// reserved, or else of the one that it began with, all as they were then. Empty: it would have had none.
// The failure is the one with which the run would have ended.
func (e *Engine) ReplayKey(ctx context.Context, r Replay, trigger keep.Event, reserved []keep.Event) (string, *keep.Failure, error) {
	def, _ := r.Definition.Handler(r.Run.Handler)
	x := e.replayed(r, def)
	t, err := x.a.triggerOf(ctx, x.v, def, trigger)
	if err != nil || t.keyless != nil {
		return "", t.keyless, err
	}
	x.pick(t)
	err = x.takeLane(ctx, reserved)
	if f, ok := errors.AsType[*keep.Failure](err); ok {
		return "", f, nil
	}
	key, _ := x.run.Lane.Key()
	return key, nil, err
}

// placeIn returns where in the table of phases a phase is.
func placeIn(kind keep.Kind, phase string) policy.Place {
	switch {
	case kind == keep.Producer:
		return policy.InProducer
	case kind == keep.Job:
		return policy.InJob
	case phase == "prepare":
		return policy.InPrepare
	case phase == "mutate":
		return policy.InMutate
	}
	return policy.InNext
}

// TriggerArgs returns what prepare's argument for its trigger may have been, as the script of d got
// it: at each attempt of the event, and as it was before events had attempts.
func TriggerArgs(d keep.Definition, e keep.Event) []json.RawMessage {
	var list []json.RawMessage
	for n := range e.Attempt() {
		at := e
		at.Redone = e.Redone[:n]
		list = append(list, eventJSON(d, at))
	}
	old := viewOf(d, e)
	old.Attempt = 0
	return append(list, marshal(old))
}

// ResultArg returns the mutationResult that next gets after m.
func ResultArg(m keep.Mutation) json.RawMessage { return resultJSON(m) }

// A triggerRecord names the event with which prepare began.
type triggerRecord struct {
	Topic     keep.TopicName `json:"topic"`
	MessageID keep.MessageID `json:"messageId"`
}

func triggerOf(r keep.EventRef) triggerRecord { return triggerRecord(r) }

// Identify returns a call that was recorded with the params of a script, and so in an item of a job.
func (e *Engine) Identify(name keep.ToolName, params json.RawMessage) (ReplayCall, bool) {
	t := e.tools.known(name)
	if t == nil || t.spec.Effect != connector.Mutate {
		return ReplayCall{Tool: name, Names: []keep.ToolName{name}, asPassed: params}, false
	}
	identity, payload, subkey, err := ledger.Identify(params, t.spec.Identity)
	return ReplayCall{Tool: t.name, Names: t.names, Subkey: subkey, Identity: identity, Payload: payload, asPassed: params}, err == nil
}

// recorded answers the host calls of a replay from what a run saw.
type recorded struct {
	phase string
	left  []trace.Entry // not used yet
	asked []trace.Entry
	item  bool // the item that is open is done or skipped
}

// answer answers a call as the run was answered: the first call with these params as the
// first one was, and so on. What the run did not ask ends the replay.
func (r *recorded) answer(ctx context.Context, h *scriptHost, c HostCall, call answerer) (json.RawMessage, error) {
	if c.Name == "kv.get" {
		if key, f := kvKey(c); f != nil {
			return nil, f
		} else if _, own := h.kv[key]; own {
			return call(ctx, c) // what the phase itself has written
		}
	}
	if f := r.refuse(h, c); f != nil {
		return nil, f
	}
	e, ok := r.take(trace.Entry{Phase: r.phase, What: trace.Read, Tool: c.Name, Params: argsOf(c)})
	r.asked = append(r.asked, e)
	switch {
	case !ok:
		return nil, &UnknownAnswer{c.Name, e.Params, "the run did not ask this"}
	case e.Error != nil:
		f := *e.Error
		return nil, &f
	case e.Cut:
		return nil, &UnknownAnswer{c.Name, e.Params, "the answer was too large to be kept"}
	}
	if c.Name == "item.begin" {
		r.begin(h, c, e.Result)
	}
	return e.Result, nil
}

// take returns the record that answers want, which has no answer; false: there is none.
func (r *recorded) take(want trace.Entry) (trace.Entry, bool) {
	lost := -1 // a record whose params were too large: it may be this one
	for i, e := range r.left {
		switch {
		case e.Tool != want.Tool:
			continue
		case e.Cut && e.Params == nil && want.Params != nil:
			lost = max(lost, i)
			continue
		case !sameJSON(e.Params, want.Params):
			continue
		}
		r.left = append(r.left[:i:i], r.left[i+1:]...)
		return e, true
	}
	want.Cut = lost >= 0
	return want, want.Cut
}

// sameJSON reports whether a and b are the same value.
func sameJSON(a, b json.RawMessage) bool {
	if bytes.Equal(a, b) {
		return true
	}
	ca, err := canonical.Exact(a)
	if err != nil {
		return false
	}
	cb, err := canonical.Exact(b)
	return err == nil && bytes.Equal(ca, cb)
}

// refuse returns the failure of a call that the engine would refuse before it looks outside.
func (r *recorded) refuse(h *scriptHost, c HostCall) *keep.Failure {
	if c.Name == "item.begin" && h.item != nil {
		return c.logicf("nested-item", "ctx.withItem(%s) inside the item %q: items do not nest", c.arg(0), h.item.item.ID)
	}
	t, f := h.x.e.tools.find(c)
	if f != nil {
		return nil // none of a tool
	}
	if _, f := t.checkParams(c, h.x.e.policy.Limits.Payload); f != nil {
		f.Tool = t.name
		return f
	}
	if t.spec.Effect != connector.Mutate {
		return nil
	}
	switch s := h.item; {
	case s == nil || c.Scope != s.scope:
		return c.logicf("call-after-item", "ctx.%s was called after its item had ended: each item has a ctx of its own", c.Name)
	case r.item:
		f := c.logicf("item-done", "ctx.%s in item %q, which is %s: begin the handler with `if (ctx.item.isDone) return`", c.Name, s.item.ID, s.item.Status)
		f.Tool = t.name
		return f
	}
	return nil
}

// begin opens an item as the record says that it was.
func (r *recorded) begin(h *scriptHost, c HostCall, answer json.RawMessage) {
	var v itemView
	if json.Unmarshal(answer, &v) != nil || v.IsBlocked {
		h.scopes++
		return
	}
	h.scopes++
	r.item = v.IsDone
	// It is over for the engine, which has nothing to store.
	h.item = &itemScope{item: keep.Item{ID: v.ID, Title: v.Title, Attempt: v.Attempt, Status: v.Status}, scope: h.scopes, done: true}
}

package engine

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector"
	"github.com/keep-run/keep/law/ledger"
	"github.com/keep-run/keep/law/policy"
	"github.com/keep-run/keep/law/trace"
)

// What a run sees is recorded beside it (package law/trace): each answer that its script gets
// from outside, each call and lookup, each phase, with the time it took. It is written with
// the commits that the run makes anyway.

// phaseName returns the name of a phase in traces.
func (x *execution) phaseName(phase string) string {
	if phase == "" {
		return "handler"
	}
	return phase
}

// sawPhase records that a phase of the script is over: s, and what it was called with, what
// it returned, and what host has of it.
func (x *execution) sawPhase(phase string, began time.Time, err error, s *trace.Script, args []json.RawMessage, result json.RawMessage, host *scriptHost) {
	if x.seen == nil {
		return
	}
	if errors.Is(err, errTaken) { // its mutate call ended it: a success
		err = nil
	}
	s.In, s.Out = trace.Digest(args...), trace.Digest(result)
	if host.taken != nil {
		s.Out = host.taken.digest()
	}
	s.Published, s.Stored = host.wrote()
	e := trace.Entry{Phase: x.phaseName(phase), What: trace.Phase, At: began, MS: since(began), Error: failureIn(err), Script: s}
	if phase == "prepare" && !x.run.Trigger.IsZero() { // prepare may name another
		e.Params = marshal(triggerOf(x.run.Trigger))
	}
	x.seen.Add(e)
}

// digest returns what tells the call from others.
func (c *takenCall) digest() trace.Sum {
	return trace.Digest([]byte(c.tool.name), []byte(c.target), c.identity, c.payload, []byte(c.subkey))
}

// wrote returns the digests of what the script wants to make durable: events, and its
// checkpoint. Empty: nothing.
func (h *scriptHost) wrote() (published, stored trace.Sum) {
	var values [][]byte
	for i := range h.publishes {
		e := &h.publishes[i]
		values = append(values, []byte(e.Topic), []byte(e.MessageID), e.Payload)
	}
	if values != nil {
		published = trace.Digest(values...)
	}
	values = nil
	for _, key := range sortedKeys(h.kv) {
		values = append(values, []byte(key), h.kv[key])
	}
	if values != nil {
		stored = trace.Digest(values...)
	}
	return published, stored
}

// sawAnswer answers a host call, and records the answer if it comes from outside.
func (h *scriptHost) sawAnswer(ctx context.Context, c HostCall, call answerer) (json.RawMessage, error) {
	x := h.x
	if x.again != nil && h.fromOutside(c) {
		return x.again.answer(ctx, h, c, call)
	}
	if x.seen == nil || !h.fromOutside(c) {
		return call(ctx, c)
	}
	e := trace.Entry{Phase: h.phase(), What: trace.Read, Tool: c.Name, Params: argsOf(c), At: time.Now()}
	x.seen.Begin(e)
	result, err := call(ctx, c)
	e.MS, e.Result, e.Error = since(e.At), result, failureIn(err)
	if err == nil || e.Error != nil {
		x.seen.End(e)
	} else { // it was cut off: nothing was seen
		x.seen.End(trace.Entry{})
	}
	return result, err
}

// sawCall records a call of the mutation under way. The record has the rest.
func (x *execution) sawCall(began time.Time, f *keep.Failure) {
	x.seen.Add(trace.Entry{Phase: string(x.run.Phase), What: trace.Call, Tool: string(x.mut.Tool), Params: marshal(x.mut.Key), At: began, MS: since(began), Error: f})
}

// sawLookup records a lookup of it, with what it said to people.
func (x *execution) sawLookup(began time.Time, fact ledger.Fact) {
	said := string(fact.Evidence)
	if fact.Detail != "" {
		said += ": " + fact.Detail
	}
	x.seen.Add(trace.Entry{Phase: string(x.run.Phase), What: trace.Lookup, Tool: string(x.mut.Tool), Params: marshal(x.mut.Key), Result: marshal(said), At: began, MS: since(began), Error: fact.Failure})
}

// fromOutside reports whether the answer of a call is not a function of what the script and
// its run are: a replay needs it.
func (h *scriptHost) fromOutside(c HostCall) bool {
	switch c.Name {
	case "kv.get", "peek", "getByIds", "registerInput", "item.begin":
		return true
	case "publish", "kv.set", "kv.delete", "item.end", "item.fail":
		return false
	}
	t, f := h.x.e.tools.find(c)
	return f == nil && (t.spec.Effect != connector.Mutate || h.place == policy.InJob)
}

// phase returns the name of the phase that makes the calls.
func (h *scriptHost) phase() string {
	switch h.place {
	case policy.InPrepare:
		return "prepare"
	case policy.InMutate:
		return "mutate"
	case policy.InNext:
		return "next"
	}
	return "handler"
}

// argsOf returns the arguments of a call: the one of a tool by itself, those of others as
// a list.
func argsOf(c HostCall) json.RawMessage {
	switch {
	case len(c.Args) == 0:
		return nil
	case len(c.Args) == 1:
		return c.Args[0]
	}
	var b strings.Builder
	for i, arg := range c.Args {
		b.WriteByte("[,"[min(i, 1)])
		if arg == nil {
			arg = json.RawMessage("null")
		}
		b.Write(arg)
	}
	b.WriteByte(']')
	return json.RawMessage(b.String())
}

// failureIn returns the failure that err is; nil if it is none.
func failureIn(err error) *keep.Failure {
	f, _ := errors.AsType[*keep.Failure](err)
	return f
}

// since returns the milliseconds since a time, to a thousandth.
func since(t time.Time) float64 { return float64(time.Since(t).Microseconds()) / 1000 }

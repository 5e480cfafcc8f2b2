package simtest

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector"
)

// The truth is what the services did. No part of Keep can see it.
type truth struct {
	effects map[string][]effect // by token
}

// An effect is one change that happened, or is on its way.
type effect struct {
	way     int           // by which it came; see settings
	user    int           // as whom it was sent
	keyed   bool          // the service looked whether it knew the key: the call was of level A
	setback time.Duration // how far the clock of the host had been set back when it was sent
	at      time.Duration // when it happens, by the clock of the services
	visible time.Duration // when the search can see it
	covers  []string      // what it was for

	workflow keep.WorkflowName
}

// contradicts reports whether "it didn't happen" would be wrong: an effect is
// there, or on its way.
func (t truth) contradicts(token string) bool { return len(t.effects[token]) > 0 }

// again returns how many effects came by a way that knew the key of the token already, to a service that looks for it. By
// another way the service does not know it: who sends it there again asks a person first. A level that keep.toml gave the
// tool since says nothing of what came before.
func (t truth) again(token string) (n int) {
	ways := make(map[[2]int]bool)
	for _, e := range t.effects[token] {
		if e.keyed && ways[[2]int{e.way, e.user}] {
			n++
		}
		ways[[2]int{e.way, e.user}] = true
	}
	return n
}

// witnessSettles is how late the search of level C may be.
const witnessSettles = 45 * time.Second

// errReset says nothing about the effect.
var errReset = errors.New("connection reset by peer")

// A fault is what a service does to one call.
type fault struct {
	name            string
	effect          string // "", "now" or "late"
	err             error  // nil: it answers
	hangs           bool   // no answer comes at all
	panics          bool
	sleeps          bool   // the host pauses with the request, and sends it after the deadline
	ignoresDeadline bool   // the connector does not look at its context, and sends when an absence would count
	result          string // instead of the right one
}

// faults are what can happen to a change. Definite answers have no effect: the
// services are honest about that.
var faults = []fault{
	{name: "refused before it was sent", err: keep.Failf(keep.ClassTransient, "refused", "connection refused")},
	{name: "reset before the effect", err: errReset},
	{name: "reset in the middle of the request", err: errReset},
	{name: "reset after the effect", effect: "now", err: errReset},
	{name: "truncated answer", effect: "now", err: io.ErrUnexpectedEOF},
	{name: "reset, and the effect comes late", effect: "late", err: errReset},
	{name: "timeout without effect", hangs: true},
	{name: "timeout after the effect", effect: "now", hangs: true},
	{name: "timeout, and the effect comes late", effect: "late", hangs: true},
	{name: "the host paused, and the effect comes late", effect: "late", sleeps: true, err: errReset},
	{name: "a connector that ignores its deadline, and the effect comes late", effect: "late", ignoresDeadline: true, err: errReset},
	{name: "a connector that ignores its deadline, and answers in the end", effect: "late", ignoresDeadline: true},
	{name: "a connector that ignores its deadline, and no effect", ignoresDeadline: true, err: errReset},
	{name: "429", err: &keep.Failure{Class: keep.ClassTransient, Code: "http-429", Message: "too many requests", RetryAfter: 90 * time.Second}},
	{name: "503 that promises nothing", effect: "now", err: keep.Failf(keep.ClassUnknown, "http-503", "unavailable")},
	{name: "503 without effect", err: keep.Failf(keep.ClassUnknown, "http-503", "unavailable")},
	{name: "422", err: keep.Failf(keep.ClassLogic, "http-422", "unprocessable")},
	{name: "403", err: keep.Failf(keep.ClassPermission, "http-403", "forbidden")},
	{name: "the table is gone", err: keep.Failf(keep.ClassPrecondition, "no-table", "there is no table")},
	{name: "result of another shape", effect: "now", result: `{"id":"not a number"}`},
	{name: "result that is no JSON", effect: "now", result: `<html>`},
	{name: "connector panics after the effect", effect: "now", panics: true},
}

// connections returns the one connection: mutate tools of each level, one that
// wants approval, and reads. See upgrades.
func (w *world) connections(upgrade int, set settings) []connector.Connection {
	result := json.RawMessage(`{"type":"object","properties":{"id":{"type":"number"}}}`)
	conn := connector.Connection{Connector: "sim", Limits: w.limits, Sender: w.sender(set.secret)}
	conn.Name, conn.Was = set.connection()
	for _, s := range []connector.Spec{
		{Name: "a", Level: keep.LevelKey},
		{Name: "b", Level: keep.LevelClaim, SettleAfter: 2 * time.Second},
		{Name: "c", Level: keep.LevelWitness, SettleAfter: witnessSettles},
		{Name: "d", Level: keep.LevelNone},
		{Name: "p", Level: keep.LevelWitness, SettleAfter: 5 * time.Second, Approve: "always"},
	} {
		s.Unique, s.Marked = w.unique, s.Name != "p"
		s.Effect, s.Identity, s.Timeout, s.Result = connector.Mutate, []string{"id", "n"}, 10*time.Second, result
		if w.setting && s.Name == "a" {
			s.Sets, s.Identity = true, []string{"of"}
		}
		plain := s.Name
		s = set.apply(s)
		m := mutator{tool{w, s, set.way, set.secret}}
		if s.Level == keep.LevelKey {
			if s.KeyLasts = w.keyLasts; w.keyFound {
				s.SettleAfter = witnessSettles
			}
			m.spec = s
		}
		switch {
		case upgrade == 2 && plain == "c":
		case s.Level == keep.LevelNone, s.Level == keep.LevelWitness && upgrade == 1:
			conn.Tools = append(conn.Tools, m)
		default:
			conn.Tools = append(conn.Tools, asker{m})
		}
	}
	conn.Tools = append(conn.Tools,
		reader{tool{w, connector.Spec{Name: "get", Effect: connector.Get}, 0, set.secret}},
		reader{tool{w, connector.Spec{Name: "list", Effect: connector.List}, 0, set.secret}})
	return []connector.Connection{conn}
}

// A tool is one operation of the services.
type tool struct {
	w    *world
	spec connector.Spec
	way  int // see settings

	secret int
}

// Spec implements connector.Tool.
func (t tool) Spec() connector.Spec { return t.spec }

type mutator struct{ tool }

// Target implements connector.Mutator.
func (m mutator) Target(params json.RawMessage) string { return "things" }

// Mutate makes the change, unless the seed decides otherwise.
func (m mutator) Mutate(ctx context.Context, r keep.Mutation) (connector.Receipt, error) {
	w, p, who := m.w, processOf(ctx), fmt.Sprintf("call %s %s %s", r.Workflow, r.Tool, r.Payload)
	p.point(who)
	if ctx.Err() != nil {
		return connector.Receipt{}, ctx.Err() // its time is over: nothing is sent
	}
	w.watchCall(p, r)
	end := sync.OnceFunc(func() { w.callEnds(p, r) })
	defer end()
	f := w.nextFault()
	// In a group another host would have asked meanwhile: what is sent after that
	// only a service can refuse that knows the key (docs/design/0005-leases.md); and it knows
	// none, if the next call goes elsewhere.
	late := w.group == nil || m.spec.Level == keep.LevelKey && !w.edited
	switch {
	case f.sleeps && late:
		p.sleep(context.Background(), w.until(r.CallDeadline)+w.span(5*time.Second), who)
	case f.ignoresDeadline && late && m.spec.Level != keep.LevelNone:
		p.sleep(context.Background(), w.until(r.CallDeadline)+10*time.Second, who)
		end() // the engine has abandoned it
		p.sleep(context.Background(), r.SettleAfter+w.span(time.Minute), who)
	}
	if f.effect != "" && !(f.err == nil && w.does(claimsFalse)) {
		m.perform(r, f.effect == "late")
	}
	if _, no := f.err.(*keep.Failure); no && f.effect == "" && w.does(refusesFalse) || f.effect != "" && w.does(actsTwice) {
		m.perform(r, false)
	}
	if w.does(neverReturns) {
		<-make(chan struct{})
	}
	if f.effect != "" && w.does(repeatsEffect) {
		m.perform(r, true)
	}
	if w.maybe(0.03) {
		w.fault("the host is stopped in a call")
		w.result.Stops++
		p.cancel()
	}
	if w.maybe(0.3) && !p.sleep(ctx, w.span(3*time.Second), who) {
		return connector.Receipt{}, ctx.Err()
	}
	if f.hangs {
		w.hang(ctx, p, who, max(0, w.until(r.CallDeadline)))
		return connector.Receipt{}, ctx.Err()
	}
	p.point("answer to " + who)
	if f.panics {
		panic("a bug of the connector")
	}
	w.answered[r.Key] = f.err == nil && ctx.Err() == nil && w.group == nil
	if f.err != nil {
		w.rest(r.Workflow, f.err)
		return connector.Receipt{}, f.err
	}
	if w.odd[r.Token] = f.result != ""; f.result == "" {
		f.result = `{"id":7}`
	}
	return connector.Receipt{Result: json.RawMessage(f.result)}, nil
}

// rest remembers what a service that has had enough asked for.
func (w *world) rest(name keep.WorkflowName, err error) {
	if f, ok := errors.AsType[*keep.Failure](err); ok && f.RetryAfter > 0 {
		w.resting[name] = time.Now().Add(f.RetryAfter).Truncate(time.Millisecond)
	}
}

// hang waits until the host gives up, which it must do in time.
func (w *world) hang(ctx context.Context, p *process, who string, limit time.Duration) {
	start, stops := time.Now(), p.stops
	p.sleep(ctx, 24*time.Hour, who)
	if took := time.Since(start); took > limit+time.Millisecond && stops == p.stops {
		w.broken("bounded", "%s was cut after %s, its limit is %s", who, took, limit)
	}
}

// nextFault returns what happens to the next call.
func (w *world) nextFault() fault {
	switch {
	case w.isDown():
		return faults[0]
	case w.maybe(w.rates.call):
		f := faults[w.below(len(faults))]
		w.fault(f.name)
		return f
	case w.drill != nil && w.result.Calls == 1:
		return w.drill.fault
	}
	return fault{effect: "now"}
}

// perform makes the effect happen, now or so late that it is just in time. A
// service of level A does it once for a token, whenever the requests arrive.
func (t tool) perform(r keep.Mutation, late bool) {
	w, level := t.w, t.spec.Level
	var sent struct{ Covers []string }
	if err := json.Unmarshal(r.Payload, &sent); err != nil {
		w.broken("pinned", "payload %s: %v", r.Payload, err)
	}
	e := effect{way: t.way, user: t.user(), keyed: level == keep.LevelKey, at: w.now(), covers: sent.Covers, workflow: r.Workflow, setback: w.clockLag()}
	last := w.now() + max(w.until(r.CallDeadline), 0) + r.SettleAfter - time.Millisecond
	if room := last - e.at; late && room > time.Second {
		e.at += w.span(room)
		if w.chance(0.3) {
			e.at = last
		}
	}
	e.visible = e.at
	if room := last - e.at; (level == keep.LevelWitness || t.found()) && room > time.Second && w.lags() {
		e.visible += w.span(room)
	}
	known := w.truth.effects[r.Token]
	same := slices.IndexFunc(known, func(k effect) bool { return k.way == t.way && k.user == t.user() && !w.forgot(k) })
	if level == keep.LevelKey && same >= 0 && !w.does(forgetsKeys) {
		known[same].at, known[same].visible = min(known[same].at, e.at), min(known[same].visible, e.visible)
		return
	}
	w.note(fmt.Sprintf("effect of %s for %v at %s, seen at %s", r.Token, e.covers, e.at, e.visible))
	w.truth.effects[r.Token] = append(known, e)
}

// lags reports whether the index of the search comes behind.
func (w *world) lags() bool {
	if w.drill != nil {
		return w.drill.lag
	}
	return w.chance(0.5)
}

// ComparePayload takes a changed revision for significant, and nothing else.
func (m mutator) ComparePayload(before, after json.RawMessage) connector.Difference {
	var a, b struct{ Rev int }
	if json.Unmarshal(before, &a) != nil || json.Unmarshal(after, &b) != nil || a != b {
		return connector.Significant
	}
	return connector.Minor
}

// An asker is a mutator that can be asked.
type asker struct{ mutator }

// Reconcile answers truthfully, if it answers; see rates.lie.
func (a asker) Reconcile(ctx context.Context, r keep.Mutation) (connector.Answer, error) {
	w, p, who := a.w, processOf(ctx), fmt.Sprintf("lookup %s %s", r.Workflow, r.Tool)
	p.point(who)
	if ctx.Err() != nil {
		return connector.Answer{}, ctx.Err() // the engine has given up
	}
	w.watchLookup(r)
	w.watchWay(a.tool, r)
	w.watchLimits(p, r.Workflow, who)
	if w.isDown() {
		return connector.Answer{}, errReset
	}
	if w.maybe(w.rates.ask) {
		switch w.below(5) {
		case 0:
			w.fault("lookup hangs")
			w.hang(ctx, p, who, w.policy.Reconcile.Inline)
			return connector.Answer{}, ctx.Err()
		case 1:
			w.fault("connector panics over a lookup")
			panic("a bug of the connector")
		case 2:
			w.fault("lookup answers nonsense")
			return connector.Answer{Verdict: "perhaps"}, nil
		default:
			w.fault("lookup fails")
			return connector.Answer{}, errReset
		}
	}
	happened := connector.Answer{Verdict: connector.Happened, Receipt: connector.Receipt{Result: json.RawMessage(`{"id":7}`)}}
	switch {
	case a.spec.Level == keep.LevelKey && a.spec.KeyLives(ctx, r): // sent again with the same key
		w.watchResend(p, a.tool, r)
		if w.granted {
			w.watchPermit(p, r)
		}
		a.perform(r, false)
		p.point("answer to " + who)
		if w.maybe(w.rates.ask / 2) {
			w.fault("the answer to a call sent again is lost")
			return connector.Answer{}, errReset
		}
		return happened, nil
	case a.spec.Level == keep.LevelKey:
		w.saw("key: outlived")
		if !a.found() {
			return connector.Answer{}, keep.Failf(keep.ClassPrecondition, "key-forgotten", "only a person can look")
		}
	}
	for _, e := range w.truth.effects[r.Token] {
		if e.visible > w.now() || e.way != a.way || e.user != a.user() {
			continue
		}
		if a.spec.Level == keep.LevelWitness && w.maybe(w.rates.lie) {
			w.fault("the search lies")
			w.lied[r.Token]++
			break
		}
		return happened, nil
	}
	if w.does(findsFalse) || a.findsAnother(r) {
		return happened, nil
	}
	return connector.Answer{Verdict: connector.Absent}, nil
}

// findsAnother reports whether the effect of an attempt before the one of r can be seen: a
// search without our mark finds it.
func (a asker) findsAnother(r keep.Mutation) bool {
	w := a.w
	if a.spec.Marked {
		return false
	}
	var sent struct{ Covers []string }
	if json.Unmarshal(r.Payload, &sent) != nil {
		return false
	}
	cut := func(unit string) (work string, attempt int) {
		before, after, _ := strings.Cut(unit, " attempt ")
		n, call, _ := strings.Cut(after, " ")
		attempt, _ = strconv.Atoi(n)
		return before + " " + call, attempt
	}
	for _, token := range sorted(w.truth.effects) {
		for _, e := range w.truth.effects[token] {
			if e.workflow != r.Workflow || e.visible > w.now() || e.user != a.user() {
				continue
			}
			for _, unit := range e.covers {
				work, n := cut(unit)
				if slices.ContainsFunc(sent.Covers, func(other string) bool { of, later := cut(other); return of == work && later > n }) {
					w.saw("redo: another attempt's effect is found")
					return true
				}
			}
		}
	}
	return false
}

type reader struct{ tool }

// Read returns what came to a source, or anything.
func (r reader) Read(ctx context.Context, params json.RawMessage) (json.RawMessage, error) {
	w, p, who := r.w, processOf(ctx), fmt.Sprintf("read %s %s", r.spec.Name, params)
	var asked struct {
		Flow   keep.WorkflowName // of a list
		Of     keep.WorkflowName // of anything
		Source keep.HandlerName
		After  int
	}
	if err := json.Unmarshal(params, &asked); err != nil {
		return nil, err
	}
	w.watchRead(p, cmp.Or(asked.Flow, asked.Of), r.spec.Name, params)
	p.point(who)
	if w.isDown() {
		return nil, errReset
	}
	if w.maybe(w.rates.call / 4) {
		w.fault("a read fails")
		switch w.below(4) {
		case 0:
			w.hang(ctx, p, who, connector.DefaultTimeout)
			return nil, ctx.Err()
		case 1:
			return nil, keep.Failf(keep.ClassPermission, "http-401", "unauthorized")
		case 2:
			panic("a bug of the connector")
		}
		return nil, errReset
	}
	if r.spec.Name == "get" {
		return json.RawMessage(`{"id":7}`), nil
	}
	found := []string{}
	for n, at := range w.source(asked.Flow, asked.Source).arrivals {
		if n >= asked.After && at <= w.now() && len(found) < 4 {
			found = append(found, fmt.Sprintf("e%d", n))
		}
	}
	return json.Marshal(map[string]any{"IDs": found})
}

func (w *world) source(name keep.WorkflowName, producer keep.HandlerName) *source {
	for _, f := range w.flows {
		for _, s := range f.sources {
			if f.name == name && s.producer == producer {
				return s
			}
		}
	}
	panic("no source " + producer)
}

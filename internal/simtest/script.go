package simtest

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/engine"
)

// scripts gives the engine of one process the scripts of all versions.
type scripts struct{ p *process }

// Script implements engine.Scripts.
func (s scripts) Script(_ context.Context, d keep.Deployment) (engine.Script, error) {
	for _, f := range s.p.w.flows {
		if f.name == d.Workflow {
			return script{p: s.p, f: f, b: f.behaviour[d.Hash]}, nil
		}
	}
	return nil, fmt.Errorf("no script for %s", d.Workflow)
}

// A script is one version of a workflow, as Go functions.
type script struct {
	p *process
	f *flow
	b behaviour

	again bool // in a replay: what the world decided in the run is decided again
}

// A call is a function of a script while it runs.
type call struct {
	script
	ctx   context.Context
	c     engine.ScriptCall
	who   string
	left  *[]int // in a replay: decisions of the world
	scope int
	items int // begun with this ctx
}

// ended unwinds a function whose host call failed: nothing of a script runs after
// that (law: not-catchable).
type ended struct{ err error }

// Locate implements engine.Script.
func (s script) Locate(context.Context, []string) string { return "" }

// Call implements engine.Script.
func (s script) Call(ctx context.Context, sc engine.ScriptCall) (out json.RawMessage, err error) {
	c := &call{script: s, ctx: ctx, c: sc, who: fmt.Sprintf("script %s %s", s.f.name, strings.Join(sc.Path, "."))}
	defer func() {
		switch r := recover().(type) {
		case nil:
		case ended:
			out, err = nil, r.err
		default:
			panic(r)
		}
	}()
	if s.again {
		left := s.p.w.decisions(sc.Seed)
		c.left = &left
	} else {
		c.begin()
	}
	v := c.body()
	if v == nil {
		return nil, nil
	}
	return json.Marshal(v)
}

// decide returns what the world decides in the middle of a function: a replay of the phase
// gets the same.
func (c *call) decide(draw func() int) int {
	if c.left != nil {
		n := (*c.left)[0]
		*c.left = (*c.left)[1:]
		return n
	}
	n, w := draw(), c.p.w
	w.mu.Lock()
	defer w.mu.Unlock()
	w.decided[string(c.c.Seed)] = append(w.decided[string(c.c.Seed)], n)
	return n
}

// maybe is decide for a chance.
func (c *call) maybe(p float64) bool {
	return c.decide(func() int {
		if c.p.w.maybe(p) {
			return 1
		}
		return 0
	}) == 1
}

// decisions returns what the world decided in a phase, in order.
func (w *world) decisions(seed []byte) []int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.decided[string(seed)])
}

// begin is a turn. The script may take its time, and may be stopped meanwhile.
func (c *call) begin() {
	w := c.p.w
	c.p.point(c.who)
	if !w.maybe(w.rates.script) {
		return
	}
	w.fault("script is slow")
	if !c.p.sleep(c.ctx, w.span(2*time.Second), c.who) {
		panic(ended{context.Cause(c.ctx)})
	}
}

// body runs the function that was called.
func (c *call) body() any {
	handler := keep.HandlerName(c.c.Path[1])
	switch c.c.Path[0] {
	case "producers":
		for _, s := range c.f.sources {
			if s.producer == handler {
				return c.produce(s)
			}
		}
	case "jobs":
		return c.work(c.f.job)
	default:
		for _, k := range c.f.consumers {
			if k.name != handler {
				continue
			}
			return map[string]func(consumer) any{"key": c.key, "prepare": c.prepare, "mutate": c.mutate, "next": c.next}[c.c.Path[2]](k)
		}
	}
	panic(fmt.Sprintf("no function %v", c.c.Path))
}

// do makes a host call.
func (c *call) do(name string, args ...any) json.RawMessage { return c.doBefore(nil, name, args...) }

func (c *call) doBefore(waiting []string, name string, args ...any) json.RawMessage {
	hc := engine.HostCall{Name: c.today(name), At: "w.js:1:1", Scope: c.scope}
	for _, other := range waiting {
		hc.Waiting = append(hc.Waiting, c.today(other))
	}
	for _, a := range args {
		b, err := json.Marshal(a)
		if err != nil {
			panic(err)
		}
		hc.Args = append(hc.Args, b)
	}
	out, err := c.c.Host.HostCall(c.ctx, hc)
	if err != nil {
		panic(ended{err})
	}
	return out
}

// today returns the name that a tool has for the process.
func (c *call) today(name string) string {
	if tool, ok := strings.CutPrefix(name, "svc."); ok {
		conn, _ := c.p.settings.connection()
		if slices.Contains(mutators, tool) {
			tool, _ = c.p.settings.tool(tool)
		}
		return conn + "." + tool
	}
	return name
}

func (c *call) arg(i int, v any) bool {
	if i >= len(c.c.Args) || c.c.Args[i] == nil {
		return false
	}
	c.decode(c.c.Args[i], v)
	return true
}

func (c *call) decode(raw json.RawMessage, v any) {
	if err := json.Unmarshal(raw, v); err != nil {
		panic(fmt.Sprintf("%s: %v in %s", c.who, err, raw))
	}
}

// misbehave does what is wrong with this version in this phase, for some events.
func (c *call) misbehave(phase, about string) {
	if c.b.phase != phase || c.b.bug == "" || int(about[len(about)-1])%c.b.every != 0 {
		return
	}
	switch c.b.bug {
	case "throws":
		if phase == "job" {
			c.do("item.fail", map[string]string{"name": "TypeError", "message": "over " + about})
		}
		panic(ended{keep.Failf(keep.ClassLogic, "script-error", "TypeError over %s", about)})
	case "forbidden":
		c.do(map[string]string{"prepare": "svc.d", "mutate": "publish", "next": "svc.a", "producer": "svc.c", "job": "kv.set"}[phase],
			map[string]any{"id": about})
	case "two-calls":
		if phase == "mutate" {
			c.doBefore([]string{"svc.b"}, "svc.a", map[string]any{"id": about})
		}
	}
}

// produce publishes what came since the checkpoint.
func (c *call) produce(s *source) any {
	var cursor int
	c.decode(c.do("kv.get", "cursor"), &cursor)
	var found struct{ IDs []string }
	c.decode(c.do("svc.list", map[string]any{"flow": c.f.name, "source": s.producer, "after": cursor}), &found)
	for _, id := range found.IDs {
		c.misbehave("producer", id)
		m := map[string]any{"messageId": id, "payload": map[string]any{"n": cursor}}
		if s.inputs {
			var in string
			c.decode(c.do("registerInput", map[string]any{"source": "svc", "type": "thing", "id": id, "title": "Thing " + id}), &in)
			m["inputId"] = in
		}
		c.do("publish", c.b.called(s.topic), m)
		cursor++
	}
	if len(found.IDs) > 0 {
		c.do("kv.set", "cursor", max(0, cursor-c.decide(c.p.w.again)))
	}
	return nil
}

// again returns by how many things a producer goes back: the same events again.
func (w *world) again() int {
	if w.maybe(0.1) {
		return 1
	}
	return 0
}

// A plan is the data that prepare pins.
type plan struct {
	ID     string   `json:"id"`
	Out    string   `json:"out"`    // the id under which next passes on that it was done
	Covers []string `json:"covers"` // handler, topic, id and attempt of each event
	Quiet  bool     `json:"quiet"`  // mutate finds nothing to do, and makes no call
}

type event struct {
	Topic, MessageID string
	Attempt          int
}

// unitOf names what a consumer does for an event in one attempt.
func unitOf[H, T, M ~string](handler H, topic T, id M, attempt int) string {
	return fmt.Sprintf("%s %s %s attempt %d", handler, topic, id, attempt)
}

// outOf is the id of what follows from an event in one attempt. The attempt stands before the
// id: behind it, what follows from the second attempt at x, and from an x@2, would be one.
func outOf[T, M ~string](topic T, id M, attempt int) string {
	if attempt > 1 {
		return fmt.Sprintf("%s@%d:%s", topic, attempt, id)
	}
	return fmt.Sprintf("%s:%s", topic, id)
}

// otherTopic is what the other name of a topic ends with.
const otherTopic = "-other"

// called returns the name that the version has for a topic.
func (b behaviour) called(t keep.TopicName) keep.TopicName {
	if b.retopics {
		return t + otherTopic
	}
	return t
}

// first returns the first name of a topic that the script was given by its name for it.
func (c *call) first(topic string) string {
	t, other := strings.CutSuffix(topic, otherTopic)
	if other != c.b.retopics {
		panic(fmt.Sprintf("%s: it was given the topic %s", c.who, topic))
	}
	return t
}

// key is the order key of an event.
func (c *call) key(consumer) any {
	var ev event
	c.arg(0, &ev)
	c.misbehave("key", ev.MessageID)
	if c.b.phase == "key" && c.b.bug == "garbage" {
		return []string{"a", "", "b"}[int(ev.MessageID[len(ev.MessageID)-1])%3]
	}
	return orderKey(ev.MessageID)
}

// prepare reserves the trigger and what else waits, up to the size of a batch.
func (c *call) prepare(k consumer) any {
	var trigger event
	none := map[string]any{"reservations": []any{}, "data": plan{}}
	if !c.arg(0, &trigger) {
		return none
	}
	trigger.Topic = c.first(trigger.Topic)
	c.misbehave("prepare", trigger.MessageID)
	if c.b.phase == "prepare" && c.b.bug == "garbage" {
		return map[string]any{"reservations": "all of them"}
	}
	if c.maybe(0.05) {
		none["wakeAt"] = c.c.Now.Add(time.Minute)
		return none
	}
	p := plan{ID: trigger.Topic + ":" + trigger.MessageID, Out: outOf(trigger.Topic, trigger.MessageID, trigger.Attempt), Quiet: c.maybe(0.05)}
	picked := map[string][]string{trigger.Topic: {trigger.MessageID}}
	attempts := map[string]int{trigger.Topic + trigger.MessageID: trigger.Attempt}
	left := k.batch - 1
	for _, t := range k.subscribe {
		var more []event
		if left > 0 {
			c.decode(c.do("peek", c.b.called(t), map[string]any{"limit": k.batch}), &more)
		}
		for _, e := range more {
			e.Topic = c.first(e.Topic)
			if left > 0 && e != trigger && (k.order != keep.OrderKey || orderKey(e.MessageID) == orderKey(trigger.MessageID)) {
				picked[e.Topic] = append(picked[e.Topic], e.MessageID)
				attempts[e.Topic+e.MessageID] = e.Attempt
				left--
			}
		}
	}
	if c.b.phase == "prepare" && c.b.bug == "unknown-event" {
		picked[trigger.Topic] = append(picked[trigger.Topic], "nobody-published-this")
	}
	var reservations []any
	for _, t := range k.subscribe {
		for _, id := range picked[string(t)] {
			p.Covers = append(p.Covers, unitOf(k.name, t, id, attempts[string(t)+id]))
		}
		if ids := picked[string(t)]; len(ids) > 0 {
			reservations = append(reservations, map[string]any{"topic": c.b.called(t), "ids": ids})
		}
	}
	return map[string]any{"reservations": reservations, "data": p, "ui": map[string]any{"title": "Do " + p.ID}}
}

// mutate makes the one call.
func (c *call) mutate(k consumer) any {
	var prepared struct{ Data plan }
	c.arg(0, &prepared)
	c.misbehave("mutate", prepared.Data.ID)
	if k.peeks {
		c.do("svc.get", map[string]any{"id": prepared.Data.ID, "of": c.f.name})
	}
	if prepared.Data.Quiet {
		return nil
	}
	params := map[string]any{"id": string(k.name) + "/" + prepared.Data.ID, "covers": prepared.Data.Covers}
	if c.p.w.setting && k.tool == "a" {
		params["of"] = slot(prepared.Data.ID, 0)
	}
	c.do("svc."+k.tool, params)
	panic("the mutate call is terminal")
}

// next passes on that it was done.
func (c *call) next(k consumer) any {
	var prepared struct{ Data plan }
	var result struct{ Status string }
	c.arg(0, &prepared)
	c.arg(1, &result)
	if len(prepared.Data.Covers) == 0 {
		return nil // nothing was reserved
	}
	c.misbehave("next", prepared.Data.ID)
	c.do("publish", c.b.called(k.out), map[string]any{"messageId": prepared.Data.Out, "status": result.Status})
	return nil
}

// work handles every item once.
func (c *call) work(j *job) any {
	for i := range j.items {
		rev := c.decide(func() int {
			if c.p.w.maybe(0.1) {
				j.items[i].rev++
			}
			return j.items[i].rev
		})
		it := j.items[i]
		it.rev = rev
		var view struct {
			Attempt           int
			IsDone, IsBlocked bool
		}
		c.decode(c.do("item.begin", it.id, "Item "+it.id), &view)
		inner := *c
		c.items++
		inner.scope = c.items
		if !view.IsDone {
			inner.misbehave("job", it.id)
			for n := range it.calls {
				params := map[string]any{"id": it.id, "n": n, "rev": it.rev,
					"covers": []string{fmt.Sprintf("%s %s attempt %d call %d", j.name, it.id, view.Attempt, n)}}
				if c.p.w.setting && j.tool == "a" {
					params["of"], params["subkey"] = slot(it.id, n), strconv.Itoa(n)
				}
				inner.do("svc."+j.tool, params)
			}
		}
		c.do("item.end")
	}
	return nil
}

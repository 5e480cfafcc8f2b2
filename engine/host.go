package engine

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector"
	"github.com/keep-run/keep/law/given"
	"github.com/keep-run/keep/law/ledger"
	"github.com/keep-run/keep/law/policy"
)

// A scriptHost answers the calls of one phase. What the phase wants to make
// durable stays in its buffers until the phase has succeeded.
type scriptHost struct {
	x     *execution
	place policy.Place
	now   time.Time

	phaseCtx context.Context // ends only when the host stops

	publishes []keep.Event
	published int            // bytes in them
	ids       string         // what the ids that Keep makes begin with; a commit may change the run beside the script
	made      map[string]int // ids that Keep made, by the place of the call
	inputs    []keep.Input
	known     map[inputKey]keep.InputID  // inputs that this run has met
	kv        map[string]json.RawMessage // nil value: deleted
	kvBefore  map[string]json.RawMessage // what was stored of the keys that it read or sets; nil value: nothing
	taken     *takenCall                 // mutate phase: the call that ended it
	item      *itemScope                 // jobs: the item under way
	scopes    int                        // jobs: items begun so far
	finished  []keep.Change              // jobs: items that are done, not stored yet

	items   readAhead[string, keep.Item]                   // jobs: items that are done
	results readAhead[keep.MutationKey, keep.StoredResult] // jobs: of calls in items
}

// An inputKey is what makes an input unique within a workflow.
type inputKey struct{ source, typ, external string }

func (x *execution) host(place policy.Place) *scriptHost {
	return &scriptHost{x: x, place: place, now: x.e.Now(), ids: x.run.MadeIDs(), known: make(map[inputKey]keep.InputID)}
}

// HostCall answers one call. Every error ends the phase.
func (h *scriptHost) HostCall(ctx context.Context, c HostCall) (json.RawMessage, error) {
	kind, call, f := h.lookup(c)
	if f == nil {
		f = policy.Check(h.placeOf(c), kind, spelling(c.Name))
	}
	if f != nil {
		if f.At == "" {
			f.At = c.At
		}
		return nil, f
	}
	if h.place == policy.InJob && c.Name != "item.end" && c.Name != "item.fail" {
		if err := h.paused(ctx); err != nil {
			return nil, h.cutOff(ctx, c, err)
		}
	}
	return h.sawAnswer(ctx, c, func(ctx context.Context, c HostCall) (json.RawMessage, error) {
		out, err := call(ctx, c)
		return out, h.cutOff(ctx, c, err)
	})
}

// cutOff returns what a host call failed with. One whose own context has ended, be it at the limit of
// the phase or where a handler in Go ended it, and not that of the phase, was cut off: that is a
// failure of the phase, and neither the host that stops nor a store that failed.
func (h *scriptHost) cutOff(ctx context.Context, c HostCall, err error) error {
	_, atStore := errors.AsType[*storeError](err)
	_, written := errors.AsType[*commitError](err)
	if ctx.Err() == nil || written || !atStore && !errors.Is(err, errEnded) || h.phaseCtx.Err() != nil {
		return err
	}
	cause := context.Cause(ctx)
	if f, ok := errors.AsType[*keep.Failure](cause); ok {
		return f
	}
	return &keep.Failure{Class: keep.ClassTransient, Code: "timeout", At: c.At,
		Message: fmt.Sprintf("%s was given up, since its time was over: %v", spelling(c.Name), cause)}
}

// spelling returns the name by which scripts make a call.
func spelling(name string) string {
	if strings.HasPrefix(name, "item.") {
		return "withItem"
	}
	return name
}

// An answerer performs one kind of host call.
type answerer func(ctx context.Context, c HostCall) (json.RawMessage, error)

// lookup returns what kind of call c is and what performs it.
func (h *scriptHost) lookup(c HostCall) (policy.Call, answerer, *keep.Failure) {
	switch c.Name {
	case "publish":
		return policy.CallPublish, h.publish, nil
	case "registerInput":
		return policy.CallIngress, h.registerInput, nil
	case "kv.get":
		return policy.CallIngress, h.kvGet, nil
	case "kv.set":
		return policy.CallIngress, h.kvSet, nil
	case "kv.delete":
		return policy.CallIngress, h.kvDelete, nil
	case "peek":
		return policy.CallTopics, h.peek, nil
	case "getByIds":
		return policy.CallTopics, h.getByIDs, nil
	case "item.begin":
		return policy.CallWithItem, h.itemBegin, nil
	case "item.end":
		return policy.CallGet, h.itemEnd, nil // part of withItem: allowed wherever it can come from
	case "item.fail":
		return policy.CallGet, h.itemFail, nil
	}
	if !strings.Contains(c.Name, ".") {
		return "", nil, c.logicf("unknown-call", "ctx.%s is not a function that Keep has", c.Name)
	}
	t, f := h.x.e.tools.find(c)
	if f != nil {
		return "", nil, f
	}
	return t.kind(), func(ctx context.Context, c HostCall) (json.RawMessage, error) { return h.useTool(ctx, t, c) }, nil
}

// placeOf returns the row of the table of phases that c falls under.
func (h *scriptHost) placeOf(c HostCall) policy.Place {
	if h.place == policy.InJob && c.Scope != 0 {
		return policy.InItem
	}
	return h.place
}

// useTool performs a read, or takes a mutate call over.
func (h *scriptHost) useTool(ctx context.Context, t *tool, c HostCall) (json.RawMessage, error) {
	params, f := t.checkParams(c, h.x.e.policy.Limits.Payload)
	if f != nil {
		f.Tool = t.name
		return nil, f
	}
	if c.Changes && t.spec.Effect != connector.Mutate {
		f := c.logicf("not-a-mutation", "%s changes nothing and is called by a function that makes a change; read it with Read", t.name)
		f.Tool = t.name
		return nil, f
	}
	if t.spec.Effect != connector.Mutate {
		if err := h.x.mayRead(ctx, t, params, c.At); err != nil { // before it waits for a limit
			return nil, err
		}
	}
	switch {
	case t.spec.Cost:
		return h.buy(ctx, t, c, params)
	case t.spec.Effect != connector.Mutate:
		return h.read(ctx, t, c, params)
	}
	if c.ReadOnly {
		f := c.logicf("not-a-read", "%s changes something and is called by a function that only reads; nothing was sent", t.name)
		f.Tool = t.name
		return nil, f
	}
	call := &takenCall{tool: t, params: params, at: c.At, pause: c.Pause}
	var err error
	if call.identity, call.payload, call.subkey, err = ledger.Identify(params, t.spec.Identity); err != nil {
		f := c.logicf(badParams, "%v", err)
		f.Tool = t.name
		return nil, f
	}
	if len(t.spec.Identity) > 0 && string(call.identity) == "{}" {
		f := c.logicf(badParams, "the params that say what is changed are missing: %s", strings.Join(t.spec.Identity, ", "))
		f.Tool = t.name
		return nil, f
	}
	if call.target, f = t.target(call.payload, c.At); f != nil {
		return nil, f
	}
	if h.place != policy.InMutate {
		return h.mutateInItem(ctx, call, c)
	}
	for _, waiting := range c.Waiting {
		if other, _ := h.x.e.tools.find(HostCall{Name: waiting}); other != nil && other.kind() == policy.CallMutate {
			f := c.logicf("two-mutations", "two mutate calls at once (%s and %s): a run makes at most one; nothing was sent", c.Name, waiting)
			f.Tool = t.name
			return nil, f
		}
	}
	h.taken = call
	return nil, errTaken
}

// read performs a list or get call when the limits of its connection allow it.
func (h *scriptHost) read(ctx context.Context, t *tool, c HostCall, params json.RawMessage) (json.RawMessage, error) {
	ctx, end := h.x.e.toolSpan(ctx, MeasuredRead, h.x.a.name, t, "")
	p, err := h.x.enter(ctx, t, t.spec.Timeout, c.At, c.Pause)
	if err != nil {
		end(nil)
		return nil, err
	}
	if err := h.x.mayRead(ctx, t, params, c.At); err != nil { // a person may have taken it since
		p.done(ctx, nil, true)
		end(nil)
		return nil, err
	}
	p.notice = h.x.newNotice(t)
	result, f := h.x.a.readWithin(p.within(ctx), t, p.stood, c, params)
	p.done(ctx, f, ctx.Err() != nil)
	end(f)
	if err := p.whyEnded(); err != nil {
		return nil, err
	}
	if f != nil {
		return nil, f
	}
	if err := p.notice.over(ctx); err != nil {
		return nil, &storeError{err}
	}
	h.watchFor(t)
	return result, nil
}

// publish buffers events until the phase commits.
func (h *scriptHost) publish(ctx context.Context, c HostCall) (json.RawMessage, error) {
	topics, f := topicList(c)
	if f != nil {
		return nil, f
	}
	def := h.x.v.Definition
	for i, t := range topics {
		if topics[i] = def.TopicOf(t); !def.HasTopic(topics[i]) {
			return nil, c.logicf("unknown-topic", "ctx.publish: topic %q is not declared; the topics are %v", t, calledIn(def, def.Topics))
		}
		if !h.x.def.MayPublish(topics[i]) {
			return nil, c.logicf("undeclared-publish", "ctx.publish: %s declares publishes %v, not %q", h.x.run.Handler, calledIn(def, h.x.def.Publishes), t)
		}
	}
	m, f := parseMessage(c, h.x.e.policy.Limits.Payload)
	if f != nil {
		return nil, f
	}
	if m.id == "" && h.place == policy.InProducer && m.once {
		return nil, c.logicf("message-id-needed", "ctx.publish(%q) in a producer needs a messageId: what was read again would be handled again without one; "+
			"take the id that the service gave the thing, or write once: false if each publish is meant to be an event of its own", def.CalledIn(topics[0]))
	}
	if m.id == "" {
		m.id = h.madeID(c)
	}
	var causes []keep.InputID
	switch {
	case m.input != "":
		if err := h.checkInput(ctx, c, m.input); err != nil {
			return nil, err
		}
		causes = []keep.InputID{m.input}
	case h.place == policy.InProducer:
		in, err := h.input(ctx, string(topics[0]), "event", string(m.id), string(m.id))
		if err != nil {
			return nil, err
		}
		causes = []keep.InputID{in}
	}
	for _, t := range topics {
		h.published += len(m.payload)
		h.publishes = append(h.publishes, keep.Event{
			Workflow: h.x.a.name, Topic: t, MessageID: m.id, Payload: m.payload,
			Status: keep.EventPending, CreatedBy: keep.Publisher(h.x.run.ID), CausedBy: causes,
		})
	}
	switch limits := h.x.e.policy.Limits; {
	case len(h.publishes) > limits.Publishes:
		return nil, c.logicf("too-many-publishes", "ctx.publish: more than %d events in one run; publish fewer, and keep a checkpoint", limits.Publishes)
	case h.published > limits.PublishBytes:
		return nil, c.logicf("publishes-too-large", "ctx.publish: payloads of more than %d bytes in one run; publish fewer, keep a checkpoint, or publish references", limits.PublishBytes)
	}
	return nil, nil
}

// madeID returns the id of an event that was published without one: the run chain (in a
// producer the run), the place of the call, and how many were published there before.
// So an attempt that runs again makes the same ids.
func (h *scriptHost) madeID(c HostCall) keep.MessageID {
	if h.made == nil {
		h.made = make(map[string]int)
	}
	h.made[c.At]++
	return keep.MessageID(fmt.Sprintf("%s%s/%d", h.ids, c.At, h.made[c.At]))
}

func topicList(c HostCall) ([]keep.TopicName, *keep.Failure) {
	var one keep.TopicName
	if json.Unmarshal(c.arg(0), &one) == nil && one != "" {
		return []keep.TopicName{one}, nil
	}
	var many []keep.TopicName
	if json.Unmarshal(c.arg(0), &many) == nil && len(many) > 0 {
		return many, nil
	}
	return nil, c.logicf("bad-publish", "ctx.publish(topic | topic[], message): the topic must be a string or a list of strings, not %s", given.Show(c.arg(0)))
}

// A message is what a script publishes.
type message struct {
	id      keep.MessageID
	input   keep.InputID
	payload json.RawMessage
	once    bool // a repeat is not wanted
}

// parseMessage reads {messageId?, once?, inputId?, payload?} or {messageId?, ...fields}.
func parseMessage(c HostCall, limit int) (message, *keep.Failure) {
	bad := func(format string, args ...any) (message, *keep.Failure) {
		return message{}, c.logicf("bad-publish", "ctx.publish: %s", fmt.Sprintf(format, args...))
	}
	fields := map[string]json.RawMessage{}
	if raw := c.arg(1); raw != nil {
		if err := json.Unmarshal(raw, &fields); err != nil || fields == nil {
			return bad("the message must be an object, not %s", given.Show(raw))
		}
	}
	m := message{once: true}
	var err error
	if raw, ok := fields["once"]; ok {
		if err := json.Unmarshal(raw, &m.once); err != nil || string(raw) == "null" {
			return bad("once must be true or false, not %s", given.Show(raw))
		}
		delete(fields, "once")
	}
	if raw, ok := fields["messageId"]; ok {
		if !m.once {
			return bad("once: false together with a messageId: the same messageId is one event, so leave one of them out")
		}
		if m.id, err = messageID(raw); err != nil {
			return bad("messageId: %v", err)
		}
		delete(fields, "messageId")
	}
	if raw, ok := fields["inputId"]; ok {
		if err := json.Unmarshal(raw, &m.input); err != nil || m.input == "" {
			return bad("inputId must be what ctx.registerInput returned, not %s", given.Show(raw))
		}
		delete(fields, "inputId")
	}
	if p, ok := fields["payload"]; ok {
		if len(fields) > 1 {
			delete(fields, "payload")
			return bad("the message has a payload and other fields (%s); put them into the payload", strings.Join(sortedKeys(fields), ", "))
		}
		m.payload = p
	} else {
		m.payload = marshal(fields)
	}
	if len(m.payload) > limit {
		return message{}, c.logicf("payload-too-large", "ctx.publish: payload of %d bytes: at most %d; publish a reference instead", len(m.payload), limit)
	}
	return m, nil
}

func sortedKeys[K cmp.Ordered, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }

// registerInput returns the id of an input, and makes it if it is new.
func (h *scriptHost) registerInput(ctx context.Context, c HostCall) (json.RawMessage, error) {
	var in struct {
		Source, Type, ID json.RawMessage
		Title            string
	}
	if err := given.Decode(c.arg(0), &in); err != nil {
		return nil, c.logicf("bad-input", "ctx.registerInput({source, type, id, title}): %v", err)
	}
	id, err := messageID(in.ID)
	if err != nil {
		return nil, c.logicf("bad-input", "ctx.registerInput: id: %v", err)
	}
	source, err := nameText(in.Source)
	if err != nil {
		return nil, c.logicf("bad-input", "ctx.registerInput: source: %v", err)
	}
	typ, err := nameText(in.Type)
	if err != nil {
		return nil, c.logicf("bad-input", "ctx.registerInput: type: %v", err)
	}
	if in.Title == "" {
		in.Title = string(id)
	}
	got, err := h.input(ctx, source, typ, string(id), in.Title)
	if err != nil {
		return nil, err
	}
	return marshal(got), nil
}

// checkInput refuses an input that the workflow does not have: the store would
// refuse the commit, again and again.
func (h *scriptHost) checkInput(ctx context.Context, c HostCall, id keep.InputID) error {
	for _, known := range h.known {
		if known == id {
			return nil
		}
	}
	in, err := h.x.e.store.Input(ctx, id)
	switch {
	case isNotFound(err) || err == nil && in.Workflow != h.x.a.name:
		return c.logicf("unknown-input", "ctx.publish: this workflow has no input %q; use what ctx.registerInput returned", id)
	case err != nil:
		return &storeError{err}
	}
	return nil
}

// input returns the id of the input with that key: the one in this run's
// buffer, the stored one, or a new one. The first title is kept.
func (h *scriptHost) input(ctx context.Context, source, typ, external, title string) (keep.InputID, error) {
	key := inputKey{source, typ, external}
	if id, ok := h.known[key]; ok {
		return id, nil
	}
	known, err := h.x.e.store.InputByKey(ctx, h.x.a.name, source, typ, external)
	switch {
	case err == nil:
		h.known[key] = known.ID
		return known.ID, nil
	case !isNotFound(err):
		return "", &storeError{err}
	}
	in := keep.Input{
		ID: keep.InputID(h.x.e.newID("in", h.now)), Workflow: h.x.a.name, Source: source, Type: typ,
		ExternalID: external, Title: keep.CutTitle(title), Status: keep.InputPending, CreatedAt: h.now,
	}
	h.inputs = append(h.inputs, in)
	h.known[key] = in.ID
	return in.ID, nil
}

// peek returns the oldest free events of a subscribed topic.
func (h *scriptHost) peek(ctx context.Context, c HostCall) (json.RawMessage, error) {
	topic, f := h.subscribed(c)
	if f != nil {
		return nil, f
	}
	opt := struct{ Limit int }{Limit: 100}
	if raw := c.arg(1); raw != nil {
		if err := json.Unmarshal(raw, &opt); err != nil || opt.Limit < 1 || opt.Limit > h.x.e.policy.Limits.Peek {
			return nil, c.logicf("bad-peek", "ctx.peek(topic, {limit}): limit must be from 1 to %d, not %s", h.x.e.policy.Limits.Peek, given.Show(raw))
		}
	}
	events, err := h.x.e.store.Peek(ctx, h.x.a.name, topic, opt.Limit)
	if err != nil {
		return nil, &storeError{err}
	}
	return eventsJSON(h.x.v.Definition, events), nil
}

// getByIDs returns those of the named events that exist, whatever their status.
func (h *scriptHost) getByIDs(ctx context.Context, c HostCall) (json.RawMessage, error) {
	topic, f := h.subscribed(c)
	if f != nil {
		return nil, f
	}
	var raw []json.RawMessage
	if err := json.Unmarshal(c.arg(1), &raw); err != nil || len(raw) > h.x.e.policy.Limits.Peek {
		return nil, c.logicf("bad-ids", "ctx.getByIds(topic, ids): ids must be a list of at most %d message ids, not %s", h.x.e.policy.Limits.Peek, given.Show(c.arg(1)))
	}
	ids := make([]keep.MessageID, 0, len(raw))
	for i, r := range raw {
		id, err := messageID(r)
		if err != nil {
			return nil, c.logicf("bad-ids", "ctx.getByIds(topic, ids): ids[%d]: %v", i, err)
		}
		ids = append(ids, id)
	}
	events, err := h.x.e.store.EventsByID(ctx, h.x.a.name, topic, ids)
	if err != nil {
		return nil, &storeError{err}
	}
	return eventsJSON(h.x.v.Definition, events), nil
}

func (h *scriptHost) subscribed(c HostCall) (keep.TopicName, *keep.Failure) {
	var topic keep.TopicName
	err, def := json.Unmarshal(c.arg(0), &topic), h.x.v.Definition
	if topic = def.TopicOf(topic); err != nil || !slices.Contains(h.x.def.Subscribe, topic) {
		return "", c.logicf("not-subscribed", "ctx.%s: %s is not a subscribed topic; %s subscribes to %v", c.Name, given.Show(c.arg(0)), h.x.run.Handler, calledIn(def, h.x.def.Subscribe))
	}
	return topic, nil
}

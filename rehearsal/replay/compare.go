package replay

import (
	"bytes"
	"context"
	"encoding/json"
	"slices"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/engine"
	"github.com/keep-run/keep/law/lifecycle"
	"github.com/keep-run/keep/law/trace"
	"github.com/keep-run/keep/store"
)

// compare says what the script did otherwise in a phase, and reports whether the next phase
// would begin with an answer that is known.
func (r *replay) compare(ctx context.Context, p phase, got engine.ReplayResult) (known bool, err error) {
	r.compareErrors(p, got)
	was := p.end.Script
	known = true
	switch p.name {
	case "prepare":
		if got.Failure == nil && got.Out != was.Out {
			r.comparePrepared(p, got)
		}
	case "mutate":
		unmade, err := r.unmade(ctx)
		if err != nil {
			return false, err
		}
		if known = got.Out == was.Out || got.Call == nil && r.run.Mutation == "" && unmade == "" && p.end.Error == nil; !known && got.Failure == nil {
			if err := r.compareCalls(ctx, p, got, unmade); err != nil {
				return false, err
			}
			r.ends(got)
		}
	default:
		r.compareAsked(p, got)
		if got.Published != was.Published {
			if err := r.comparePublishes(ctx, p, got); err != nil {
				return false, err
			}
		}
		if got.Stored != was.Stored {
			r.differs(p.name, Checkpoint, nil, "another checkpoint")
		}
		if said := engine.SaysMore(was.Out); got.Failure == nil && got.Out != was.Out && (said || got.More) {
			r.differs(p.name, Data, orMore(said), orMore(got.More))
		}
		known = true
	}
	return known, nil
}

// orMore returns what a producer returned, as far as that means anything; none is null.
func orMore(more bool) any {
	if more {
		return map[string]bool{"more": true}
	}
	return nil
}

// A failure is what differences say of an error. Where it was thrown is another place in
// another script.
type failure struct {
	Class   keep.Class `json:"class"`
	Code    string     `json:"code"`
	Message string     `json:"message"`
}

func failureOf(f *keep.Failure) *failure {
	if f == nil {
		return nil
	}
	return &failure{f.Class, f.Code, f.Message}
}

// compareErrors compares what ended the phase.
func (r *replay) compareErrors(p phase, got engine.ReplayResult) {
	was := failureOf(p.end.Error)
	if was == nil && p.name == "prepare" && r.run.Prepared == nil && got.Failure != nil && got.Out == p.end.Script.Out {
		was = failureOf(r.run.Error) // what it returned was refused
	}
	now := failureOf(got.Failure)
	if was == nil && now == nil || was != nil && now != nil && *was == *now {
		return
	}
	r.differs(p.name, Failed, was, now)
}

// comparePrepared compares what prepare returned.
func (r *replay) comparePrepared(p phase, got engine.ReplayResult) {
	var was json.RawMessage
	if trace.Digest(r.run.Prepared) == p.end.Script.Out {
		was = r.run.Prepared
	}
	if was == nil {
		r.differs(p.name, Data, nil, got.Result)
		return
	}
	before := len(r.report.Differences)
	if !sameReservations(r.run.Reservations, got.Reservations) {
		r.differs(p.name, Reservations, reservationsOf(r.run.Reservations), reservationsOf(got.Reservations))
	}
	a, b := fields(was), fields(got.Result)
	if bytes.Equal(a["data"], b["data"]) {
		delete(a, "data")
		delete(b, "data")
	}
	delete(a, "reservations")
	delete(b, "reservations")
	for k, v := range a {
		if bytes.Equal(v, b[k]) {
			delete(a, k)
			delete(b, k)
		}
	}
	if len(a)+len(b) > 0 {
		r.differs(p.name, Data, a, b)
	}
	if len(r.report.Differences) == before {
		r.differs(p.name, Data, was, got.Result) // order or spelling
	}
}

func fields(text json.RawMessage) map[string]json.RawMessage {
	m := map[string]json.RawMessage{}
	_ = json.Unmarshal(text, &m) // it was parsed before
	return m
}

type reservation struct {
	Topic keep.TopicName   `json:"topic"`
	IDs   []keep.MessageID `json:"ids"`
}

func reservationsOf(list []keep.Reservation) []reservation {
	out := []reservation{}
	for _, r := range list {
		out = append(out, reservation{r.Topic, r.IDs})
	}
	return out
}

func sameReservations(a, b []keep.Reservation) bool {
	return slices.EqualFunc(a, b, func(a, b keep.Reservation) bool { return a.Topic == b.Topic && slices.Equal(a.IDs, b.IDs) })
}

// compareCalls compares the call that ended mutate with the one in the ledger, or the one that a person was asked about. Unmade says what
// became of one that has no record.
func (r *replay) compareCalls(ctx context.Context, p phase, got engine.ReplayResult, unmade string) error {
	was, err := r.called(ctx, p)
	if err != nil {
		return err
	}
	var now *call
	if c := got.Call; c != nil {
		now = &call{c.Tool, c.Target, c.Subkey, c.Identity, c.Payload}
	}
	switch {
	case p.end.Error != nil:
	case was == nil && unmade != "":
		r.differs(p.name, Call, unmade, now)
	default:
		r.diffCalls(p.name, was, now)
	}
	return nil
}

// called returns the call that ended mutate, as the ledger or the question about it has it; nil: there was none, or it is not kept as it was.
func (r *replay) called(ctx context.Context, p phase) (*call, error) {
	var could []call
	if r.run.Mutation != "" {
		m, err := r.cfg.Store.Mutation(ctx, r.run.Mutation)
		if err != nil && !isNotFound(err) {
			return nil, err
		}
		could = append(could, call{m.Tool, m.Target, m.Subkey, m.Identity, m.Payload})
	} else {
		asked, err := r.cfg.Store.EscalationsOf(ctx, r.run.Chain, keep.MaxPage)
		if err != nil {
			return nil, err
		}
		for _, q := range asked {
			if a := q.Approval; a != nil {
				c, _ := r.engine.Identify(a.Tool, a.Payload)
				could = append(could, call{a.Tool, a.Target, c.Subkey, c.Identity, c.Payload})
			}
		}
	}
	for _, c := range could {
		if trace.Digest([]byte(c.Tool), []byte(c.Target), c.Identity, c.Payload, []byte(c.Subkey)) == p.end.Script.Out {
			return &c, nil
		}
	}
	return nil, nil
}

// unmade says of the call that ended mutate of the run, and has no record, what became of it; empty: there was none, or it has one.
func (r *replay) unmade(ctx context.Context) (string, error) {
	treated, err := r.treated(ctx)
	switch {
	case treated:
		return "a call that a person treated as done", nil
	case r.run.Mutation == "" && lifecycle.StoppedAtCall(r.run):
		return "a call that was not made", nil
	}
	return "", err
}

// Unmade returns the call of a run that has no record, since a person was asked about it first, as lifecycle.Unmade has it. None: it is not
// known, or there was none.
func Unmade(ctx context.Context, s store.Chains, run keep.Run) ([]keep.Mutation, error) {
	if run.Kind != keep.Consumer || run.Mutation != "" {
		return nil, nil
	}
	asked, err := s.EscalationsOf(ctx, run.Chain, keep.MaxPage)
	for _, q := range asked {
		if m, is := lifecycle.Unmade(run, q); is {
			return []keep.Mutation{m}, err
		}
	}
	return nil, err
}

// treated reports whether the run made a call of which it has no record, since a person treated it as done.
func (r *replay) treated(ctx context.Context) (bool, error) {
	if r.run.Mutation != "" {
		return false, nil
	}
	asked, err := r.cfg.Store.EscalationsOf(ctx, r.run.Chain, keep.MaxPage)
	return slices.ContainsFunc(asked, func(q keep.Escalation) bool { return q.Decision != nil && q.Decision.Action == keep.TreatAsDone }), err
}

// ends says why next is not gone through after a mutate that ended otherwise.
func (r *replay) ends(got engine.ReplayResult) {
	if h, ok := r.cfg.Definition.Handler(r.run.Handler); !ok || !h.HasNext {
		return
	}
	why := "the run did not make the call with which mutate ends, so nobody knows what the service would have answered"
	if got.Call == nil {
		why = "mutate makes no call, and next of the run began with what became of one"
	}
	r.missing("next", "", nil, why)
}

// A call is one of a mutate tool.
type call struct {
	Tool     keep.ToolName   `json:"tool"`
	Target   string          `json:"target"`
	Subkey   string          `json:"subkey,omitempty"`
	Identity json.RawMessage `json:"identity"`
	Payload  json.RawMessage `json:"payload"`
}

// diffCalls says in what two calls differ; nil is none, or one that is not kept.
func (r *replay) diffCalls(phase string, was, now *call) {
	if was == nil || now == nil || was.Tool != now.Tool {
		r.differs(phase, Call, was, now)
		return
	}
	if !bytes.Equal(was.Identity, now.Identity) || was.Subkey != now.Subkey || was.Target != now.Target {
		r.differs(phase, Identity, identity{was.Target, was.Subkey, was.Identity}, identity{now.Target, now.Subkey, now.Identity})
	}
	if !bytes.Equal(was.Payload, now.Payload) {
		r.differs(phase, Payload, was.Payload, now.Payload)
	}
}

type identity struct {
	Target   string          `json:"target"`
	Subkey   string          `json:"subkey,omitempty"`
	Identity json.RawMessage `json:"identity"`
}

// compareAsked compares the items of a job, and the calls that were made in them: those up to
// where the script asked for what is not known.
func (r *replay) compareAsked(p phase, got engine.ReplayResult) {
	was, now := r.effects(p.seen), r.effects(got.Asked)
	if got.Unknown != nil {
		was = was[:min(len(was), len(now))]
	}
	for i := range max(len(was), len(now)) {
		var a, b effect
		if i < len(was) {
			a = was[i]
		}
		if i < len(now) {
			b = now[i]
		}
		if a.kind != b.kind {
			r.differs(p.name, cmpWhat(a, b), a.shown(), b.shown())
			return // the rest is compared with something else
		}
		if bytes.Equal(a.params, b.params) && a.tool == b.tool {
			continue
		}
		if a.kind == Items {
			r.differs(p.name, Items, a.shown(), b.shown())
			continue
		}
		r.diffCalls(p.name, r.callOf(a), r.callOf(b))
	}
}

func cmpWhat(a, b effect) What {
	if a.kind == "" {
		return b.kind
	}
	return a.kind
}

// An effect is an item that was begun, or a call of a mutate tool in one.
type effect struct {
	kind   What // Items or Call; empty: none
	tool   string
	params json.RawMessage
}

func (e effect) shown() any {
	switch e.kind {
	case Items:
		var item []json.RawMessage
		if json.Unmarshal(e.params, &item) == nil && len(item) == 2 {
			return map[string]json.RawMessage{"id": item[0], "title": item[1]}
		}
		return e.params
	case Call:
		return map[string]any{"tool": e.tool, "params": e.params}
	}
	return nil
}

// effects returns the items and calls among what a phase asked.
func (r *replay) effects(asked []trace.Entry) (list []effect) {
	for _, e := range asked {
		if e.Tool == "item.begin" {
			list = append(list, effect{Items, e.Tool, e.Params})
		} else if _, is := r.engine.Identify(keep.ToolName(e.Tool), e.Params); is {
			list = append(list, effect{Call, e.Tool, e.Params})
		}
	}
	return list
}

// callOf returns a call in an item as the ledger would have it. Its target is not asked for.
func (r *replay) callOf(e effect) *call {
	c, _ := r.engine.Identify(keep.ToolName(e.tool), e.params)
	return &call{Tool: c.Tool, Subkey: c.Subkey, Identity: c.Identity, Payload: c.Payload}
}

// comparePublishes compares events. The digest has said that they differ.
func (r *replay) comparePublishes(ctx context.Context, p phase, got engine.ReplayResult) error {
	var was []published
	for _, topic := range r.cfg.Definition.Topics {
		// What a run publishes was made when it committed.
		list, _, err := r.cfg.Store.Events(ctx, keep.EventFilter{Workflow: r.run.Workflow, Topic: topic,
			Made: keep.Period{Since: r.run.UpdatedAt, Until: r.run.UpdatedAt.Add(time.Millisecond)}}, keep.Page{Limit: keep.MaxPage})
		if err != nil {
			return err
		}
		for _, e := range list {
			if e.CreatedBy.Run() == r.run.ID {
				was = append(was, published{e.Topic, e.MessageID, e.Payload, e.Seq})
			}
		}
	}
	slices.SortFunc(was, func(a, b published) int { return int(a.seq - b.seq) })
	var now []published
	for _, e := range got.Publishes {
		now = append(now, published{e.Topic, e.MessageID, e.Payload, 0})
	}
	if r.sameButMade(was, now) {
		r.differs(p.name, MadeIDs, was, now)
		return nil
	}
	before := len(r.report.Differences)
	for _, n := range now {
		i := slices.IndexFunc(was, n.names)
		switch {
		case i < 0:
			r.differs(p.name, Publishes, nil, n)
		case !bytes.Equal(was[i].Payload, n.Payload):
			r.differs(p.name, Publishes, was[i], n)
		}
	}
	for _, w := range was {
		if !slices.ContainsFunc(now, w.names) {
			r.differs(p.name, Publishes, w, nil)
		}
	}
	if len(r.report.Differences) == before {
		r.differs(p.name, Publishes, nil, now) // in another order, or what was published was known before
	}
	return nil
}

// sameButMade reports whether both are the same events in the same order, but for ids that Keep
// made.
func (r *replay) sameButMade(was, now []published) bool {
	other := false
	return slices.EqualFunc(was, now, func(a, b published) bool {
		made := r.run.MadeID(a.MessageID) && r.run.MadeID(b.MessageID)
		other = other || a.MessageID != b.MessageID
		return a.Topic == b.Topic && bytes.Equal(a.Payload, b.Payload) && (a.MessageID == b.MessageID || made)
	}) && other
}

// A published is an event as a script published it.
type published struct {
	Topic     keep.TopicName  `json:"topic"`
	MessageID keep.MessageID  `json:"message_id"`
	Payload   json.RawMessage `json:"payload"`
	seq       int64
}

func (p published) names(q published) bool { return p.Topic == q.Topic && p.MessageID == q.MessageID }

package handler

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/law/given"
)

// A common is what every phase may do.
type common struct {
	p     *phase
	scope int
}

// Now returns the time of the phase. It does not move while the phase runs.
func (c common) Now() time.Time { return c.p.call.Now }

// Logf adds a line to the log of the run.
func (c common) Logf(format string, args ...any) { c.p.log("info", fmt.Sprintf(format, args...)) }

// read calls a list or get tool.
func (c common) read(ctx context.Context, tool keep.ToolName, p, result any) error {
	out, err := c.p.host(ctx, hostCall{scope: c.scope, name: string(tool), reads: true, args: []any{params(p)}})
	if err != nil {
		return err
	}
	return decode(out, result, string(tool))
}

// params returns what a tool is passed.
func params(p any) any {
	if p == nil {
		return struct{}{}
	}
	return p
}

// decode reads what a call answered; nothing is null.
func decode(out json.RawMessage, v any, what string) error {
	if v == nil {
		return nil
	}
	if out == nil {
		out = json.RawMessage("null")
	}
	if err := json.Unmarshal(out, v); err != nil {
		return fmt.Errorf("the answer of %s: %w", what, err)
	}
	return nil
}

// publish adds an event to a topic.
func (c common) publish(ctx context.Context, topic keep.TopicName, m Message) error {
	o := object{{"messageId", optional(m.ID)}, {"inputId", optional(m.Input)}}
	if m.Repeat {
		o = append(o, field{"once", false})
	}
	if m.Payload != nil {
		o = append(o, field{"payload", m.Payload})
	}
	_, err := c.p.host(ctx, hostCall{scope: c.scope, name: "publish", args: []any{topic, o}})
	return err
}

// A Message is what is published.
type Message struct {
	ID      keep.MessageID // what makes it the same event when it is published again
	Input   keep.InputID   // what RegisterInput returned; empty: an input is made for it
	Payload any            // becomes JSON; nil: {}

	// Repeat says that each publish is an event of its own. It is for messages without ID: a
	// producer must give one of the two, and in Next the ID is made from the run.
	Repeat bool
}

// An Ingress is what a producer may do: read services, publish, and keep a checkpoint. What it
// publishes and stores is on record together, when its function has returned nil.
type Ingress struct {
	common
	more bool
}

// Read calls a list or get tool, and stores its answer in result, a pointer, or nil. An error
// ends the phase: return it.
func (in *Ingress) Read(ctx context.Context, tool keep.ToolName, params, result any) error {
	return in.read(ctx, tool, params, result)
}

// Publish adds an event to a topic.
func (in *Ingress) Publish(ctx context.Context, topic keep.TopicName, m Message) error {
	return in.publish(ctx, topic, m)
}

// RegisterInput returns the id of the input with that source, type and external id. It is made if it is
// new, with that title.
func (in *Ingress) RegisterInput(ctx context.Context, source, typ, externalID, title string) (id keep.InputID, err error) {
	out, err := in.p.host(ctx, hostCall{name: "registerInput", args: []any{object{{"source", source}, {"type", typ}, {"id", externalID}, {"title", title}}}})
	if err == nil {
		err = decode(out, &id, "registerInput")
	}
	return id, err
}

// Load reads a value of the checkpoint into v, and reports whether there is one.
func (in *Ingress) Load(ctx context.Context, key string, v any) (found bool, err error) {
	out, err := in.p.host(ctx, hostCall{name: "kv.get", args: []any{key}})
	if err != nil || bytes.Equal(out, []byte("null")) {
		return false, err
	}
	return true, decode(out, v, "kv.get")
}

// Store writes a value of the checkpoint.
func (in *Ingress) Store(ctx context.Context, key string, v any) error {
	_, err := in.p.host(ctx, hostCall{name: "kv.set", args: []any{key, v}})
	return err
}

// Delete removes a value of the checkpoint.
func (in *Ingress) Delete(ctx context.Context, key string) error {
	_, err := in.p.host(ctx, hostCall{name: "kv.delete", args: []any{key}})
	return err
}

// More says that there is more to read: the producer runs again at once, from what it stored.
func (in *Ingress) More() { in.more = true }

// A Reader is what Prepare may do.
type Reader struct{ common }

// Read calls a list or get tool, and stores its answer in result, a pointer, or nil. An error
// ends the phase: return it.
func (r *Reader) Read(ctx context.Context, tool keep.ToolName, params, result any) error {
	return r.read(ctx, tool, params, result)
}

// Peek returns the oldest pending events of a subscribed topic, at most limit.
func (r *Reader) Peek(ctx context.Context, topic keep.TopicName, limit int) (list []Event, err error) {
	out, err := r.p.host(ctx, hostCall{name: "peek", args: []any{topic, object{{"limit", limit}}}})
	if err == nil {
		err = decode(out, &list, "peek")
	}
	return list, err
}

// Events returns those events of a subscribed topic that exist, whatever their status.
func (r *Reader) Events(ctx context.Context, topic keep.TopicName, ids ...keep.MessageID) (list []Event, err error) {
	out, err := r.p.host(ctx, hostCall{name: "getByIds", args: []any{topic, append([]keep.MessageID{}, ids...)}})
	if err == nil {
		err = decode(out, &list, "getByIds")
	}
	return list, err
}

// A Getter is what Mutate may do: read one thing by id.
type Getter struct{ common }

// Read calls a get tool, and stores its answer in result, a pointer, or nil. An error ends the
// phase: return it.
func (g *Getter) Read(ctx context.Context, tool keep.ToolName, params, result any) error {
	return g.read(ctx, tool, params, result)
}

// A Publisher is what Next may do.
type Publisher struct{ common }

// Publish adds an event to a topic.
func (pub *Publisher) Publish(ctx context.Context, topic keep.TopicName, m Message) error {
	return pub.publish(ctx, topic, m)
}

// A Worker is what a job may do outside of its items.
type Worker struct{ common }

// Read calls a list or get tool, and stores its answer in result, a pointer, or nil. An error
// ends the phase: return it.
func (w *Worker) Read(ctx context.Context, tool keep.ToolName, params, result any) error {
	return w.read(ctx, tool, params, result)
}

// An Item is one unit of work of a job.
type Item struct {
	common
	view itemView
}

type itemView struct {
	ID        string
	Attempt   int
	IsDone    bool
	IsBlocked bool
}

// Item calls work with the item of an id, also with one that is done (see Item.Done), unless it is not known whether a call of the item
// happened: then the item waits, and Item returns nil. One item is worked on at a time. An error, of
// work too, ends the phase: return it.
func (w *Worker) Item(ctx context.Context, id, title string, work func(ctx context.Context, it *Item) error) error {
	out, err := w.p.host(ctx, hostCall{name: "item.begin", args: []any{id, title}})
	if err != nil {
		return err
	}
	it := &Item{common: common{p: w.p}}
	w.p.scopes++ // the engine counts an item that waits, too
	it.scope = w.p.scopes
	if err := decode(out, &it.view, "item.begin"); err != nil || it.view.IsBlocked {
		return err
	}
	if err := work(ctx, it); err != nil {
		return w.fail(ctx, err, placeOf(work))
	}
	_, err = w.p.host(ctx, hostCall{scope: it.scope, name: "item.end"})
	return err
}

// fail ends the phase because the work of an item failed.
func (w *Worker) fail(ctx context.Context, err error, at string) error {
	_, failed := w.p.host(ctx, hostCall{name: "item.fail", args: []any{object{{"name", "an error"}, {"message", readable(err.Error())}, {"at", at}}}})
	return failed
}

// ID returns the id of the item.
func (it *Item) ID() string { return it.view.ID }

// Attempt is 1, and rises when a person has the item done again.
func (it *Item) Attempt() int { return it.view.Attempt }

// Done reports whether the item is done or skipped. A Call in it is then a failure: begin the work with
// if it.Done() { return nil }.
func (it *Item) Done() bool { return it.view.IsDone }

// Read calls a list or get tool, and stores its answer in result, a pointer, or nil. An error
// ends the phase: return it.
func (it *Item) Read(ctx context.Context, tool keep.ToolName, params, result any) error {
	return it.read(ctx, tool, params, result)
}

// Call calls a tool that changes something, or answers from the ledger if the same call of this
// attempt at the item happened before and the item is not done. An error ends the phase: return it.
func (it *Item) Call(ctx context.Context, tool keep.ToolName, p, result any) error {
	out, err := it.p.host(ctx, hostCall{scope: it.scope, name: string(tool), changes: true, args: []any{params(p)}})
	if err != nil {
		return err
	}
	return decode(out, result, string(tool))
}

func (p Producer) functions() map[string]function {
	return map[string]function{"producers." + string(p.Name): func(ctx context.Context, ph *phase, _ []json.RawMessage) (any, error) {
		in := &Ingress{common: common{p: ph}}
		if err := p.Run(ctx, in); err != nil {
			return nil, placed(err, p.Run)
		}
		if in.more {
			return object{{"more", true}}, nil
		}
		return nil, nil
	}}
}

func (j Job) functions() map[string]function {
	return map[string]function{"jobs." + string(j.Name): func(ctx context.Context, ph *phase, _ []json.RawMessage) (any, error) {
		return nil, placed(j.Run(ctx, &Worker{common{p: ph}}), j.Run)
	}}
}

func (c Consumer[D, R]) functions() map[string]function {
	path := "consumers." + string(c.Name) + "."
	fs := map[string]function{path + "prepare": c.prepare}
	if c.Mutate != nil {
		fs[path+"mutate"] = c.mutate
	}
	if c.Next != nil {
		fs[path+"next"] = c.next
	}
	if c.Key != nil {
		fs[path+"key"] = c.key
	}
	return fs
}

// placed gives the error of a function the place of the function, if nothing better is known.
func placed(err error, f any) error {
	if err == nil {
		return nil
	}
	return &keep.Failure{Class: keep.ClassLogic, Code: "handler-error", Message: readable(err.Error()), At: placeOf(f)}
}

func (c Consumer[D, R]) key(_ context.Context, _ *phase, args []json.RawMessage) (any, error) {
	var ev Event
	if err := argument(args, 0, &ev); err != nil {
		return nil, err
	}
	key, err := c.Key(ev)
	return key, placed(err, c.Key)
}

func (c Consumer[D, R]) prepare(ctx context.Context, p *phase, args []json.RawMessage) (any, error) {
	var trigger *Event
	if len(args) > 0 && args[0] != nil {
		trigger = new(Event)
		if err := argument(args, 0, trigger); err != nil {
			return nil, err
		}
	}
	decided, err := c.Prepare(ctx, &Reader{common{p: p}}, trigger)
	if err != nil {
		return nil, placed(err, c.Prepare)
	}
	return decided.stored(), nil
}

func (c Consumer[D, R]) mutate(ctx context.Context, p *phase, args []json.RawMessage) (any, error) {
	pinned, err := pinnedOf[D](args)
	if err != nil {
		return nil, placed(err, c.Mutate)
	}
	call, err := c.Mutate(ctx, &Getter{common{p: p}}, pinned)
	if err != nil || call.Tool == "" {
		return nil, placed(err, c.Mutate)
	}
	return terminal{call, placeOf(c.Mutate)}, nil
}

func (c Consumer[D, R]) next(ctx context.Context, p *phase, args []json.RawMessage) (any, error) {
	pinned, err := pinnedOf[D](args)
	if err != nil {
		return nil, placed(err, c.Next)
	}
	var said struct {
		Status Status
		Result json.RawMessage
	}
	if err := argument(args, 1, &said); err != nil {
		return nil, err
	}
	o := Outcome[R]{Status: said.Status}
	if said.Result != nil && reflect.TypeFor[R]() != reflect.TypeFor[NoResult]() {
		if err := decode(said.Result, &o.Result, "the call"); err != nil {
			return nil, placed(err, c.Next)
		}
	}
	return nil, placed(c.Next(ctx, &Publisher{common{p: p}}, pinned, o), c.Next)
}

// argument reads an argument of a phase.
func argument(args []json.RawMessage, i int, v any) error {
	if i >= len(args) || args[i] == nil {
		return nil
	}
	return json.Unmarshal(args[i], v)
}

// A stored is a Prepared as scripts return it.
type stored[D any] struct {
	Reservations []reservation `json:"reservations"`
	Data         D             `json:"data"`
	UI           *ui           `json:"ui,omitempty"`
	WakeAt       time.Time     `json:"wakeAt,omitzero"`
	Trigger      *ref          `json:"trigger,omitempty"`
}

type (
	reservation struct {
		Topic keep.TopicName `json:"topic"`
		IDs   []messageID    `json:"ids"`
	}
	ui struct {
		Title string `json:"title"`
	}
	ref struct {
		Topic     keep.TopicName `json:"topic"`
		MessageID messageID      `json:"messageId"`
	}
)

// A messageID is a keep.MessageID that a script may have given as a number.
type messageID keep.MessageID

// UnmarshalJSON implements json.Unmarshaler.
func (id *messageID) UnmarshalJSON(raw []byte) error {
	s, err := given.ID(raw)
	*id = messageID(s)
	return err
}

func (p Prepared[D]) stored() stored[D] {
	s := stored[D]{Reservations: []reservation{}, Data: p.Data, WakeAt: p.WakeAt}
	for _, r := range p.Reserve {
		i := len(s.Reservations) - 1
		if i < 0 || s.Reservations[i].Topic != r.Topic {
			s.Reservations = append(s.Reservations, reservation{Topic: r.Topic})
			i++
		}
		s.Reservations[i].IDs = append(s.Reservations[i].IDs, messageID(r.MessageID))
	}
	if p.Title != "" {
		s.UI = &ui{p.Title}
	}
	if !p.Trigger.IsZero() {
		s.Trigger = &ref{p.Trigger.Topic, messageID(p.Trigger.MessageID)}
	}
	return s
}

// pinnedOf reads what Prepare decided. A script of before may have decided it.
func pinnedOf[D any](args []json.RawMessage) (Prepared[D], error) {
	var s stored[D]
	if err := argument(args, 0, &s); err != nil {
		return Prepared[D]{}, fmt.Errorf("what prepare returned: %w", err)
	}
	p := Prepared[D]{Data: s.Data, WakeAt: s.WakeAt}
	for _, r := range s.Reservations {
		for _, id := range r.IDs {
			p.Reserve = append(p.Reserve, keep.EventRef{Topic: r.Topic, MessageID: keep.MessageID(id)})
		}
	}
	if s.UI != nil {
		p.Title = s.UI.Title
	}
	if s.Trigger != nil {
		p.Trigger = keep.EventRef{Topic: s.Trigger.Topic, MessageID: keep.MessageID(s.Trigger.MessageID)}
	}
	return p, nil
}

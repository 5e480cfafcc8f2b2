package handler

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/internal/utf8json"
	"github.com/keep-run/keep/script/workflow"
)

// A Workflow is an automation whose handlers are Go functions. The names in it are those of
// scripts, and mean the same.
type Workflow struct {
	Name      keep.WorkflowName
	Was       keep.WorkflowName // the name that it had before; empty: none
	New       bool              // it is no workflow of before by another name
	Topics    []keep.TopicName
	TopicWas  map[keep.TopicName]keep.TopicName // names that topics had first, by those in Topics
	NewTopics []keep.TopicName                  // those that are no topic of before by another name
	Handlers  []Handler
	OnBlocked keep.OnBlocked
}

// A Handler is a Producer, a Consumer or a Job.
type Handler interface {
	declare() (section string, name keep.HandlerName, declared object)
	functions() map[string]function
}

// A Producer reads services and publishes what is new.
type Producer struct {
	Name      keep.HandlerName
	Was       keep.HandlerName // the name that it had first; empty: none
	New       bool             // it is no producer of before by another name
	Schedule  keep.Schedule
	Publishes []keep.TopicName // nil: any declared topic
	Run       func(ctx context.Context, in *Ingress) error
}

// A Consumer handles events: Prepare selects them, Mutate says which call is to be made, and Next
// publishes what follows. Data is what Prepare found and the other phases are given; it is stored as
// JSON. Result is what the call brings; NoResult if Next does not look at it.
type Consumer[Data, Result any] struct {
	Name      keep.HandlerName
	Was       keep.HandlerName // the name that it had first; empty: none
	Subscribe []keep.TopicName
	Publishes []keep.TopicName // nil: any declared topic
	Order     keep.Order
	Key       func(Event) (string, error) // for keep.OrderKey, of Event alone

	// Prepare is given the oldest pending event, or nil. Required.
	Prepare func(ctx context.Context, r *Reader, trigger *Event) (Prepared[Data], error)

	// Mutate returns the call that is to be made. If nil, the consumer changes nothing outside.
	Mutate func(ctx context.Context, g *Getter, p Prepared[Data]) (Call, error)

	// Next is called when the outcome of the call is known. If nil, nothing follows.
	Next func(ctx context.Context, pub *Publisher, p Prepared[Data], o Outcome[Result]) error
}

// A Job works on items by a schedule.
type Job struct {
	Name     keep.HandlerName
	Was      keep.HandlerName // the name that it had before; empty: none
	New      bool             // it is no job of before by another name
	Schedule keep.Schedule
	Run      func(ctx context.Context, w *Worker) error
}

// NoResult is the Result of a Consumer whose Next does not look at what the call brought.
type NoResult struct{}

// Prepared is what Prepare decides. It stays as it is for every later phase and attempt (law: pinned).
type Prepared[Data any] struct {
	Reserve []keep.EventRef // the events that are handled; none: nothing is to be done
	Data    Data
	Title   string    // of the run, for people
	WakeAt  time.Time // when Prepare wants to be called again; zero: when there are new events

	// Trigger is the event that the run is about, if it is not the one that Prepare was given.
	Trigger keep.EventRef
}

// A Call is the one call that a run makes. The zero Call makes none.
type Call struct {
	Tool   keep.ToolName // such as "crm.create"
	Params any           // becomes one JSON object; nil: {}
}

// A Status says how a call of a consumer ended.
type Status string

const (
	// Applied says that the call happened.
	Applied Status = "applied"

	// Skipped says that a person skipped it.
	Skipped Status = "skipped"

	// None says that there was no call.
	None Status = "none"
)

// An Outcome says how the call ended.
type Outcome[Result any] struct {
	Status Status
	Result Result // if Applied: what the service answered
}

// An Event is one message of a topic.
type Event struct {
	Topic     keep.TopicName   `json:"topic"`
	MessageID keep.MessageID   `json:"messageId"`
	Payload   json.RawMessage  `json:"payload"`
	Status    keep.EventStatus `json:"status"`
	CreatedAt time.Time        `json:"createdAt"`
	Attempt   int              `json:"attempt"` // from 1; a person asked for the later ones
}

// Ref names the event, as Prepared.Reserve takes it.
func (e *Event) Ref() keep.EventRef {
	return keep.EventRef{Topic: e.Topic, MessageID: e.MessageID}
}

// Decode reads the payload into v, as json.Unmarshal does.
func (e *Event) Decode(v any) error {
	if err := json.Unmarshal(e.Payload, v); err != nil {
		return fmt.Errorf("payload of event %q in topic %q: %w", e.MessageID, e.Topic, err)
	}
	return nil
}

// Declare checks the workflow and returns what it declares, as the sandbox describes the
// declaration of a script, and the definition that package workflow reads from it.
func (w *Workflow) Declare() (json.RawMessage, keep.Definition, error) {
	sections := map[string]object{}
	noResult := map[keep.HandlerName]bool{}
	for i, h := range w.Handlers {
		if h == nil {
			return nil, keep.Definition{}, fmt.Errorf("workflow %s: handler %d is nil", w.Name, i)
		}
		section, name, declared := h.declare()
		sections[section] = append(sections[section], field{string(name), declared})
		if c, ok := h.(interface{ ignoresResult() bool }); ok {
			noResult[name] = c.ignoresResult()
		}
	}
	for _, t := range slices.Concat(slices.Sorted(maps.Keys(w.TopicWas)), w.NewTopics) {
		if !slices.Contains(w.Topics, t) {
			return nil, keep.Definition{}, fmt.Errorf("workflow %s: TopicWas or NewTopics names the topic %q, and Topics does not", w.Name, t)
		}
	}
	var topics object
	for _, t := range w.Topics {
		topics = append(topics, field{string(t), object{{"was", optional(w.TopicWas[t])}, {"new", optional(slices.Contains(w.NewTopics, t))}}})
	}
	decl, err := utf8json.Marshal(object{
		{"$keep", "workflow"},
		{"name", w.Name}, {"was", optional(w.Was)}, {"new", optional(w.New)}, {"on_blocked", optional(w.OnBlocked)},
		{"topics", topics}, {"producers", sections["producers"]}, {"consumers", sections["consumers"]}, {"jobs", sections["jobs"]},
	})
	if err != nil {
		return nil, keep.Definition{}, fmt.Errorf("workflow %s: %w", w.Name, err)
	}
	def, err := workflow.Parse(decl, nil)
	if err != nil {
		return nil, keep.Definition{}, wrong(w.Name, err)
	}
	def.Go = true
	for i := range def.Handlers {
		def.Handlers[i].IgnoresResult = noResult[def.Handlers[i].Name]
	}
	return decl, def, nil
}

// wrong says what is wrong with a declaration, without what to write in a script.
func wrong(name keep.WorkflowName, err error) error {
	d, ok := errors.AsType[*workflow.DeclarationError](err)
	if !ok {
		return fmt.Errorf("workflow %s: %w", name, err)
	}
	lines := make([]string, 0, len(d.Problems))
	for _, p := range d.Problems {
		p.Fix = ""
		lines = append(lines, p.String())
	}
	return fmt.Errorf("workflow %s: %s", name, strings.Join(lines, "\n"))
}

func (p Producer) declare() (string, keep.HandlerName, object) {
	return "producers", p.Name, object{{"schedule", scheduleOf(p.Schedule)}, {"publishes", topicsOf(p.Publishes)},
		{"was", optional(p.Was)}, {"new", optional(p.New)}, {"handler", place(p.Run)}}
}

func (j Job) declare() (string, keep.HandlerName, object) {
	return "jobs", j.Name, object{{"schedule", scheduleOf(j.Schedule)}, {"was", optional(j.Was)}, {"new", optional(j.New)}, {"handler", place(j.Run)}}
}

func (c Consumer[D, R]) declare() (string, keep.HandlerName, object) {
	subscribe := c.Subscribe
	if subscribe == nil {
		subscribe = []keep.TopicName{}
	}
	return "consumers", c.Name, object{
		{"subscribe", subscribe}, {"publishes", topicsOf(c.Publishes)}, {"order", optional(c.Order)}, {"key", place(c.Key)}, {"was", optional(c.Was)},
		{"prepare", place(c.Prepare)}, {"mutate", place(c.Mutate)}, {"next", place(c.Next)},
	}
}

// ignoresResult reports whether Next cannot see what the call brought.
func (c Consumer[D, R]) ignoresResult() bool {
	_, none := any(*new(R)).(NoResult)
	return none || c.Next == nil
}

// An object is a JSON object whose fields keep their order.
type object []field

type field struct {
	key   string
	value any // nil: the field is left out
}

// MarshalJSON implements json.Marshaler.
func (o object) MarshalJSON() ([]byte, error) {
	out := []byte{'{'}
	for _, f := range o {
		if f.value == nil {
			continue
		}
		key, err := utf8json.Marshal(f.key)
		if err != nil {
			return nil, err
		}
		value, err := utf8json.Marshal(f.value)
		if bad, ok := errors.AsType[*utf8json.Error](err); ok {
			return nil, bad.In(f.key)
		}
		if err != nil {
			return nil, err
		}
		if len(out) > 1 {
			out = append(out, ',')
		}
		out = append(append(append(out, key...), ':'), value...)
	}
	return append(out, '}'), nil
}

// optional returns v, or nil if it is zero.
func optional[T comparable](v T) any {
	if v == *new(T) {
		return nil
	}
	return v
}

func topicsOf(list []keep.TopicName) any {
	if list == nil {
		return nil
	}
	return list
}

// scheduleOf returns a schedule as scripts write it.
func scheduleOf(s keep.Schedule) any {
	if s.IsZero() {
		return nil
	}
	var interval any
	if s.Interval != 0 {
		interval = s.Interval.String()
		if s.Interval%time.Second == 0 {
			interval = fmt.Sprintf("%ds", s.Interval/time.Second)
		}
	}
	return object{{"interval", interval}, {"cron", optional(s.Cron)}, {"timezone", optional(s.Timezone)}}
}

package api

import (
	"encoding/json"
	"strings"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/lifecycle"
)

// A Run is one execution attempt of a handler.
type Run struct {
	ID           keep.RunID        `json:"id"`
	Workflow     keep.WorkflowName `json:"workflow"`
	Version      string            `json:"version"`
	Handler      keep.HandlerName  `json:"handler"`
	Kind         keep.Kind         `json:"kind"`
	Phase        keep.Phase        `json:"phase"`
	Status       keep.RunStatus    `json:"status"`
	RetryOf      *keep.RunID       `json:"retry_of"`
	Trigger      *keep.EventRef    `json:"trigger"`
	Reservations []Reservation     `json:"reservations"`
	Prepared     json.RawMessage   `json:"prepared"`
	Mutation     *keep.MutationKey `json:"mutation"`
	Error        *Failure          `json:"error"`
	WaitsFor     *string           `json:"waits_for"` // a sentence; null: finished
	CreatedAt    Time              `json:"created_at"`
	UpdatedAt    Time              `json:"updated_at"`
	Title        *string           `json:"title"` // the script's claim: prepared.ui.title
}

// A Reservation is the events of one topic that a run pinned.
type Reservation struct {
	Topic keep.TopicName   `json:"topic"`
	IDs   []keep.MessageID `json:"ids"`
}

// RunOf returns the object of r. m is its mutation; the zero value means none.
func RunOf(r keep.Run, m keep.Mutation) Run {
	out := Run{
		ID: r.ID, Workflow: r.Workflow, Version: r.Version.String(), Handler: r.Handler, Kind: r.Kind,
		Phase: r.Phase, Status: r.Status, RetryOf: orNull(r.RetryOf), Reservations: []Reservation{},
		Prepared: raw(r.Prepared), Mutation: orNull(r.Mutation), Error: FailureOf(r.Error),
		WaitsFor: orNull(lifecycle.Explain(r, m)), CreatedAt: Time(r.CreatedAt), UpdatedAt: Time(r.UpdatedAt),
		Title: orNull(r.Title),
	}
	if !r.Trigger.IsZero() {
		out.Trigger = &r.Trigger
	}
	for _, res := range r.Reservations {
		out.Reservations = append(out.Reservations, Reservation{Topic: res.Topic, IDs: list(res.IDs)})
	}
	return out
}

// A Mutation is one record of the ledger.
type Mutation struct {
	Key               keep.MutationKey   `json:"key"`
	Workflow          keep.WorkflowName  `json:"workflow"`
	Run               keep.RunID         `json:"run"`
	Item              *string            `json:"item"`
	Attempt           *int               `json:"attempt"` // of the item
	Connection        string             `json:"connection"`
	Tool              keep.ToolName      `json:"tool"` // with its connection: crm.create
	Target            string             `json:"target"`
	Level             keep.Level         `json:"level"`
	Identity          json.RawMessage    `json:"identity"`
	Payload           json.RawMessage    `json:"payload"`
	PayloadHash       string             `json:"payload_hash"`
	State             keep.MutationState `json:"state"`
	Result            json.RawMessage    `json:"result"`
	Error             *Failure           `json:"error"`
	Title             *string            `json:"title"`
	Attempts          int                `json:"attempts"`
	ReconcileAttempts int                `json:"reconcile_attempts"`
	NextReconcileAt   *Time              `json:"next_reconcile_at"`
	CanReconcile      bool               `json:"can_reconcile"`
	ResolvedBy        *string            `json:"resolved_by"`
	CreatedAt         Time               `json:"created_at"`
	UpdatedAt         Time               `json:"updated_at"`
	History           []Move             `json:"history,omitzero"` // absent in lists
}

// A Move is one line of a mutation's history.
type Move struct {
	At       Time                `json:"at"`
	By       string              `json:"by"`
	From     *keep.MutationState `json:"from"` // null: the record was made
	To       keep.MutationState  `json:"to"`
	Evidence string              `json:"evidence"`
	Detail   *string             `json:"detail"`
}

// MutationOf returns the object of m as lists have it, without its history.
func MutationOf(m keep.Mutation) Mutation {
	connection, _, _ := strings.Cut(string(m.Tool), ".")
	out := Mutation{
		Key: m.Key, Workflow: m.Workflow, Run: m.Run, Item: orNull(m.Item), Connection: connection, Tool: m.Tool,
		Target: m.Target, Level: m.Level, Identity: raw(m.Identity), Payload: raw(m.Payload), PayloadHash: m.PayloadHash,
		State: m.State, Result: raw(m.Result), Error: FailureOf(m.Error), Title: orNull(m.Title), Attempts: m.Attempts,
		ReconcileAttempts: m.ReconcileAttempts, NextReconcileAt: timeOf(m.NextReconcileAt), CanReconcile: m.CanReconcile,
		ResolvedBy: orNull(m.ResolvedBy), CreatedAt: Time(m.CreatedAt), UpdatedAt: Time(m.UpdatedAt),
	}
	if m.Item != "" {
		out.Attempt = &m.Attempt
	}
	return out
}

// WithHistory returns m with its history, as it is when shown alone.
func (m Mutation) WithHistory(moves []keep.Move) Mutation {
	m.History = make([]Move, 0, len(moves))
	for _, v := range moves {
		m.History = append(m.History, Move{At: Time(v.At), By: v.By, From: orNull(v.From), To: v.To,
			Evidence: v.Evidence, Detail: orNull(v.Detail)})
	}
	return m
}

// An Event is one message in a topic.
type Event struct {
	Workflow   keep.WorkflowName `json:"workflow"`
	Topic      keep.TopicName    `json:"topic"`
	MessageID  keep.MessageID    `json:"message_id"`
	Payload    json.RawMessage   `json:"payload"`
	Status     keep.EventStatus  `json:"status"`
	ReservedBy *keep.RunID       `json:"reserved_by"`
	CreatedBy  *keep.RunID       `json:"created_by"`
	CausedBy   []keep.InputID    `json:"caused_by"`
	CreatedAt  Time              `json:"created_at"`
}

// EventOf returns the object of e.
func EventOf(e keep.Event) Event {
	return Event{
		Workflow: e.Workflow, Topic: e.Topic, MessageID: e.MessageID, Payload: raw(e.Payload), Status: e.Status,
		ReservedBy: orNull(e.ReservedBy), CreatedBy: orNull(e.CreatedBy), CausedBy: list(e.CausedBy), CreatedAt: Time(e.CreatedAt),
	}
}

// An Input is an external thing that a user recognises, with what became of it.
type Input struct {
	ID         keep.InputID       `json:"id"`
	Workflow   keep.WorkflowName  `json:"workflow"`
	Source     string             `json:"source"`
	Type       string             `json:"type"`
	ExternalID string             `json:"external_id"`
	Title      string             `json:"title"`
	Status     keep.InputStatus   `json:"status"`
	Outputs    []keep.MutationKey `json:"outputs"`
	CreatedAt  Time               `json:"created_at"`
}

// InputOf returns the object of in. outputs are the mutations of the runs that
// reserved its events.
func InputOf(in keep.Input, outputs []keep.MutationKey) Input {
	return Input{
		ID: in.ID, Workflow: in.Workflow, Source: in.Source, Type: in.Type, ExternalID: in.ExternalID,
		Title: in.Title, Status: in.Status, Outputs: list(outputs), CreatedAt: Time(in.CreatedAt),
	}
}

// An Item is one unit of work of a job.
type Item struct {
	Workflow  keep.WorkflowName  `json:"workflow"`
	ID        string             `json:"id"`
	Title     string             `json:"title"`
	Status    keep.ItemStatus    `json:"status"`
	Attempt   int                `json:"attempt"`
	Mutations []keep.MutationKey `json:"mutations"` // of all attempts, newest first
	UpdatedAt Time               `json:"updated_at"`
}

// ItemOf returns the object of it.
func ItemOf(it keep.Item, mutations []keep.MutationKey) Item {
	return Item{
		Workflow: it.Workflow, ID: it.ID, Title: it.Title, Status: it.Status, Attempt: it.Attempt,
		Mutations: list(mutations), UpdatedAt: Time(it.UpdatedAt),
	}
}

// An Escalation is a question to a person, with its evidence.
type Escalation struct {
	ID           keep.EscalationID   `json:"id"`
	Kind         keep.EscalationKind `json:"kind"`
	Workflow     keep.WorkflowName   `json:"workflow"`
	Run          *keep.RunID         `json:"run"`
	Mutation     *keep.MutationKey   `json:"mutation"`
	Item         *string             `json:"item"`
	Title        *string             `json:"title"` // the script's claim
	Question     string              `json:"question"`
	Attempted    string              `json:"attempted"`
	Why          string              `json:"why"`
	CanVerify    bool                `json:"can_verify"`
	VerifyByHand *string             `json:"verify_by_hand"`
	Actions      []keep.Choice       `json:"actions"`
	CreatedAt    Time                `json:"created_at"`
}

// EscalationOf returns the object of e.
func EscalationOf(e keep.Escalation) Escalation {
	return Escalation{
		ID: e.ID, Kind: e.Kind, Workflow: e.Workflow, Run: orNull(e.Run), Mutation: orNull(e.Mutation), Item: orNull(e.Item),
		Title: orNull(e.Title), Question: e.Question, Attempted: e.Attempted, Why: e.Why, CanVerify: e.CanVerify,
		VerifyByHand: orNull(e.VerifyByHand), Actions: list(e.Choices), CreatedAt: Time(e.CreatedAt),
	}
}

// A LogLine is one line that a script wrote.
type LogLine struct {
	Run   keep.RunID `json:"run"`
	At    Time       `json:"at"`
	Level string     `json:"level"`
	Text  string     `json:"text"`
	Where *string    `json:"where"` // file:line:column
}

// LogLineOf returns the object of l.
func LogLineOf(l keep.LogLine) LogLine {
	return LogLine{Run: l.Run, At: Time(l.At), Level: l.Level, Text: l.Text, Where: orNull(l.Where)}
}

package api

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/api/access"
	"github.com/keep-run/keep/law/approval"
	"github.com/keep-run/keep/law/lifecycle"
	"github.com/keep-run/keep/law/trace"
	"github.com/keep-run/keep/view"
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
	OrderKey     *string           `json:"order_key"` // of a consumer with order "key"
	Error        *Failure          `json:"error"`
	WaitsFor     *string           `json:"waits_for"` // a sentence; null: finished
	Wait         *Wait             `json:"wait"`      // the same as a value; null: finished
	CreatedAt    Time              `json:"created_at"`
	UpdatedAt    Time              `json:"updated_at"`
	Title        *string           `json:"title"` // the script's claim: prepared.ui.title
	Trace        *Trace            `json:"trace"` // null in lists
}

// A Reservation is the events of one topic that a run pinned. A run that failed has
// given them back, and still says which they were.
type Reservation struct {
	Topic    keep.TopicName   `json:"topic"`
	IDs      []keep.MessageID `json:"ids"`
	Attempts []int            `json:"attempts"` // of each event, from 1
}

// RunOf returns the object of r. m is its mutation; the zero value means none.
func RunOf(r keep.Run, m keep.Mutation) Run { return runOf(r, m, lifecycle.WaitOf(r, m)) }

// runOf is RunOf for a run of which it is known what it waits for.
func runOf(r keep.Run, m keep.Mutation, wait lifecycle.Wait) Run {
	out := Run{
		ID: r.ID, Workflow: r.Workflow, Version: r.Version.String(), Handler: r.Handler, Kind: r.Kind,
		Phase: r.Phase, Status: r.Status, RetryOf: orNull(r.RetryOf), Reservations: []Reservation{},
		Prepared: raw(r.Prepared), Mutation: orNull(r.Mutation), Error: FailureOf(r.Error),
		WaitsFor: orNull(wait.String()), Wait: waitOf(wait), CreatedAt: Time(r.CreatedAt), UpdatedAt: Time(r.UpdatedAt),
		Title: orNull(r.Title),
	}
	if key, ok := r.Lane.Key(); ok {
		out.OrderKey = &key
	}
	if !r.Trigger.IsZero() {
		out.Trigger = &r.Trigger
	}
	for _, res := range r.Reservations {
		attempts := make([]int, len(res.IDs))
		for i := range attempts {
			attempts[i] = res.Attempt(i)
		}
		out.Reservations = append(out.Reservations, Reservation{Topic: res.Topic, IDs: list(res.IDs), Attempts: attempts})
	}
	return out
}

// A Trace is what is kept of what a run saw.
type Trace struct {
	Entries []TraceEntry `json:"entries"`
	Dropped int          `json:"dropped"` // entries that did not fit into [trace] limit
	Swept   bool         `json:"swept"`   // some or all of it is not kept any more, or nothing was recorded
}

// A TraceEntry is one thing that a run did.
type TraceEntry struct {
	Phase  string          `json:"phase"`
	What   trace.What      `json:"what"`
	Tool   *string         `json:"tool"` // or the host call, such as "kv.get"; null: of a phase
	Params json.RawMessage `json:"params"`
	Result json.RawMessage `json:"result"` // of reads; a call's is in its mutation. Null for others than admins, of kv.get
	Error  *Failure        `json:"error"`
	At     Time            `json:"at"`
	MS     float64         `json:"ms"`
	Cut    bool            `json:"cut"` // the result did not fit in
}

// TraceOf returns the object of t; some says that there is one.
func TraceOf(t trace.Trace, some bool) Trace {
	out := Trace{Entries: []TraceEntry{}, Dropped: t.Dropped, Swept: !some || t.Gap}
	for _, e := range trace.Shown(t.Entries) {
		out.Entries = append(out.Entries, TraceEntry{Phase: e.Phase, What: e.What, Tool: orNull(e.Tool), Params: raw(e.Params),
			Result: raw(e.Result), Error: FailureOf(e.Error), At: Time(e.At), MS: e.MS, Cut: e.Cut})
	}
	return out
}

// ShownTo returns t as somebody with a role may see it: what a producer keeps in its checkpoint is for admins.
func (t Trace) ShownTo(role access.Role) Trace {
	if role.Covers(access.Admin) {
		return t
	}
	t.Entries = slices.Clone(t.Entries)
	for i := range t.Entries {
		if e := &t.Entries[i]; e.Tool != nil && (trace.Entry{What: e.What, Tool: *e.Tool}).ReadsCheckpoint() {
			e.Result = nil
		}
	}
	return t
}

// A Wait is what an unfinished run waits for.
type Wait struct {
	Kind  lifecycle.WaitKind `json:"kind"`
	Since Time               `json:"since"`
	Until *Time              `json:"until"` // when the host acts by itself; null: no time is planned
	Why   *string            `json:"why"`   // why the run stopped; null: it is executed, or its call is in doubt
	Moves string             `json:"moves"` // what ends the wait, in a few words
}

// waitOf returns the object of w, or null.
func waitOf(w lifecycle.Wait) *Wait {
	if w.IsZero() {
		return nil
	}
	return &Wait{Kind: w.Kind, Since: Time(w.Since), Until: timeOf(w.Until), Why: orNull(w.Why), Moves: w.Moves()}
}

// A Mutation is one record of the ledger.
type Mutation struct {
	Key               keep.MutationKey   `json:"key"`
	Workflow          keep.WorkflowName  `json:"workflow"`
	Run               keep.RunID         `json:"run"`
	Item              *string            `json:"item"`
	Attempt           *int               `json:"attempt"` // of the item
	Agent             *string            `json:"agent"`   // who made the call through the gateway; null: a script did
	Connection        string             `json:"connection"`
	Tool              keep.ToolName      `json:"tool"` // with its connection: crm.create
	Target            string             `json:"target"`
	Level             keep.Level         `json:"level"`
	Pack              *keep.Pack         `json:"pack"` // the file that the tool is from
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
		Key: m.Key, Workflow: m.Workflow, Run: m.Run, Item: orNull(m.Item), Agent: orNull(m.SentAs().Agent), Connection: connection, Tool: m.Tool,
		Target: m.Target, Level: m.Level, Pack: m.SentAs().Pack, Identity: raw(m.Identity), Payload: raw(m.Payload), PayloadHash: m.PayloadHash,
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
	Status     keep.EventStatus  `json:"status" enum:"pending,reserved,consumed,skipped"`
	ReservedBy *keep.RunID       `json:"reserved_by"`
	CreatedBy  *keep.Publisher   `json:"created_by" doc:"a run by its id, hook:NAME, or person:NAME"`
	CausedBy   []keep.InputID    `json:"caused_by"`
	CreatedAt  Time              `json:"created_at"`
	Attempt    int               `json:"attempt" doc:"from 1; rises only when a person has the event done again"`
	Runs       []EventRun        `json:"runs,omitzero"`    // that worked on it, oldest first; absent in lists
	History    []Act             `json:"history,omitzero"` // what people did with it, oldest first; absent in lists
}

// An Act is what a person did with an input, an event or an item, beside answers to questions.
type Act struct {
	At    Time          `json:"at"`
	By    string        `json:"by"`
	From  string        `json:"from" doc:"by which surface"`
	What  keep.Action   `json:"what" enum:"redo,skip,unskip,reprocess,cancel,pause,resume,trigger,deploy,set-checkpoint,reset-checkpoint"`
	Note  *string       `json:"note"`
	Input *keep.InputID `json:"input" doc:"of an event: the input about which it was decided; null: the event itself"`

	Handler *keep.HandlerName `json:"handler" doc:"of a workflow: the producer or job about which it was decided; null: the workflow itself"`
}

func actsOf(acts []view.Act) []Act {
	return each(acts, func(a view.Act) Act {
		return Act{At: Time(a.At), By: a.By, From: a.From, What: a.Action, Note: orNull(a.Note), Input: orNull(a.Input), Handler: orNull(a.Handler)}
	})
}

// An EventRun is a run that worked on an event, also one that failed.
type EventRun struct {
	Run     keep.RunID     `json:"run"`
	Attempt int            `json:"attempt"` // at the event
	Status  keep.RunStatus `json:"status"`
}

// EventWithRuns returns the object of e with the runs that worked on it and what people did with it, as it is when shown
// alone.
func EventWithRuns(ev keep.Event, runs []keep.Run, acts []view.Act) Event {
	e := EventOf(ev)
	e.Runs, e.History = make([]EventRun, 0, len(runs)), actsOf(acts)
	for _, r := range runs {
		e.Runs = append(e.Runs, EventRun{Run: r.ID, Attempt: ev.AttemptOf(r), Status: r.Status})
	}
	return e
}

// EventOf returns the object of e as lists have it, without its runs.
func EventOf(e keep.Event) Event {
	return Event{
		Attempt:  e.Attempt(),
		Workflow: e.Workflow, Topic: e.Topic, MessageID: e.MessageID, Payload: raw(e.Payload), Status: e.Listed(),
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
	Skipped    view.SkippedPart   `json:"skipped" enum:"none,some,all" doc:"how much of what came of it people skipped, as far as the 10 newest events that it caused show"`
	Outputs    []keep.MutationKey `json:"outputs"` // oldest first, also of runs that failed
	CreatedAt  Time               `json:"created_at"`
	Runs       []keep.RunID       `json:"runs,omitzero"`    // that worked on its events, oldest first; absent in lists
	History    []Act              `json:"history,omitzero"` // what people did with it, oldest first; absent in lists
}

// WithRuns returns in with the runs that worked on its events and what people did with it, as it is when shown alone.
func (in Input) WithRuns(runs []keep.Run, acts []view.Act) Input {
	in.Runs = each(runs, func(r keep.Run) keep.RunID { return r.ID })
	in.History = actsOf(acts)
	return in
}

// InputOf returns the object of in as lists have it, without its runs. p has the newest of what came of it, as
// store.Progress returns it for view.NewestEvents.
func InputOf(in keep.Input, p keep.Progress) Input {
	return Input{
		ID: in.ID, Workflow: in.Workflow, Source: in.Source, Type: in.Type, ExternalID: in.ExternalID,
		Title: in.Title, Status: in.Status, Skipped: view.SkippedOf(p.Events, view.NewestEvents), Outputs: list(outputsOf(p)), CreatedAt: Time(in.CreatedAt),
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
	History   []Act              `json:"history,omitzero"` // what people did with it beside answers to questions, oldest first; absent in lists
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
	Budget       *string             `json:"budget"`     // of a question that all who wait for it share
	Connection   *string             `json:"connection"` // of a question that all who wait for it share
	Runs         []keep.RunID        `json:"runs"`       // that wait for the connection or budget
	Count        *int                `json:"count"`      // of them
	Title        *string             `json:"title"`      // the script's claim
	Question     string              `json:"question"`
	Attempted    string              `json:"attempted"`    // lists have at most 64 KiB of it
	PayloadHash  *string             `json:"payload_hash"` // approvals: of the call that is asked about
	Why          string              `json:"why"`
	CanVerify    bool                `json:"can_verify"`
	VerifyByHand *string             `json:"verify_by_hand"`
	Actions      []Choice            `json:"actions"`
	CreatedAt    Time                `json:"created_at"`

	// Of approvals; null of the others.
	Tool      *keep.ToolName  `json:"tool"`
	Payload   json.RawMessage `json:"payload"` // whole; null in lists
	View      *string         `json:"view"`    // the call as a person reads it
	Claim     *approval.Claim `json:"claim"`   // what the script says of it; nobody checked it
	Now       json.RawMessage `json:"now"`     // what is there now; null: not known
	Marks     []approval.Mark `json:"marks"`   // what is not as it seems
	ExpiresAt *Time           `json:"expires_at"`
}

// asked adds the call that e is about.
func (v Escalation) asked(e keep.Escalation) Escalation {
	v.ExpiresAt = timeOf(e.ExpiresAt)
	if a := e.Approval; a != nil {
		text := approval.Text(*a)
		v.Tool, v.Payload, v.View, v.Now = &a.Tool, raw(a.Payload), &text, raw(a.Now)
		v.Claim, v.Marks = approval.ClaimOf(a.Claim), list(approval.Marks(*a))
	}
	return v
}

// EscalationOf returns the object of e.
func EscalationOf(e keep.Escalation) Escalation {
	v := Escalation{
		ID: e.ID, Kind: e.Kind, Workflow: e.Workflow, Run: orNull(e.Run), Mutation: orNull(e.Mutation), Item: orNull(e.Item), Connection: orNull(e.Connection), Budget: orNull(e.Budget),
		Title: orNull(e.Title), Question: e.Question, Attempted: e.Attempted, PayloadHash: orNull(e.PayloadHash), Why: e.Why, CanVerify: e.CanVerify,
		VerifyByHand: orNull(e.VerifyByHand), Actions: each(e.Choices, ChoiceOf), CreatedAt: Time(e.CreatedAt),
		Runs: []keep.RunID{}, Marks: []approval.Mark{},
	}
	return v.asked(e)
}

// maxAttempted is how much a list shows of what a question is about, in bytes.
const maxAttempted = 64 << 10

// Listed returns the object of e as lists have it: of a large call the beginning.
func Listed(e keep.Escalation) Escalation {
	v := EscalationOf(e)
	v.Attempted = shorten(v.Attempted, maxAttempted)
	v.Payload = nil
	if v.View != nil {
		text := shorten(*v.View, maxAttempted)
		v.View = &text
	}
	return v
}

// shorten returns s, or its beginning and how long it is.
func shorten(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return fmt.Sprintf("%s… (%d bytes; shown whole with the question)", strings.ToValidUTF8(s[:n], ""), len(s))
}

// A Choice is an action that a question offers.
type Choice struct {
	Action  keep.Action `json:"action"`
	Label   string      `json:"label"`
	Effect  string      `json:"effect"`
	Confirm bool        `json:"confirm" doc:"a decision needs \"confirm\": true, since it may send something again"`
	Result  string      `json:"result" enum:"none,optional,required" doc:"whether a decision carries the result of the call"`
}

// ChoiceOf returns the object of c.
func ChoiceOf(c keep.Choice) Choice {
	return Choice{Action: c.Action, Label: c.Label, Effect: c.Effect, Confirm: c.Action.NeedsConfirmation(),
		Result: cmp.Or(string(c.Result), "none")}
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

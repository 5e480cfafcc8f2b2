// Package plan says what scripts would do, and does none of it: it rehearses them with
// live reads, on a copy of what the database knows, and lists the changes that they
// would make outside.
//
// # What is not known
//
// Nobody knows what a service answers to a call that is not made. The next step of the
// script gets the example of the tool's result schema, or null; everything that is built on
// such a guess is marked, and Unknown says so in words.
//
// # What a plan changes
//
// Nothing: the database is read, and of the connections a plan holds the readers
// alone (package rehearsal). Reads are made as the script makes them, once each; a read
// that fails is not repeated.
package plan

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector"
	"github.com/keep-run/keep/host"
	"github.com/keep-run/keep/law/policy"
	"github.com/keep-run/keep/rehearsal"
	"github.com/keep-run/keep/script/sandbox"
)

// MaxRuns is how many runs of one workflow are planned.
const MaxRuns = 1000

// Config says what is planned.
type Config struct {
	// Scripts are planned one after another. Required.
	Scripts []*host.Workflow

	// Base is the database whose state the plan begins with. If nil, an empty one.
	Base rehearsal.Base

	// Take selects the pending events of Base; then the plan is of what these cause, and
	// nothing else that is due. If nil, the plan is of all that is due and pending.
	Take func(keep.Event) bool

	// Event is published before the plan begins, to the workflow that declares its
	// topic, by its name in the script, and producers and jobs are not executed. If nil, none.
	Event *keep.Event

	// At has what a run saw: its reads answer those of the plan, in place of the services.
	// If nil, reads are live.
	At *At

	// Connections are read from. Their mutate tools are described, never called.
	Connections []connector.Connection

	// Granted is what workflows may call, by the names that Base has. One that is not in it may call everything.
	Granted map[keep.WorkflowName]Granted

	// Due has all producers and jobs executed once, whenever they are due. If not set, those
	// that are due are, and NotDue of the plan names the others.
	Due bool

	// Bound has reads fail that Granted does not allow: whoever asks for the plan may not
	// read more than the workflow. If not set, they are made.
	Bound bool

	// Budgets are those of the project, and how they stand. What one workflow takes, the next
	// does not find.
	Budgets []Standing

	// Policy holds the numbers of the project. If nil, policy.Default().
	Policy *policy.Policy

	// Runtime executes the scripts; the caller closes it. Required.
	Runtime *sandbox.Runtime

	// Now is the time at which the plan begins. If zero, the current time.
	Now time.Time
}

// A Plan is what scripts would do.
type Plan struct {
	Workflows []keep.WorkflowName `json:"workflows"`
	Mutations []Mutation          `json:"mutations"`
	Publishes []Publish           `json:"publishes"`
	Reads     []Read              `json:"reads"`
	Unknown   []string            `json:"unknown"` // sentences
	Errors    []Error             `json:"errors"`
	NotDue    []NotDue            `json:"not_due"`
	Cut       bool                `json:"cut"` // there would be more

	taken map[string]keep.Amount // of budgets, by the calls so far
}

// A Mutation is a change that a script would make outside.
type Mutation struct {
	Workflow         keep.WorkflowName `json:"workflow"`
	Handler          keep.HandlerName  `json:"handler"`
	Topic            *keep.TopicName   `json:"topic"`      // of the event that caused it
	MessageID        *keep.MessageID   `json:"message_id"` // of that event
	Item             *string           `json:"item"`
	Tool             keep.ToolName     `json:"tool"`
	Target           string            `json:"target"`
	Identity         json.RawMessage   `json:"identity"`
	Payload          json.RawMessage   `json:"payload"`
	Level            keep.Level        `json:"level"`
	Grant            Grant             `json:"grant"`
	Approval         Approval          `json:"approval"`
	Budgets          []Budget          `json:"budgets"`
	DependsOnUnknown bool              `json:"depends_on_unknown"`

	params json.RawMessage // as the script passed them
}

// A Grant says whether the workflow may make the call.
type Grant struct {
	Allowed bool    `json:"allowed"`
	Reason  *string `json:"reason"`
}

// A Budget says what the call would take of a budget.
type Budget struct {
	Name   string  `json:"name"`
	Before float64 `json:"before"` // what is spent before the call, with the calls of the plan that come first
	Amount float64 `json:"amount"` // of the call
	Limit  float64 `json:"limit"`  // that holds now
	Left   float64 `json:"left"`   // after the call, or without it if it is not sent
	Over   bool    `json:"over"`   // there is no room: a person is asked, and nothing is sent before
	Error  *string `json:"error"`  // what it counts is not known: it is refused
}

// An Approval says whether a person would be asked first.
type Approval struct {
	Needed bool    `json:"needed"`
	Reason *string `json:"reason"`
}

// A Publish is an event that a script would publish.
type Publish struct {
	Workflow  keep.WorkflowName `json:"workflow"`
	Handler   keep.HandlerName  `json:"handler"`
	Topic     keep.TopicName    `json:"topic"`
	MessageID keep.MessageID    `json:"message_id"`
	Payload   json.RawMessage   `json:"payload"`
	Stored    bool              `json:"stored"` // false: a plan stores nothing
}

// A Read is a read that was made, live.
type Read struct {
	Tool   keep.ToolName   `json:"tool"`
	Params json.RawMessage `json:"params"`
}

// A NotDue is a producer or job that is due later.
type NotDue struct {
	Workflow keep.WorkflowName `json:"workflow"`
	Handler  keep.HandlerName  `json:"handler"`
	NextAt   time.Time         `json:"next_at"`
	Planned  bool              `json:"planned"` // all the same: without a schedule it is due at every start, too
}

// MarshalJSON writes the time as all of Keep's JSON does: in UTC, with milliseconds.
func (n NotDue) MarshalJSON() ([]byte, error) {
	type fields NotDue
	return json.Marshal(struct {
		fields
		NextAt string `json:"next_at"`
	}{fields(n), n.NextAt.UTC().Format("2006-01-02T15:04:05.000Z07:00")})
}

// Text returns it as a sentence, with the time as at writes it.
func (n NotDue) Text(at func(time.Time) string) string {
	if n.Planned {
		return fmt.Sprintf("%s of %s has no schedule, so it is planned as at a start; a host that runs already executes it at %s.", n.Handler, n.Workflow, at(n.NextAt))
	}
	return fmt.Sprintf("%s of %s is not planned: it is due at %s.", n.Handler, n.Workflow, at(n.NextAt))
}

// String is Text with the time in UTC.
func (n NotDue) String() string {
	return n.Text(func(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05Z") })
}

// An Error is why a handler failed in the plan.
type Error struct {
	Handler keep.HandlerName `json:"handler"`
	Message string           `json:"message"`
}

// Make plans the scripts. An error means that there is no plan; what a handler does wrong
// is in the plan.
func Make(ctx context.Context, cfg Config) (*Plan, error) {
	p := &Plan{
		Workflows: []keep.WorkflowName{}, Mutations: []Mutation{}, Publishes: []Publish{},
		Reads: []Read{}, Unknown: []string{}, Errors: []Error{}, NotDue: []NotDue{}, taken: make(map[string]keep.Amount),
	}
	once := policy.Default()
	if cfg.Policy != nil {
		once = *cfg.Policy
	}
	once.Retry.Attempts = 0 // services are read as the script reads them, no more
	for _, w := range cfg.Scripts {
		if cfg.Event != nil && !w.HasTopic(w.TopicOf(cfg.Event.Topic)) {
			continue
		}
		if err := p.add(ctx, cfg, w, &once); err != nil {
			return nil, fmt.Errorf("plan %s: %w", w.Name, err)
		}
	}
	now := cfg.Now
	if now.IsZero() {
		now = time.Now()
	}
	return p, p.held(ctx, cfg, now)
}

// add plans one workflow.
func (p *Plan) add(ctx context.Context, cfg Config, w *host.Workflow, once *policy.Policy) error {
	if cfg.Base != nil {
		var err error
		if w, err = host.Continued(ctx, cfg.Base, w); err != nil {
			return err
		}
	}
	live := newLive(cfg.Connections)
	live.at = cfg.At
	if g, bounded := cfg.Granted[w.Name]; bounded && cfg.Bound {
		live.may = g.rules()
	}
	rc := requestOf(cfg, w, live, once)
	r, err := p.rehearse(ctx, cfg, rc)
	if err != nil {
		return err
	}
	p.Workflows = append(p.Workflows, w.Name)
	p.Reads = append(p.Reads, live.reads...)
	p.Cut = p.Cut || r.Cut
	if r.More > 0 {
		p.Cut = true
		p.Unknown = append(p.Unknown, fmt.Sprintf("%s: more events of a topic are pending than the %d that a plan begins with.", w.Name, rehearsal.MaxPending))
	}
	t := trace(w.Name, r, live, cfg.Granted)
	for i := range t.mutations {
		p.spend(&t.mutations[i], cfg.Budgets)
	}
	p.Mutations = append(p.Mutations, t.mutations...)
	p.Publishes = append(p.Publishes, t.publishes...)
	p.Errors = append(p.Errors, t.errors...)
	p.Unknown = append(append(p.Unknown, live.unknown()...), t.done...)
	if why := passedOver(w.Name, r); why != "" {
		p.Unknown = append(p.Unknown, why)
	}
	if len(r.HeldUp) > 0 {
		p.Unknown = append(p.Unknown, fmt.Sprintf("%s: the run of %s stopped, and holds up the workflow (keep docs order); what %s would do after it is not planned.",
			w.Name, r.HeldBy.Handler, joined(r.HeldUp)))
	}
	if rc.Handlers == nil {
		for _, s := range r.NotDue {
			h, _ := w.Handler(s.Handler)
			p.NotDue = append(p.NotDue, NotDue{w.Name, s.Handler, s.NextAt, h.Schedule.IsZero()})
		}
	}
	if cfg.Event != nil && cfg.At == nil {
		if err := p.known(ctx, cfg.Base, w, cfg.Event); err != nil {
			return err
		}
	}
	return p.blocked(ctx, cfg.Base, w.Name)
}

// requestOf returns what is rehearsed of one workflow.
func requestOf(cfg Config, w *host.Workflow, live *live, once *policy.Policy) rehearsal.Config {
	rc := rehearsal.Config{
		Script: w, Base: cfg.Base, Take: cfg.Take, Due: cfg.Due, MaxRuns: MaxRuns, Approved: true,
		Connections: cfg.Connections, Services: live, Policy: once, Runtime: cfg.Runtime, Now: cfg.Now,
	}
	if cfg.Take != nil {
		rc.Handlers = consumers(w.Definition)
	}
	if cfg.Event != nil {
		ev := *cfg.Event
		ev.Topic = w.TopicOf(ev.Topic)
		rc.Events, rc.Take = []keep.Event{ev}, func(keep.Event) bool { return false }
		rc.Handlers = consumers(w.Definition)
	}
	if cfg.At != nil {
		rc.Checkpoint = cfg.At.readCheckpoint
		if cfg.Event == nil { // of a producer or a job
			rc.Handlers, rc.Take = []keep.HandlerName{cfg.At.Handler}, func(keep.Event) bool { return false }
		}
	}
	return rc
}

// known says that an event was done already, or is being done: published once more it causes nothing.
func (p *Plan) known(ctx context.Context, base rehearsal.Base, w *host.Workflow, ev *keep.Event) error {
	if base == nil {
		return nil
	}
	is, err := base.Event(ctx, w.Name, w.TopicOf(ev.Topic), ev.MessageID)
	switch {
	case errors.Is(err, keep.ErrNotFound):
		return nil
	case err != nil:
		return err
	case is.Status != keep.EventPending:
		p.Unknown = append(p.Unknown, fmt.Sprintf("%s: event %s in topic %s is %s already, so that it causes nothing if it is published again; to do it again: keep events redo.", w.Name, ev.MessageID, ev.Topic, is.Status))
	case !is.Free():
		p.Unknown = append(p.Unknown, fmt.Sprintf("%s: run %s has event %s in topic %s, so that it causes nothing more if it is published again.", w.Name, is.ReservedBy, ev.MessageID, ev.Topic))
	}
	return nil
}

// rehearse rehearses, and says what of a checkpoint the run of a plan did not read.
func (p *Plan) rehearse(ctx context.Context, cfg Config, rc rehearsal.Config) (*rehearsal.Result, error) {
	r, err := rehearsal.Run(ctx, rc)
	if f, ok := errors.AsType[*keep.Failure](err); ok && cfg.At != nil {
		p.Errors = append(p.Errors, Error{cfg.At.Handler, f.Error()})
		return &rehearsal.Result{}, nil
	}
	return r, err
}

// maxNamed is how many items that are passed over are named.
const maxNamed = 5

// passedOver says which items the jobs of a rehearsal passed over, if they came to them; empty: none.
func passedOver(w keep.WorkflowName, r *rehearsal.Result) string {
	if !slices.ContainsFunc(r.Runs, func(run keep.Run) bool { return run.Kind == keep.Job }) {
		return ""
	}
	var names []string
	for _, m := range r.InDoubt {
		if name := fmt.Sprintf("%q", m.Item); !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	const why = "while it is not known whether a call of it happened (keep inbox)."
	switch n := len(names); {
	case n == 0:
		return ""
	case n == 1:
		return fmt.Sprintf("%s: item %s is passed over %s", w, names[0], why)
	case n <= maxNamed:
		return fmt.Sprintf("%s: each of the items %s is passed over %s", w, strings.Join(names, ", "), why)
	default:
		return fmt.Sprintf("%s: each of %d items, such as %s, is passed over %s", w, n, strings.Join(names[:maxNamed], ", "), why)
	}
}

// joined returns names as a part of a sentence.
func joined(names []keep.HandlerName) string {
	var b strings.Builder
	for i, name := range names {
		if i > 0 {
			b.WriteString(" and ")
		}
		b.WriteString(string(name))
	}
	return b.String()
}

// blocked says that the workflow is paused, or has a run which would have to end first.
func (p *Plan) blocked(ctx context.Context, base rehearsal.Base, w keep.WorkflowName) error {
	if base == nil {
		return nil
	}
	if is, err := base.Workflow(ctx, w); err != nil && !errors.Is(err, keep.ErrNotFound) {
		return err
	} else if is.Paused {
		p.Unknown = append(p.Unknown, fmt.Sprintf("%s is paused: nothing of it happens before keep resume %[1]s.", w))
	}
	runs, err := base.OpenRuns(ctx, w)
	if err != nil {
		return err
	}
	for _, run := range runs {
		p.Unknown = append(p.Unknown, fmt.Sprintf("%s: run %s is unfinished (%s) and comes first; what becomes of it is not planned.", w, run.ID, run.Status))
	}
	return nil
}

// consumers returns the names of the consumers; never nil.
func consumers(d keep.Definition) []keep.HandlerName {
	names := []keep.HandlerName{}
	for _, h := range d.Handlers {
		if h.Kind == keep.Consumer {
			names = append(names, h.Name)
		}
	}
	return names
}

// A traced is what one rehearsal says, in the words of a plan.
type traced struct {
	mutations []Mutation
	publishes []Publish
	errors    []Error
	done      []string // calls that were done already, a sentence each
}

// trace connects calls and events with the runs that made them. What a run publishes
// after a guessed answer is a guess, and so is everything made of it.
func trace(w keep.WorkflowName, r *rehearsal.Result, l *live, granted map[keep.WorkflowName]Granted) traced {
	var t traced
	runs := make(map[keep.RunID]keep.Run, len(r.Runs))
	guessed := make(map[keep.RunID]bool) // runs that saw a guess
	events := make(map[keep.EventRef]bool)
	calls := l.callsByRun()
	for _, run := range r.Runs {
		runs[run.ID] = run
		for _, res := range run.Reservations {
			for _, id := range res.IDs {
				guessed[run.ID] = guessed[run.ID] || events[keep.EventRef{Topic: res.Topic, MessageID: id}]
			}
		}
		for _, c := range calls[run.ID] {
			t.mutations = append(t.mutations, c.planned(run, guessed[run.ID], granted))
			guessed[run.ID] = guessed[run.ID] || c.guessed
		}
		for _, e := range r.Events {
			if e.CreatedBy.Run() == run.ID {
				events[keep.EventRef{Topic: e.Topic, MessageID: e.MessageID}] = guessed[run.ID]
			}
		}
		if run.Error != nil && !run.Closed && run.Error.Code == keep.CodeAlreadyDone {
			t.done = append(t.done, fmt.Sprintf("%s: %s; a person is asked first, and nothing is sent.", run.Handler, run.Error.Message))
		} else if run.Error != nil && !run.Closed {
			t.errors = append(t.errors, Error{run.Handler, run.Error.Error()})
		}
	}
	for _, e := range r.Events {
		t.publishes = append(t.publishes, Publish{Workflow: w, Handler: runs[e.CreatedBy.Run()].Handler, Topic: e.Topic, MessageID: e.MessageID, Payload: e.Payload})
	}
	return t
}

// planned returns the call as a plan shows it.
func (c call) planned(run keep.Run, unknown bool, granted map[keep.WorkflowName]Granted) Mutation {
	m := Mutation{
		Workflow: run.Workflow, Handler: run.Handler, Tool: c.Tool, Target: c.Target, Identity: c.Identity,
		Payload: c.Payload, Level: c.Level, DependsOnUnknown: unknown,
		Grant: Grant{Allowed: true}, Budgets: []Budget{}, params: paramsOf(c.Mutation),
	}
	if !run.Trigger.IsZero() {
		m.Topic, m.MessageID = &run.Trigger.Topic, &run.Trigger.MessageID
	}
	if c.Item != "" {
		m.Item = &c.Item
	}
	var asks string
	if g, bounded := granted[run.Workflow]; bounded {
		m.Grant, asks = g.check(c.Mutation, c.before)
	}
	asks = cmp.Or(c.approve.Why(paramsOf(c.Mutation)), asks)
	if asks != "" {
		m.Approval = Approval{Needed: true, Reason: &asks}
	}
	return m
}

// unknown returns a sentence for each tool whose answer was made up.
func (l *live) unknown() []string {
	var out []string
	for _, c := range l.calls {
		if s := c.sentence(); c.guessed && !slices.Contains(out, s) {
			out = append(out, s)
		}
	}
	return out
}

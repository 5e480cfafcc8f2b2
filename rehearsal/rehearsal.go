package rehearsal

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector"
	"github.com/keep-run/keep/host"
	"github.com/keep-run/keep/law/policy"
	"github.com/keep-run/keep/law/schedule"
	"github.com/keep-run/keep/script/sandbox"
	"github.com/keep-run/keep/store"
	"github.com/keep-run/keep/store/memory"
)

// Config says what is rehearsed.
type Config struct {
	// Script is what is executed. Required.
	Script *host.Workflow

	// Handlers are those that are executed, once each at the start if they have a
	// schedule. If nil, all of them, by their schedules.
	Handlers []keep.HandlerName

	// Events are pending at the start; only their topic, message id and payload
	// are read.
	Events []keep.Event

	// Base is the database whose state the rehearsal begins with; it is read only.
	// If nil, there is nothing but Events.
	Base Base

	// Checkpoint answers what a script reads of a checkpoint and the rehearsal did not write; its error ends the rehearsal. If
	// nil, Base does.
	Checkpoint func(producer keep.HandlerName, key string) ([]byte, error)

	// Due has every producer and job executed at the start, whenever it is due.
	Due bool

	// Take selects the pending events of Base. If nil, all of them.
	Take func(keep.Event) bool

	// KV is the checkpoint of the first of Handlers, a producer.
	KV map[string]json.RawMessage

	// Items are there at the start; only their id, title and status are read.
	Items []keep.Item

	// MaxRuns ends the rehearsal after so many runs. If zero, there is no limit.
	MaxRuns int

	// Works ends the rehearsal when so many runs, each with its attempts, have come to rest. If
	// zero, there is no limit.
	Works int

	// Skips reports whether a person skips a call of which it stays unknown whether it happened, once asked. If nil, nobody is there.
	Skips func(keep.Mutation) bool

	// Approved makes calls that need a person's approval without it.
	Approved bool

	// Connections describe the tools that there are. Nothing of them is called.
	Connections []connector.Connection

	// Services plays them. Required.
	Services Services

	// Policy holds the numbers of the project; waits are shortened. If nil,
	// policy.Default().
	Policy *policy.Policy

	// Runtime executes the script; the caller closes it. Required.
	Runtime *sandbox.Runtime

	// Shared is what other rehearsals have loaded and compiled. If nil, nothing.
	Shared *Shared

	// Now is the time at which the rehearsal begins, and at which the script is loaded. If
	// zero, the current time.
	Now time.Time
}

// A Result is what a rehearsal left. All lists are in the order of making.
type Result struct {
	Runs      []keep.Run
	Mutations []keep.Mutation
	Events    []keep.Event      // the script's, without those that were there at the start
	Items     []keep.Item       // without those that were there at the start
	Questions []keep.Escalation // that are open

	Stored map[string]json.RawMessage // what producers wrote to their checkpoints last; nil: deleted

	NotDue []keep.HandlerState // producers and jobs that were due later when the rehearsal began

	InDoubt []keep.Mutation // calls of Base of which nobody knows whether they happened: their items were passed over

	HeldBy *keep.Run          // that stopped and holds up the whole workflow; nil: none
	HeldUp []keep.HandlerName // that have something to do once it is over, for a consumer also more events

	Cut  bool // Config.MaxRuns or Config.Works ended it
	More int  // topics of which Base has more than MaxPending pending events; these were left out
}

// Run executes the script until nothing is left to do without a person, an event or a
// later time. An error means that the rehearsal could not be done, or that ctx ended
// first; what a script does wrong is in the result.
func Run(ctx context.Context, cfg Config) (*Result, error) {
	clock := newClock(cfg.Now)
	fast := hurried(cfg.Policy)
	db := newOverlay(cfg.Base, fast.DefaultInterval)
	db.seen = cfg.Checkpoint
	if cfg.Shared == nil {
		cfg.Shared = NewShared(cfg.Runtime)
	}
	h, err := host.Open(ctx, db, host.Config{
		Connections: play(cfg, clock), Policy: fast,
		Runtime: cfg.Runtime, Load: cfg.Shared.Load, Schemas: &cfg.Shared.schemas,
		Clock: clock.now, Reach: clock.reach, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return nil, err
	}
	began, cut, err := stage(ctx, h, db, cfg, clock)
	if err := errors.Join(err, h.Close()); err != nil {
		return nil, err
	}
	r, err := collect(ctx, db.memory)
	given := func(it keep.Item) bool {
		return slices.ContainsFunc(cfg.Items, func(at keep.Item) bool { return at.ID == it.ID })
	}
	r.Items = slices.DeleteFunc(r.Items, given)
	r.More, r.NotDue, r.Cut, r.Stored, r.InDoubt = began.more, began.notDue, cut, db.stored, db.inDoubt
	if err == nil && !cut {
		err = r.hold(ctx, db.memory, cfg, clock.now())
	}
	return r, err
}

// hold says what a run that stopped holds up.
func (r *Result) hold(ctx context.Context, db *memory.Store, cfg Config, now time.Time) error {
	i := slices.IndexFunc(r.Runs, func(run keep.Run) bool { return !run.Closed && schedule.Open{Run: run}.HoldsUp() })
	if i < 0 {
		return nil
	}
	names, err := due(ctx, db, cfg, now)
	r.HeldBy = &r.Runs[i]
	r.HeldUp = slices.DeleteFunc(names, func(name keep.HandlerName) bool { return name == r.HeldBy.Handler && r.HeldBy.Kind != keep.Consumer })
	return err
}

// due returns the handlers that have something to do at a time.
func due(ctx context.Context, db *memory.Store, cfg Config, now time.Time) ([]keep.HandlerName, error) {
	w, err := narrowed(cfg.Script, cfg.Handlers)
	if err != nil {
		return nil, err
	}
	states, err := db.Handlers(ctx, w.Name)
	if err != nil {
		return nil, err
	}
	var names []keep.HandlerName
	for _, h := range w.Handlers {
		is := h.Kind != keep.Consumer && slices.ContainsFunc(states, func(s keep.HandlerState) bool { return s.Handler == h.Name && !s.NextAt.After(now) })
		for _, topic := range h.Subscribe {
			events, _, err := db.Events(ctx, keep.EventFilter{Workflow: w.Name, Topic: topic, Status: keep.EventPending}, keep.Page{Limit: 1})
			if err != nil {
				return nil, err
			}
			is = is || len(events) > 0
		}
		if is {
			names = append(names, h.Name)
		}
	}
	return names, nil
}

// A beginning is what a rehearsal found when it began.
type beginning struct {
	more   int // pending events that were left out
	notDue []keep.HandlerState
}

// stage deploys the script, makes the events pending and executes what is due.
func stage(ctx context.Context, h *host.Host, db *overlay, cfg Config, clock *clock) (began beginning, cut bool, err error) {
	script, err := narrowed(cfg.Script, cfg.Handlers)
	if err != nil {
		return began, false, err
	}
	if _, err := h.Deploy(ctx, script); err != nil {
		return began, false, err
	}
	now := clock.now().UTC().Truncate(time.Millisecond)
	if began.more, err = db.begin(ctx, script.Definition, now, cfg.Take); err != nil {
		return began, false, err
	}
	if began.notDue, err = notDue(ctx, db.memory, script.Name, now, cfg.Due); err != nil {
		return began, false, err
	}
	if err := put(ctx, db.memory, script.Definition, clock.now(), cfg); err != nil {
		return began, false, err
	}
	running, end := context.WithCancelCause(ctx)
	defer end(nil)
	db.maxRuns, db.works, db.full, db.broke = cfg.MaxRuns, cfg.Works, func() { end(errCut) }, func(err error) { end(&baseError{err}) }
	for more := true; more && err == nil && running.Err() == nil; {
		if err = h.RunUntilIdle(running); err == nil {
			more, err = skip(ctx, h, db.memory, cfg.Skips)
		}
	}
	if errors.Is(context.Cause(running), errCut) {
		return began, true, nil
	}
	if broke, ok := errors.AsType[*baseError](context.Cause(running)); ok {
		return began, false, broke.err
	}
	return began, false, err
}

// skip answers the questions about calls in doubt that are skipped, and reports whether there was one.
func skip(ctx context.Context, h *host.Host, db *memory.Store, skips func(keep.Mutation) bool) (any bool, err error) {
	if skips == nil {
		return false, nil
	}
	asked, err := whole(ctx, db.Escalations, keep.EscalationFilter{Open: true})
	for _, q := range asked {
		if err != nil || !q.AboutDoubt() {
			continue
		}
		var m keep.Mutation
		if m, err = db.Mutation(ctx, q.Mutation); err == nil && skips(m) {
			any, err = true, h.Decide(ctx, q.ID, keep.Decision{Action: keep.Skip, By: "rehearsal", From: "rehearsal"})
		}
	}
	return any, err
}

// notDue returns the producers and jobs that are due after now. If hurry is set, it makes them due now instead.
func notDue(ctx context.Context, db *memory.Store, w keep.WorkflowName, now time.Time, hurry bool) ([]keep.HandlerState, error) {
	states, err := db.Handlers(ctx, w)
	if err != nil {
		return nil, err
	}
	states = slices.DeleteFunc(states, func(s keep.HandlerState) bool { return s.Kind == keep.Consumer || !s.NextAt.After(now) })
	if !hurry || len(states) == 0 {
		return states, nil
	}
	c := keep.Commit{Workflow: w, At: now}
	for _, s := range states {
		s.NextAt = now
		c.Changes = append(c.Changes, keep.PutHandler{State: s})
	}
	return nil, db.Commit(ctx, c)
}

// errCut ends a rehearsal that has as many runs as it may have.
var errCut = errors.New("the rehearsal has enough runs")

// A baseError ends a rehearsal whose base cannot be read.
type baseError struct{ err error }

// Error is that of the base.
func (e *baseError) Error() string { return e.err.Error() }

// hurried returns p without its waits.
func hurried(p *policy.Policy) *policy.Policy {
	hurried := policy.Default()
	if p != nil {
		hurried = *p
	}
	hurried.Retry.First, hurried.Retry.Max = time.Millisecond, time.Millisecond
	hurried.Reconcile.First, hurried.Reconcile.Max = time.Millisecond, time.Millisecond
	return &hurried
}

// narrowed returns the workflow with the named handlers alone, due at once.
func narrowed(w *host.Workflow, names []keep.HandlerName) (*host.Workflow, error) {
	if names == nil {
		return w, nil
	}
	narrow := *w
	narrow.Handlers = nil
	for _, name := range names {
		h, ok := w.Handler(name)
		if !ok {
			return nil, fmt.Errorf("workflow %s has no handler %q: it has %s", w.Name, name, handlers(w.Definition))
		}
		h.Schedule = keep.Schedule{}
		narrow.Handlers = append(narrow.Handlers, h)
	}
	return &narrow, nil
}

func handlers(d keep.Definition) []keep.HandlerName {
	var names []keep.HandlerName
	for _, h := range d.Handlers {
		names = append(names, h.Name)
	}
	return names
}

// put makes the events pending, and stores what else is there at the start.
func put(ctx context.Context, db *memory.Store, d keep.Definition, now time.Time, cfg Config) error {
	w := d.Name
	c := keep.Commit{Workflow: w, At: now}
	for key, value := range cfg.KV {
		h, _ := d.Handler(cfg.Handlers[0])
		c.Changes = append(c.Changes, keep.SetKV{Producer: keep.HandlerName(h.ItemsOf()), Key: key, Value: value})
	}
	for _, it := range cfg.Items {
		c.Changes = append(c.Changes, keep.PutItem{Item: keep.Item{
			Workflow: w, ID: it.ID, Title: it.Title, Status: it.Status, Attempt: 1, CreatedAt: now, UpdatedAt: now,
		}})
	}
	for _, e := range cfg.Events {
		c.Changes = append(c.Changes, keep.Publish{Event: keep.Event{
			Workflow: w, Topic: e.Topic, MessageID: e.MessageID, Payload: e.Payload,
			Status: keep.EventPending, CreatedBy: given, CreatedAt: now, UpdatedAt: now,
		}})
	}
	if len(c.Changes) == 0 {
		return nil
	}
	return db.Commit(ctx, c)
}

// given is who published the events that are there at the start: no run, of which nobody would know the attempt.
const given keep.Publisher = "rehearsal:given"

// collect reads what the rehearsal left.
func collect(ctx context.Context, db *memory.Store) (*Result, error) {
	r := &Result{}
	var errs [5]error
	r.Runs, errs[0] = whole(ctx, db.Runs, keep.RunFilter{})
	r.Mutations, errs[1] = whole(ctx, db.Mutations, keep.MutationFilter{})
	r.Events, errs[2] = whole(ctx, db.Events, keep.EventFilter{})
	r.Items, errs[3] = whole(ctx, db.Items, keep.ItemFilter{})
	r.Questions, errs[4] = whole(ctx, db.Escalations, keep.EscalationFilter{Open: true})
	r.Events = slices.DeleteFunc(r.Events, func(e keep.Event) bool { return e.CreatedBy == given })
	return r, errors.Join(errs[:]...)
}

// whole reads a list to its end, and returns it in the order of making.
func whole[F, T any](ctx context.Context, list func(context.Context, F, keep.Page) ([]T, string, error), filter F) ([]T, error) {
	var all []T
	for v, err := range store.All(ctx, list, filter, keep.Page{Limit: keep.MaxPage}) {
		if err != nil {
			return nil, err
		}
		all = append(all, v)
	}
	slices.Reverse(all)
	return all, nil
}

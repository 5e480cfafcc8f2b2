package rehearsal

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector"
	"github.com/keep-run/keep/host"
	"github.com/keep-run/keep/law/policy"
	"github.com/keep-run/keep/script/sandbox"
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

	// Take selects the pending events of Base. If nil, all of them.
	Take func(keep.Event) bool

	// MaxRuns ends the rehearsal after so many runs. If zero, there is no limit.
	MaxRuns int

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

	// Now is the time at which the rehearsal begins. If zero, the current time.
	Now time.Time
}

// A Result is what a rehearsal left. All lists are in the order of making.
type Result struct {
	Runs      []keep.Run
	Mutations []keep.Mutation
	Events    []keep.Event // the script's, without those that were there at the start
	Items     []keep.Item
	Questions []keep.Escalation // that are open

	Cut  bool // Config.MaxRuns ended it
	More int  // pending events of Base that were left out for their number
}

// Run executes the script until nothing is left to do without a person, an event or a
// later time. An error means that the rehearsal could not be done, or that ctx ended
// first; what a script does wrong is in the result.
func Run(ctx context.Context, cfg Config) (*Result, error) {
	clock := newClock(cfg.Now)
	db := newOverlay(cfg.Base)
	h, err := host.Open(ctx, db, host.Config{
		Connections: play(cfg, clock), Policy: hurried(cfg.Policy),
		Runtime: cfg.Runtime, Clock: clock.now, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return nil, err
	}
	more, cut, err := stage(ctx, h, db, cfg, clock)
	if err := errors.Join(err, h.Close()); err != nil {
		return nil, err
	}
	r, err := collect(ctx, db.memory)
	r.More, r.Cut = more, cut
	return r, err
}

// stage deploys the script, makes the events pending and executes what is due.
func stage(ctx context.Context, h *host.Host, db *overlay, cfg Config, clock *clock) (more int, cut bool, err error) {
	script, err := narrowed(cfg.Script, cfg.Handlers)
	if err != nil {
		return 0, false, err
	}
	if _, err := h.Deploy(ctx, script); err != nil {
		return 0, false, err
	}
	if more, err = db.begin(ctx, script.Definition, clock.now().UTC().Truncate(time.Millisecond), cfg.Take); err != nil {
		return 0, false, err
	}
	if err := publish(ctx, db.memory, script.Name, clock.now(), cfg.Events); err != nil {
		return 0, false, err
	}
	running, end := context.WithCancelCause(ctx)
	defer end(nil)
	db.maxRuns, db.full = cfg.MaxRuns, func() { end(errCut) }
	err = execute(running, h)
	if errors.Is(context.Cause(running), errCut) {
		return more, true, nil
	}
	return more, false, err
}

// errCut ends a rehearsal that has as many runs as it may have.
var errCut = errors.New("the rehearsal has enough runs")

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

// publish makes the events pending.
func publish(ctx context.Context, db *memory.Store, w keep.WorkflowName, now time.Time, events []keep.Event) error {
	if len(events) == 0 {
		return nil
	}
	c := keep.Commit{Workflow: w, At: now}
	for _, e := range events {
		c.Changes = append(c.Changes, keep.Publish{Event: keep.Event{
			Workflow: w, Topic: e.Topic, MessageID: e.MessageID, Payload: e.Payload,
			Status: keep.EventPending, CreatedBy: given, CreatedAt: now, UpdatedAt: now,
		}})
	}
	return db.Commit(ctx, c)
}

// given is who published the events that are there at the start.
const given keep.Publisher = "given"

// execute drives the host until it is idle.
func execute(ctx context.Context, h *host.Host) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var (
		running sync.WaitGroup
		ended   error
	)
	running.Go(func() {
		ended = h.Run(ctx)
		stop() // nothing is left to wait for
	})
	idle := h.WaitIdle(ctx)
	stop()
	running.Wait()
	return errors.Join(ended, idle)
}

// collect reads what the rehearsal left.
func collect(ctx context.Context, db *memory.Store) (*Result, error) {
	r := &Result{}
	page := keep.Page{Limit: keep.MaxPage}
	var errs [5]error
	r.Runs, _, errs[0] = db.Runs(ctx, keep.RunFilter{}, page)
	r.Mutations, _, errs[1] = db.Mutations(ctx, keep.MutationFilter{}, page)
	r.Events, _, errs[2] = db.Events(ctx, keep.EventFilter{}, page)
	r.Items, _, errs[3] = db.Items(ctx, keep.ItemFilter{}, page)
	r.Questions, _, errs[4] = db.Escalations(ctx, keep.EscalationFilter{Open: true}, page)
	r.Events = slices.DeleteFunc(r.Events, func(e keep.Event) bool { return e.CreatedBy == given })
	slices.Reverse(r.Runs)
	slices.Reverse(r.Mutations)
	slices.Reverse(r.Events)
	slices.Reverse(r.Items)
	slices.Reverse(r.Questions)
	return r, errors.Join(errs[:]...)
}

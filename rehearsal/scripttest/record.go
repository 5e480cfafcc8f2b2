package scripttest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/law/ledger"
	"github.com/keep-run/keep/law/trace"
	"github.com/keep-run/keep/store"
)

// A Store has runs and what is recorded of them. It is read only, and wide because runs depend
// on every noun.
type Store interface {
	store.Runs
	store.Traces
	store.Events
	store.Mutations
	store.Chains
}

// RecordConfig says of which run a test is made.
type RecordConfig struct {
	// Config has the version of the run: the test is tried with it.
	Config

	// Store has the run. Required.
	Store Store

	// Run is the run; a retry stands for all its attempts up to itself. Required.
	Run keep.RunID

	// Plain leaves addresses and what looks like a secret as they are.
	Plain bool
}

// A Recorded is a test that was made of a run.
type Recorded struct {
	Test     Test
	Scrubbed []string // what was replaced, in words
	Loose    []string // what is not compared, since it is another in each run
}

// Checkpoint reports whether the test has values of a checkpoint, which are for admins alone.
func (r Recorded) Checkpoint() bool { return len(r.Test.KV)+len(r.Test.Expect.KV) > 0 }

// A RecordError is why no test can be made of a run.
type RecordError struct {
	Run keep.RunID
	Why string
}

// Error says that nothing was made, and why.
func (e *RecordError) Error() string {
	return fmt.Sprintf("no test can be made of run %s: %s", e.Run, e.Why)
}

// Record makes a test of a run: its events, reads, answers and what came of it. The test passes
// on the version of the run: that was tried. What cannot be known or played is a *RecordError.
func Record(ctx context.Context, cfg RecordConfig) (*Recorded, error) {
	l, err := readLife(ctx, cfg.Store, cfg.Script.Definition, cfg.Run)
	if err != nil {
		return nil, err
	}
	t, err := l.test(ctx, cfg)
	if err != nil {
		return nil, err
	}
	r := &Recorded{}
	later := t // by more than a rehearsal takes to begin: what is made of the time is another then, and is not expected
	later.Now = t.Now.Add(time.Second)
	result, c, err := rehearse(ctx, cfg.Config, later)
	if wrong, ok := errors.AsType[*mistake](err); ok {
		return nil, l.refusef("%v", wrong)
	}
	if err != nil {
		return nil, err
	}
	if len(c.problems) > 0 {
		return nil, l.refusef("its own version, tried with what it saw, does something else: %s", c.problems[0])
	}
	if err := l.readKnown(ctx, cfg.Store, result.Events); err != nil {
		return nil, err
	}
	if t.Expect, err = l.expect(ctx, result, c, r); err != nil {
		return nil, err
	}
	r.Test = t
	if err := l.try(ctx, cfg.Config, t, ""); err != nil {
		return nil, err
	}
	if cfg.Plain {
		return r, nil
	}
	s := newScrubber(cfg.Script.Bundle.Code)
	if r.Test, err = s.test(t); err != nil {
		return nil, err
	}
	if r.Scrubbed = s.said(); len(r.Scrubbed) == 0 {
		return r, nil
	}
	return r, l.try(ctx, cfg.Config, r.Test, "once addresses and secrets in it are replaced; the script depends on them, so record it as it is (--plain) and replace them yourself")
}

// A life is a run with its attempts, and what is recorded of them.
type life struct {
	def    keep.Definition // of the version of the run
	run    keep.Run
	runs   []keep.Run // its attempts up to it, oldest first
	seen   []trace.Entry
	calls  []keep.Mutation // in the order of recording
	moves  map[keep.MutationKey][]keep.Move
	asked  []keep.Escalation
	made   []keep.Event // that the runs published, in order
	known  []keep.Event // that were there before
	answer map[keep.MutationKey][]trace.Entry
}

func (l *life) refusef(format string, args ...any) error {
	return &RecordError{l.run.ID, fmt.Sprintf(format, args...)}
}

// readLife reads all that is recorded of a run.
func readLife(ctx context.Context, s Store, d keep.Definition, id keep.RunID) (*life, error) {
	run, err := s.Run(ctx, id)
	if err != nil {
		return nil, err
	}
	l := &life{def: d, run: run, moves: make(map[keep.MutationKey][]keep.Move), answer: make(map[keep.MutationKey][]trace.Entry)}
	switch run.Status {
	case keep.StatusCrashed:
		return nil, l.refusef("the host died in it; make one of the run that continued, which stands for this one, too")
	case keep.StatusActive, keep.StatusReconciliation, keep.StatusTransient:
		if !run.Closed {
			return nil, l.refusef("it is not over (%s)", run.Status)
		}
	}
	if l.runs, err = attempts(ctx, s, run); err != nil {
		return nil, err
	}
	for _, r := range l.runs {
		if err := errors.Join(l.readTrace(ctx, s, r), l.readCalls(ctx, s, r)); err != nil {
			return nil, err
		}
	}
	all, err := s.EscalationsOf(ctx, run.Chain, keep.MaxPage)
	for _, q := range all {
		if slices.ContainsFunc(l.runs, func(r keep.Run) bool { return r.ID == q.Run }) {
			l.asked = append(l.asked, q)
		}
	}
	return l, err
}

// readTrace reads what one attempt saw.
func (l *life) readTrace(ctx context.Context, s Store, r keep.Run) error {
	parts, err := s.Trace(ctx, r.ID)
	if err != nil {
		return err
	}
	if len(parts) == 0 {
		if r.Status == keep.StatusCrashed { // it died before it stored any: a read that is missing fails the trial
			return nil
		}
		return l.refusef("what %s read was not recorded, or is not kept any more; see [trace] in keep.toml", r.ID)
	}
	t, err := trace.Join(parts)
	if err != nil {
		return l.refusef("what %s read is damaged: %v", r.ID, err)
	}
	if t.Gap {
		return l.refusef("a part of what %s read is not kept any more; see [trace] in keep.toml", r.ID)
	}
	if t.Dropped > 0 {
		return l.refusef("%d entries of what %s read did not fit into [trace] limit", t.Dropped, r.ID)
	}
	for _, e := range t.Entries {
		if e.What == trace.Read && e.Cut {
			return l.refusef("what %s answered was too large to be kept; see [trace] limit in keep.toml", e.Tool)
		}
	}
	l.seen = append(l.seen, t.Entries...)
	return nil
}

// readCalls reads what one attempt called and published.
func (l *life) readCalls(ctx context.Context, s Store, r keep.Run) error {
	for cursor := ""; ; {
		some, next, err := s.Mutations(ctx, keep.MutationFilter{Workflow: r.Workflow, Run: r.ID}, keep.Page{Limit: keep.MaxPage, After: cursor})
		if err != nil {
			return err
		}
		for _, m := range some {
			if _, have := l.moves[m.Key]; have {
				continue
			}
			if l.moves[m.Key], err = s.History(ctx, m.Key); err != nil {
				return err
			}
			l.calls = append(l.calls, m)
		}
		if cursor = next; cursor == "" {
			break
		}
	}
	slices.SortStableFunc(l.calls, func(a, b keep.Mutation) int { return strings.Compare(string(a.Key), string(b.Key)) })
	slices.SortStableFunc(l.calls, func(a, b keep.Mutation) int { return a.CreatedAt.Compare(b.CreatedAt) })
	made := keep.EventFilter{Workflow: r.Workflow, Made: keep.Period{Since: r.UpdatedAt, Until: r.UpdatedAt.Add(time.Millisecond)}}
	for cursor := ""; ; {
		some, next, err := s.Events(ctx, made, keep.Page{Limit: keep.MaxPage, After: cursor})
		if err != nil {
			return err
		}
		for _, e := range some {
			if e.CreatedBy.Run() == r.ID {
				e.Topic = l.def.CalledIn(e.Topic)
				l.made = append(l.made, e)
			}
		}
		if cursor = next; cursor == "" {
			break
		}
	}
	slices.SortFunc(l.made, func(a, b keep.Event) int { return int(a.Seq - b.Seq) })
	return nil
}

// readKnown reads which of the events that a rehearsal published were there before the run.
func (l *life) readKnown(ctx context.Context, s Store, published []keep.Event) error {
	for _, p := range published {
		e, err := s.Event(ctx, l.run.Workflow, p.Topic, p.MessageID)
		e.Topic = l.def.CalledIn(p.Topic)
		if err == nil && !slices.ContainsFunc(l.made, func(m keep.Event) bool { return m.Seq == e.Seq }) {
			l.known = append(l.known, e)
		} else if err != nil && !errors.Is(err, keep.ErrNotFound) {
			return err
		}
	}
	return nil
}

// test returns the test without what must come of it.
func (l *life) test(ctx context.Context, cfg RecordConfig) (Test, error) {
	t := Test{Name: fmt.Sprintf("%s as in %s", l.run.Handler, l.run.ID), Handler: string(l.run.Handler), Runs: 1, Now: l.runs[0].CreatedAt}
	effects := effectsOf(cfg.Connections)
	refs := []keep.EventRef{l.runs[0].Trigger}
	for _, r := range l.runs {
		for _, res := range r.Reservations {
			for _, id := range res.IDs {
				refs = append(refs, keep.EventRef{Topic: res.Topic, MessageID: id})
			}
		}
	}
	first := true
	for _, e := range l.seen {
		if e.What == trace.Phase && first && e.Script != nil {
			t.Now, first = e.Script.Clock, false
		}
		if e.What == trace.Call {
			var key keep.MutationKey
			_ = json.Unmarshal(e.Params, &key) // as it was written
			l.answer[key] = append(l.answer[key], e)
		}
		if e.What != trace.Read {
			continue
		}
		more, err := l.read(&t, e, effects)
		if err != nil {
			return t, err
		}
		refs = append(refs, more...)
	}
	if err := l.events(ctx, cfg.Store, &t, refs); err != nil {
		return t, err
	}
	return t, l.answers(&t)
}

// read takes over what the script got from outside; it returns the events among it.
func (l *life) read(t *Test, e trace.Entry, effects map[string]bool) ([]keep.EventRef, error) {
	switch e.Tool {
	case "kv.get":
		var key string
		if json.Unmarshal(e.Params, &key) != nil || e.Result == nil || string(e.Result) == "null" {
			return nil, nil
		}
		if t.KV == nil {
			t.KV = make(map[string]any)
		}
		if _, have := t.KV[key]; !have {
			t.KV[key] = value(e.Result)
		}
		return nil, nil
	case "peek", "getByIds":
		return l.readEvents(e)
	case "item.begin":
		return nil, l.readItem(t, e)
	case "registerInput":
		return nil, nil // it makes the same input
	}
	mutates, known := effects[e.Tool]
	if !known {
		return nil, l.refusef("it used %s, and there is no such tool now", e.Tool)
	}
	if mutates {
		return nil, nil // the ledger has it
	}
	r := Read{Tool: e.Tool, Error: failureOf(e.Error)}
	_ = json.Unmarshal(e.Params, &r.Params) // no object: any params do
	if e.Error == nil {
		r.Result, r.JSON = fileValue(e.Result)
	}
	t.Reads = append(t.Reads, r)
	return nil, nil
}

// readEvents returns the events that were looked at.
func (l *life) readEvents(e trace.Entry) (refs []keep.EventRef, err error) {
	var events []struct {
		Topic     keep.TopicName
		MessageID keep.MessageID
		Status    keep.EventStatus
	}
	if e.Error == nil && json.Unmarshal(e.Result, &events) != nil {
		return nil, l.refusef("what %s answered is damaged", e.Tool)
	}
	for _, ev := range events {
		if ev.Status != keep.EventPending {
			return nil, l.refusef("it looked at event %s in %s, which was %s: events of a test are pending", ev.MessageID, ev.Topic, ev.Status)
		}
		refs = append(refs, keep.EventRef{Topic: l.def.TopicOf(ev.Topic), MessageID: ev.MessageID})
	}
	return refs, nil
}

// readItem takes over an item that was over when a job came to it first.
func (l *life) readItem(t *Test, e trace.Entry) error {
	var it struct {
		ID, Title         string
		Status            keep.ItemStatus
		IsDone, IsBlocked bool
	}
	if e.Error != nil {
		return nil
	}
	if json.Unmarshal(e.Result, &it) != nil || it.IsBlocked {
		return l.refusef("it is not known whether a call of item %q happened", it.ID)
	}
	began := slices.ContainsFunc(l.seen, func(o trace.Entry) bool {
		var of struct {
			ID     string
			IsDone bool
		}
		return o.Tool == e.Tool && json.Unmarshal(o.Result, &of) == nil && of.ID == it.ID && !of.IsDone
	})
	if it.IsDone && !began && !slices.ContainsFunc(t.Items, func(o Item) bool { return o.ID == it.ID }) {
		t.Items = append(t.Items, Item{ID: it.ID, Title: it.Title, Status: it.Status})
	}
	return nil
}

// events makes those pending that the run worked on or looked at.
func (l *life) events(ctx context.Context, s Store, t *Test, refs []keep.EventRef) error {
	var events []keep.Event
	for i, ref := range refs {
		if ref.IsZero() || slices.Contains(refs[:i], ref) {
			continue
		}
		e, err := s.Event(ctx, l.run.Workflow, ref.Topic, ref.MessageID)
		if errors.Is(err, keep.ErrNotFound) || err == nil && e.Payload == nil {
			return l.refusef("its event %s in %s is not kept any more", ref.MessageID, ref.Topic)
		}
		if err != nil {
			return err
		}
		events = append(events, e)
	}
	slices.SortFunc(events, func(a, b keep.Event) int { return int(a.Seq - b.Seq) })
	for _, e := range events {
		of := Event{Topic: string(l.def.CalledIn(e.Topic)), MessageID: string(e.MessageID)}
		of.Payload, of.JSON = fileValue(e.Payload)
		t.Events = append(t.Events, of)
	}
	return nil
}

// answers says what became of each call, and of each lookup.
func (l *life) answers(t *Test) error {
	for _, q := range l.asked {
		switch {
		case q.Decision == nil:
		case q.Kind == keep.AskApproval && q.Decision.Action == keep.Approve:
			t.Approved = true
		case q.Kind == keep.AskBudget && q.Decision.Action == keep.Allow:
		default:
			return l.refusef("a person decided in it (%s: %s), and a test has no persons", q.Kind, q.Decision.Action)
		}
	}
	for _, m := range l.calls {
		for _, move := range l.moves[m.Key] {
			a, ok, err := l.answerOf(m, move)
			if err != nil {
				return err
			}
			if ok {
				t.Answers = append(t.Answers, a)
			}
		}
		if m.State == keep.Indeterminate {
			t.Answers = append(t.Answers, slices.Repeat([]Answer{{Tool: string(m.Tool), Says: Lost}}, m.ReconcileAttempts+1)...)
		}
	}
	return nil
}

// answerOf returns what a service said to a call or a lookup by which a record moved; false:
// nothing that a test needs.
func (l *life) answerOf(m keep.Mutation, move keep.Move) (a Answer, ok bool, err error) {
	a.Tool = string(m.Tool)
	switch move.By {
	case "call":
		if move.Evidence == string(ledger.NewAttempt) {
			return a, false, nil
		}
		f := l.failureOfCall(m)
		switch {
		case move.Evidence == string(ledger.Happened):
			a.Says = Applied
			a.Result, a.JSON = fileValue(m.Result)
		case f != nil && f.Class != string(keep.ClassUnknown):
			a.Says, a.Error = Refused, f
		default:
			a.Says = Lost
		}
	case "recovery":
		a.Says = Lost
	case "reconcile":
		switch move.Evidence {
		case string(ledger.Happened):
			a.Says = Found
			a.Result, a.JSON = fileValue(m.Result)
		case string(ledger.Absent):
			a.Says = Absent
		default:
			return a, false, nil
		}
	default:
		return a, false, l.refusef("a person said what became of %s, and a test has no persons", m.Tool)
	}
	return a, true, nil
}

// failureOfCall returns why the next call of a record failed; nil: it did not, or it is not known.
func (l *life) failureOfCall(m keep.Mutation) *Failure {
	if left := l.answer[m.Key]; len(left) > 0 {
		l.answer[m.Key] = left[1:]
		return failureOf(left[0].Error)
	}
	return nil
}

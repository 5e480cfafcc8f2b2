package storetest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/keep-run/keep"
	"github.com/keep-run/keep/store"
)

// A world is a store under test, and short words for what tests do with it.
type world struct {
	testing.TB
	store.Store
	ctx context.Context
	at  time.Time
	ids int
}

func newWorld(tb testing.TB, s store.Store) *world {
	return &world{TB: tb, Store: s, ctx: context.Background(), at: time.Date(2026, 5, 4, 3, 2, 1, 7e6, time.UTC)}
}

// check fails the test for each broken law.
func (w *world) check() {
	w.Helper()
	for err := range w.Check(w.ctx) {
		w.Errorf("Check: %v", err)
	}
}

// now returns a time that is later than those before it.
func (w *world) now() time.Time {
	w.at = w.at.Add(time.Second)
	return w.at
}

// id returns an id that is later than those before it.
func (w *world) id(prefix string) string {
	w.ids++
	return fmt.Sprintf("%s_%04d", prefix, w.ids)
}

// commit makes changes that must be accepted.
func (w *world) commit(name keep.WorkflowName, changes ...keep.Change) {
	w.Helper()
	if err := w.Commit(w.ctx, keep.Commit{Workflow: name, At: w.now(), Changes: changes}); err != nil {
		w.Fatalf("Commit: %v", err)
	}
}

// refuse makes changes of which the last must be refused. Before them it makes
// one that is fine; nothing of it may be left.
func (w *world) refuse(name keep.WorkflowName, want func(error) bool, changes ...keep.Change) {
	w.Helper()
	fine := keep.PutInput{Input: keep.Input{ID: "input_of_a_refused_commit", Workflow: name, ExternalID: "refused", CreatedAt: w.at}}
	all := append([]keep.Change{fine}, changes...)
	if name == "" { // only questions are of no workflow
		all[0] = keep.OpenEscalation{Escalation: keep.Escalation{ID: "esc_of_a_refused_commit", Kind: keep.AskReconnect}}
	}
	before := Snapshot(w.TB, w.Store)
	err := w.Commit(w.ctx, keep.Commit{Workflow: name, At: w.now(), Changes: all})
	if !errors.Is(err, keep.ErrRefused) || !want(err) {
		w.Errorf("Commit = %v, want another refusal", err)
	}
	if diff := cmp.Diff(before, Snapshot(w.TB, w.Store)); diff != "" {
		w.Errorf("a refused commit left something behind (-before +after):\n%s", diff)
	}
}

// is wants an error.
func is(want error) func(error) bool {
	return func(err error) bool { return errors.Is(err, want) }
}

// notFound wants a *keep.NotFoundError.
func notFound(what, id string) func(error) bool {
	return func(err error) bool {
		var e *keep.NotFoundError
		return errors.As(err, &e) && errors.Is(err, keep.ErrNotFound) && e.What == what && e.ID == id
	}
}

// cannotReserve wants a *keep.ReservationError.
func cannotReserve(topic keep.TopicName, id keep.MessageID, why string) func(error) bool {
	return func(err error) bool {
		var e *keep.ReservationError
		return errors.As(err, &e) && *e == keep.ReservationError{Topic: topic, ID: id, Why: why}
	}
}

// invalid wants an error without a name: of what no engine asks.
func invalid(err error) bool {
	for _, named := range []error{keep.ErrStale, keep.ErrRunOpen, keep.ErrMutationExists, keep.ErrNotFound, keep.ErrDecided} {
		if errors.Is(err, named) {
			return false
		}
	}
	return true
}

// same fails the test if a read did not return what it should.
func (w *world) same(what string, got, want any) {
	w.Helper()
	if reflect.DeepEqual(want, got) {
		return // cmp would look at each byte of a payload by itself
	}
	if diff := cmp.Diff(want, got); diff != "" {
		w.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// get returns a function that returns the value of a read that may not fail:
// get[keep.Run](w)(w.Run(w.ctx, id)).
func get[T any](w *world) func(T, error) T {
	return func(v T, err error) T {
		w.Helper()
		if err != nil {
			w.Fatalf("read: %v", err)
		}
		return v
	}
}

// fails fails the test if a read did not fail as it should.
func (w *world) fails(what string, err error, want func(error) bool) {
	w.Helper()
	if err == nil || !want(err) {
		w.Errorf("%s: error %v, want another", what, err)
	}
}

// kept returns t as stores keep it.
func kept(t time.Time) time.Time {
	if t.IsZero() {
		return t
	}
	return time.UnixMilli(t.UnixMilli()).UTC()
}

// odd is text that a careless store damages.
const odd = "\x00 \x1a 1a \x1a00 Grüße 🧾 \"quoted\" 'single' \\ <b>&amp;</b> \n\t % _ ? $1 \u2028 \u202e"

// oddTime has a zone and more digits than are kept.
var oddTime = time.Date(2026, 2, 28, 23, 59, 59, 123_987_654, time.FixedZone("odd", 19_800))

// page returns a list that must fit one page.
func page[T any](w *world) func([]T, string, error) []T {
	return func(list []T, next string, err error) []T {
		w.Helper()
		if err != nil || next != "" {
			w.Fatalf("list: next %q, error %v", next, err)
		}
		return list
	}
}

// deploy makes a workflow with topics, which a consumer reads.
func (w *world) deploy(name keep.WorkflowName, topics ...keep.TopicName) {
	w.Helper()
	w.deployReading(name, 1, topics, topics...)
}

// deployReading deploys a version with topics, of which a consumer reads some.
func (w *world) deployReading(name keep.WorkflowName, major int, topics []keep.TopicName, read ...keep.TopicName) {
	w.Helper()
	def := keep.Definition{Name: name, Topics: topics}
	if len(read) > 0 {
		def.Handlers = []keep.Handler{{Name: "consume", Kind: keep.Consumer, Subscribe: read}}
	}
	w.commit(name, keep.Deploy{Deployment: keep.Deployment{
		Workflow: name, Version: keep.Version{Major: major}, CreatedAt: w.at, Definition: def,
	}})
}

// input adds an input.
func (w *world) input(name keep.WorkflowName) keep.InputID {
	w.Helper()
	in := keep.Input{ID: keep.InputID(w.id("in")), Workflow: name, Source: "mail", Type: "mail", Title: "Mail", CreatedAt: w.at}
	in.ExternalID = string(in.ID)
	w.commit(name, keep.PutInput{Input: in})
	return in.ID
}

// publish adds an event with an id as payload.
func (w *world) publish(name keep.WorkflowName, topic keep.TopicName, id keep.MessageID, causes ...keep.InputID) {
	w.Helper()
	w.commit(name, keep.Publish{Event: event(name, topic, id, causes...)})
}

func event(name keep.WorkflowName, topic keep.TopicName, id keep.MessageID, causes ...keep.InputID) keep.Event {
	payload, _ := json.Marshal(id)
	return keep.Event{Workflow: name, Topic: topic, MessageID: id, Payload: payload, CreatedBy: "run_0", CausedBy: causes}
}

// newRun returns an active run of a consumer that is not stored.
func (w *world) newRun(name keep.WorkflowName) keep.Run {
	id := keep.RunID(w.id("run"))
	return keep.Run{
		ID: id, Chain: id, Workflow: name, Version: keep.Version{Major: 1}, Handler: "consume", Kind: keep.Consumer,
		Phase: keep.Preparing, Status: keep.StatusActive, CreatedAt: w.at, UpdatedAt: w.at,
	}
}

// start stores a new run that reserves events of one topic.
func (w *world) start(name keep.WorkflowName, topic keep.TopicName, ids ...keep.MessageID) keep.Run {
	w.Helper()
	r := w.newRun(name)
	changes := []keep.Change{}
	if len(ids) > 0 {
		r.Phase = keep.Prepared
		r.Reservations = []keep.Reservation{{Topic: topic, IDs: ids}}
		changes = append(changes, keep.Reserve{Chain: r.Chain, Reservation: r.Reservations[0]})
	}
	w.commit(name, append([]keep.Change{keep.PutRun{Run: r}}, changes...)...)
	r.Rev = 1
	return r
}

// done returns r as it is when it has committed.
func done(r keep.Run) keep.Run {
	r.Phase, r.Status, r.Closed = keep.Committed, keep.StatusCommitted, true
	return r
}

// openRun returns the oldest run of a workflow that is not closed, and whether there is
// one.
func openRun(ctx context.Context, s store.Runs, name keep.WorkflowName) (keep.Run, bool, error) {
	runs, err := s.OpenRuns(ctx, name)
	if err != nil || len(runs) == 0 {
		return keep.Run{}, false, err
	}
	return runs[0], true, nil
}

// finish commits a stored run and consumes what it reserved.
func (w *world) finish(r keep.Run, more ...keep.Change) {
	w.Helper()
	changes := []keep.Change{keep.Finish{Chain: r.Chain, Status: keep.EventConsumed}, keep.PutRun{Run: done(r)}}
	w.commit(r.Workflow, append(changes, more...)...)
}

// newMutation returns the record of a call that a run is about to make.
func (w *world) newMutation(r keep.Run) keep.Mutation {
	key := keep.MutationKey("key_of_" + string(r.ID))
	return keep.Mutation{
		Key: key, Workflow: r.Workflow, Run: r.ID, Tool: "crm.create", Connector: "http", Level: keep.LevelWitness,
		Payload: json.RawMessage(`{"id":1}`), Token: "token_of_" + string(r.ID), State: keep.InFlight, Attempts: 1,
		CallDeadline: w.at.Add(time.Minute), CreatedAt: w.at, UpdatedAt: w.at,
	}
}

// move returns a line of history.
func (w *world) move(from, to keep.MutationState) keep.Move {
	return keep.Move{At: w.at, By: "call", From: from, To: to, Evidence: "seen"}
}

// call stores a run that is mutating, and its record in flight.
func (w *world) call(name keep.WorkflowName) (keep.Run, keep.Mutation) {
	w.Helper()
	r := w.newRun(name)
	m := w.newMutation(r)
	r.Phase, r.Mutation = keep.Mutating, m.Key
	w.commit(name, keep.PutRun{Run: r}, keep.PutMutation{Mutation: m, Moves: []keep.Move{w.move("", keep.InFlight)}})
	r.Rev, m.Rev = 1, 1
	return r, m
}

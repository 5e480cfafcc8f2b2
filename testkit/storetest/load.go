package storetest

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/store"
)

// A Load is one workflow whose consumer always has one event to consume. It is
// what benchmarks of stores share. One goroutine uses it.
type Load struct {
	Workflow keep.WorkflowName
	At       time.Time      // of the last commit
	Event    keep.MessageID // the one to consume next

	number  int
	runs    int
	input   keep.InputID
	payload json.RawMessage
}

// NewLoad returns the load of a workflow. Number, below 256, tells its ids from
// those of other loads.
func NewLoad(w keep.WorkflowName, number int) *Load {
	return &Load{
		Workflow: w,
		number:   number,
		payload:  json.RawMessage(`{"text":"` + strings.Repeat("x", 1000) + `"}`),
	}
}

// loadClock is the time of the last id, in milliseconds.
var loadClock atomic.Int64

// tick makes ids as the host does: later ones sort later, over all workflows, and
// those of a later process too.
func tick() time.Time {
	for {
		was := loadClock.Load()
		now := max(was+1, time.Now().UnixMilli())
		if loadClock.CompareAndSwap(was, now) {
			return time.UnixMilli(now)
		}
	}
}

// id returns an id that is later than those before it.
func (l *Load) id(prefix string) string {
	l.At = tick()
	return keep.NewID(prefix, l.At, [10]byte{byte(l.number), byte(l.runs), byte(l.runs >> 8), byte(l.runs >> 16)})
}

// Deploy returns the commit that makes the workflow, with its first event.
func (l *Load) Deploy() keep.Commit {
	l.Event, l.input = "message-0", keep.InputID(l.id("in"))
	return keep.Commit{Workflow: l.Workflow, At: l.At, Changes: []keep.Change{
		keep.Deploy{Deployment: keep.Deployment{Workflow: l.Workflow, Version: keep.Version{Major: 1},
			Definition: keep.Definition{Name: l.Workflow, Topics: []keep.TopicName{"mail.received"}, Handlers: []keep.Handler{
				{Name: "addRow", Kind: keep.Consumer, Subscribe: []keep.TopicName{"mail.received"}},
			}}, CreatedAt: l.At}},
		keep.PutInput{Input: keep.Input{ID: l.input, Workflow: l.Workflow, Source: "mail", Type: "mail", ExternalID: "1"}},
		keep.Publish{Event: keep.Event{Workflow: l.Workflow, Topic: "mail.received", MessageID: l.Event,
			Payload: l.payload, CausedBy: []keep.InputID{l.input}}},
	}}
}

// Run makes the two commits of an undisturbed consumer run: pin an event and
// record the call; settle, consume, publish and commit. Payloads have 1 KB.
func (l *Load) Run(ctx context.Context, db store.Committer) error {
	r, m, err := l.begin(ctx, db)
	if err != nil {
		return err
	}
	return l.end(ctx, db, r, m)
}

// end makes the second commit of a run.
func (l *Load) end(ctx context.Context, db store.Committer, r keep.Run, m keep.Mutation) error {
	r.Rev, m.Rev = 1, 1
	m.State, m.Result, m.ResolvedBy = keep.Applied, l.payload, "call"
	r.Phase, r.Status, r.Closed = keep.Committed, keep.StatusCommitted, true
	l.Event = keep.MessageID(fmt.Sprintf("message-%d", l.runs))
	return db.Commit(ctx, keep.Commit{Workflow: l.Workflow, At: l.At, Changes: []keep.Change{
		keep.PutMutation{Mutation: m, Moves: []keep.Move{{At: l.At, By: "call", From: keep.InFlight, To: keep.Applied, Evidence: "happened"}}},
		keep.Finish{Chain: r.ID, Status: keep.EventConsumed},
		keep.Publish{Event: keep.Event{Workflow: l.Workflow, Topic: "mail.received", MessageID: l.Event,
			Payload: l.payload, CreatedBy: keep.Publisher(r.ID), CausedBy: []keep.InputID{l.input}}},
		keep.PutHandler{State: keep.HandlerState{Workflow: l.Workflow, Handler: "addRow", Kind: keep.Consumer, LastRun: r.ID, LastAt: l.At}},
		keep.PutRun{Run: r},
	}})
}

// Begin makes the first commit of a run, and leaves its call in flight.
func (l *Load) Begin(ctx context.Context, db store.Committer) error {
	_, _, err := l.begin(ctx, db)
	return err
}

func (l *Load) begin(ctx context.Context, db store.Committer) (keep.Run, keep.Mutation, error) {
	r, m := l.start()
	return r, m, db.Commit(ctx, keep.Commit{Workflow: l.Workflow, At: l.At, Changes: []keep.Change{
		keep.PutRun{Run: r},
		keep.Reserve{Chain: r.ID, Reservation: r.Reservations[0]},
		keep.PutMutation{Mutation: m, Moves: []keep.Move{{At: l.At, By: "call", To: keep.InFlight, Evidence: "sent"}}},
	}})
}

// start returns a run that reserves the event, and its call.
func (l *Load) start() (keep.Run, keep.Mutation) {
	l.runs++
	id := keep.RunID(l.id("run"))
	r := keep.Run{
		ID: id, Chain: id, Workflow: l.Workflow, Version: keep.Version{Major: 1}, Handler: "addRow", Kind: keep.Consumer,
		Phase: keep.Mutating, Status: keep.StatusActive, Trigger: keep.EventRef{Topic: "mail.received", MessageID: l.Event},
		Reservations: []keep.Reservation{{Topic: "mail.received", IDs: []keep.MessageID{l.Event}}},
		Prepared:     l.payload, Mutation: keep.MutationKey("mut_" + id), Title: "Add a row", CreatedAt: l.At, UpdatedAt: l.At,
	}
	m := keep.Mutation{
		Key: r.Mutation, Workflow: l.Workflow, Run: id, Tool: "db.insert", Connector: "http", Level: keep.LevelKey,
		Target: "invoices", Identity: json.RawMessage(`{"id":"1"}`), Payload: l.payload, PayloadHash: strings.Repeat("0", 64),
		Token: string(id), Title: r.Title, State: keep.InFlight, Attempts: 1, CallDeadline: l.At.Add(time.Minute),
		CanReconcile: true, CreatedAt: l.At, UpdatedAt: l.At,
	}
	return r, m
}

// A SpendingLoad is a Load whose calls each count one in a budget.
type SpendingLoad struct {
	*Load
	Per time.Duration // of the budget
}

// Run is Load.Run with what a budget costs: it is read before the call, and the first commit holds to it.
func (l SpendingLoad) Run(ctx context.Context, db SpendingStore) error {
	r, m := l.start()
	m.SpentAt = l.At
	m.Spent = []keep.Spent{{Budget: "load", Amount: keep.AmountUnit, Limit: keep.MaxAmount, Per: l.Per}}
	if _, err := db.Spent(ctx, []string{"load"}, l.At.Add(-l.Per), m.Key); err != nil {
		return err
	}
	err := db.Commit(ctx, keep.Commit{Workflow: l.Workflow, At: l.At, Changes: []keep.Change{
		keep.PutRun{Run: r},
		keep.Reserve{Chain: r.ID, Reservation: r.Reservations[0]},
		keep.Within{Key: m.Key, Spent: m.Spent[0]},
		keep.PutMutation{Mutation: m, Moves: []keep.Move{{At: l.At, By: "call", To: keep.InFlight, Evidence: "sent"}}},
	}})
	if err != nil {
		return err
	}
	return l.end(ctx, db, r, m)
}

// A SpendingStore is what a SpendingLoad needs.
type SpendingStore interface {
	store.Committer
	store.Spending
}

// CopySpent returns a statement that copies a record of a SpendingLoad n times, each so long before the other.
func CopySpent(n int, apart time.Duration) string {
	const same = `workflow, run, item, attempt, tool, connector, level, target, subkey, payload_hash, token, title, state, warning, attempts,
		reconcile_attempts, next_reconcile_at, call_deadline, settle_after, can_reconcile, resolved_by, rev, created_at, updated_at, spent`
	return fmt.Sprintf(`WITH RECURSIVE seq (i) AS (SELECT 1 WHERE %[1]d > 0 UNION ALL SELECT i + 1 FROM seq WHERE i < %[1]d)
		INSERT INTO mutation (n, key, spent_at, %[2]s)
		SELECT m.n + i, m.key || '_' || i, m.spent_at - i * %[3]d, %[2]s
		  FROM seq, (SELECT * FROM mutation WHERE spent_at <> 0 ORDER BY n DESC LIMIT 1) m`, n, same, apart.Milliseconds())
}

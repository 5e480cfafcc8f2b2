package web

import (
	"context"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/api"
	"github.com/keep-run/keep/engine"
	"github.com/keep-run/keep/feed"
	"github.com/keep-run/keep/idempotency"
	"github.com/keep-run/keep/idempotency/key"
)

// A Store is what pages read. The packages sqlite and memory are stores. Pages of
// lists are newest first; what is not there is a *keep.NotFoundError.
type Store interface {
	api.Runs
	api.Ledger
	api.Inputs
	api.Items
	api.Workflows
	Events
	Questions
	Versions
	Runs
	Counts
}

// Counts counts what the filters of lists select, by status or state.
type Counts interface {
	CountInputs(ctx context.Context, f keep.InputFilter) (map[keep.InputStatus]int, error)
	CountMutations(ctx context.Context, f keep.MutationFilter) (map[keep.MutationState]int, error)
	CountItems(ctx context.Context, f keep.ItemFilter) (map[keep.ItemStatus]int, error)
	CountRuns(ctx context.Context, f keep.RunFilter) (map[keep.RunStatus]int, error)
}

// Events reads events and what they come from.
type Events interface {
	Events(ctx context.Context, f keep.EventFilter, p keep.Page) ([]keep.Event, string, error)
	Event(ctx context.Context, w keep.WorkflowName, t keep.TopicName, id keep.MessageID) (keep.Event, error)
	TopicCounts(ctx context.Context, w keep.WorkflowName) ([]keep.TopicCount, error)
}

// Questions reads escalations.
type Questions interface {
	Escalations(ctx context.Context, f keep.EscalationFilter, p keep.Page) ([]keep.Escalation, string, error)
	Escalation(ctx context.Context, id keep.EscalationID) (keep.Escalation, error)
}

// Versions reads the versions of a workflow.
type Versions interface {
	// Deployments returns the versions of a workflow, newest first, without
	// their code.
	Deployments(ctx context.Context, w keep.WorkflowName) ([]keep.Deployment, error)
}

// Runs reads what belongs to runs.
type Runs interface {
	Causes(ctx context.Context, chain keep.RunID) ([]keep.InputID, error)
	Logs(ctx context.Context, run keep.RunID) ([]keep.LogLine, error)
}

// An Actor does what people decide; *engine.Engine and *host.Host do. Every method
// is described there.
type Actor interface {
	Decide(ctx context.Context, id keep.EscalationID, d keep.Decision) error
	SkipInput(ctx context.Context, w keep.WorkflowName, id keep.InputID) (engine.SkipResult, error)
	SkipInputs(ctx context.Context, w keep.WorkflowName, ids []keep.InputID) (engine.InputsSkipped, error)
	SkipEvents(ctx context.Context, w keep.WorkflowName, t keep.TopicName, ids []keep.MessageID) (engine.SkipResult, error)
	SetPaused(ctx context.Context, w keep.WorkflowName, paused bool) error
	Trigger(ctx context.Context, w keep.WorkflowName, h keep.HandlerName) error
	ResetCheckpoint(ctx context.Context, w keep.WorkflowName, h keep.HandlerName) error
	ItemActor
}

// An ItemActor does what people decide about items.
type ItemActor interface {
	CanDoItem(it keep.Item, action keep.Action) error
	ReprocessItem(ctx context.Context, w keep.WorkflowName, id string, d keep.Decision) error
	SkipItem(ctx context.Context, w keep.WorkflowName, id string, d keep.Decision) error
}

// A Feed tells what changed; *feed.Feed does.
type Feed interface {
	Last() string
	Subscribe(ctx context.Context, after string) *feed.Subscription
}

// Keys reads and decides about idempotency keys; *idempotency.Keys does.
type Keys interface {
	List(ctx context.Context, f key.Filter, p keep.Page) ([]idempotency.View, string, error)
	Show(ctx context.Context, reference string) (idempotency.View, error)
	Resolve(ctx context.Context, reference string, res idempotency.Resolution, now time.Time) (idempotency.View, error)
	Forget(ctx context.Context, reference, by string, now time.Time) (idempotency.View, error)
}

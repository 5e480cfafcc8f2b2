package engine

import (
	"context"

	"github.com/keep-run/keep"
)

// A Store keeps everything that must survive the process. The packages sqlite
// and memory are stores; storetest says what each must do.
//
// Reads see every commit that returned before they began. They may be served
// from a snapshot, and never wait for a commit under way.
type Store interface {
	Committer
	Workflows
	Runs
	Events
	Inputs
	Ledger
	Sweeper
}

// A Committer makes changes durable.
type Committer interface {
	// Commit makes all changes of c durable, or none. When it returns nil they
	// survive a crash of the process and of the machine. It may group commits
	// of several workflows into one write to disk.
	//
	// An error of package keep (ErrStale, ErrRunOpen, ErrMutationExists,
	// ErrDecided, *ReservationError, *NotFoundError) means that nothing was
	// written. After any other error, and after the end of ctx, the commit may
	// or may not be durable: read before you act.
	Commit(ctx context.Context, c keep.Commit) error
}

// Workflows is what the engine reads of workflows and their handlers.
type Workflows interface {
	// Workflows returns every workflow, sorted by name.
	Workflows(ctx context.Context) ([]keep.Workflow, error)

	// Workflow returns a workflow, or *keep.NotFoundError. It costs the same
	// however many there are.
	Workflow(ctx context.Context, w keep.WorkflowName) (keep.Workflow, error)

	// Deployment returns one version of a workflow, or *keep.NotFoundError.
	Deployment(ctx context.Context, w keep.WorkflowName, v keep.Version) (keep.Deployment, error)

	// Handlers returns the handler states of a workflow, sorted by name. A
	// handler that was never written has none.
	Handlers(ctx context.Context, w keep.WorkflowName) ([]keep.HandlerState, error)

	// KV returns one value of a producer's checkpoint; nil if it is not set.
	KV(ctx context.Context, w keep.WorkflowName, producer keep.HandlerName, key string) ([]byte, error)

	// KVSize returns the bytes of all keys and values of a checkpoint.
	KVSize(ctx context.Context, w keep.WorkflowName, producer keep.HandlerName) (int, error)
}

// Runs is what the engine reads of runs, items and questions.
type Runs interface {
	// OpenRun returns the run of w that is not closed, and whether there is one.
	OpenRun(ctx context.Context, w keep.WorkflowName) (keep.Run, bool, error)

	// Run returns a run, or *keep.NotFoundError.
	Run(ctx context.Context, id keep.RunID) (keep.Run, error)

	// Escalations returns a page of questions and the cursor of the next page,
	// empty at the end.
	Escalations(ctx context.Context, f keep.EscalationFilter, p keep.Page) ([]keep.Escalation, string, error)

	// Escalation returns a question, or *keep.NotFoundError.
	Escalation(ctx context.Context, id keep.EscalationID) (keep.Escalation, error)

	// Item returns an item, or *keep.NotFoundError.
	Item(ctx context.Context, w keep.WorkflowName, id string) (keep.Item, error)

	// ItemsAfter returns up to limit of the items of w that were made after the
	// item id, oldest first. It may leave out any of them, and does if there is
	// no such item.
	ItemsAfter(ctx context.Context, w keep.WorkflowName, id string, limit int) ([]keep.Item, error)
}

// Events is what the engine reads of topics.
type Events interface {
	// Backlog describes the free events in the given topics.
	Backlog(ctx context.Context, w keep.WorkflowName, topics []keep.TopicName) (keep.Backlog, error)

	// Peek returns up to limit free events of a topic, oldest first.
	Peek(ctx context.Context, w keep.WorkflowName, t keep.TopicName, limit int) ([]keep.Event, error)

	// EventsByID returns those of the named events that exist, in the order of
	// ids, whatever their status.
	EventsByID(ctx context.Context, w keep.WorkflowName, t keep.TopicName, ids []keep.MessageID) ([]keep.Event, error)
}

// Inputs is what the engine reads of inputs and what they caused.
type Inputs interface {
	// Causes returns the inputs of all events that the chain reserved, sorted.
	Causes(ctx context.Context, chain keep.RunID) ([]keep.InputID, error)

	// Events returns a page of events, newest first, and the cursor of the
	// next page, empty at the end.
	Events(ctx context.Context, f keep.EventFilter, p keep.Page) ([]keep.Event, string, error)

	// Input returns an input, or *keep.NotFoundError.
	Input(ctx context.Context, id keep.InputID) (keep.Input, error)

	// InputByKey returns the input with that source, type and external id, or
	// *keep.NotFoundError.
	InputByKey(ctx context.Context, w keep.WorkflowName, source, typ, externalID string) (keep.Input, error)
}

// Ledger is what the engine reads of mutations.
type Ledger interface {
	// Mutation returns the record of that key, or *keep.NotFoundError.
	Mutation(ctx context.Context, key keep.MutationKey) (keep.Mutation, error)

	// ResultsAfter returns results of applied mutations of w that were made after
	// that of key, oldest first. It looks at no more than limit records, and
	// leaves out results of more than size bytes. It may leave out others too,
	// and does if there is no such key.
	ResultsAfter(ctx context.Context, w keep.WorkflowName, key keep.MutationKey, limit, size int) ([]keep.StoredResult, error)

	// Mutations returns a page of records, newest first, and the cursor of the
	// next page, empty at the end.
	Mutations(ctx context.Context, f keep.MutationFilter, p keep.Page) ([]keep.Mutation, string, error)
}

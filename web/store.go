package web

import (
	"context"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/api"
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
	api.Events
	api.Questions
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

package storetest

import (
	"context"
	"iter"
	"slices"
	"testing"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/engine"
)

// A Store is everything that a store does: what the engine needs, what surfaces
// show, and Check.
type Store interface {
	engine.Store
	Lists
	Details

	// StoreID returns a random name that the store got when it was made.
	StoreID(ctx context.Context) (string, error)

	// Check yields every record that breaks a law.
	Check(ctx context.Context) iter.Seq[error]
}

// Lists are pages, newest first, and the cursor of the next page; it is empty at
// the end. A cursor that the list did not make is keep.ErrBadCursor.
type Lists interface {
	Runs(ctx context.Context, f keep.RunFilter, p keep.Page) ([]keep.Run, string, error)
	Mutations(ctx context.Context, f keep.MutationFilter, p keep.Page) ([]keep.Mutation, string, error)
	Events(ctx context.Context, f keep.EventFilter, p keep.Page) ([]keep.Event, string, error)
	Inputs(ctx context.Context, f keep.InputFilter, p keep.Page) ([]keep.Input, string, error)
	Items(ctx context.Context, f keep.ItemFilter, p keep.Page) ([]keep.Item, string, error)
}

// A Looker is a store that people look at: its lists know Text and Bare, and it
// counts. What is promised of that is skipped for a store that is none.
type Looker interface {
	Store
	Counts
}

// Counts count what the list of that filter has, by its state, all in one
// snapshot. What none has is not in the map. The cost does not grow with the rows
// in the usual state, which are nearly all, unless the filter has a Text.
type Counts interface {
	CountRuns(ctx context.Context, f keep.RunFilter) (map[keep.RunStatus]int, error)
	CountMutations(ctx context.Context, f keep.MutationFilter) (map[keep.MutationState]int, error)
	CountInputs(ctx context.Context, f keep.InputFilter) (map[keep.InputStatus]int, error)
	CountItems(ctx context.Context, f keep.ItemFilter) (map[keep.ItemStatus]int, error)
	CountEscalations(ctx context.Context, f keep.EscalationFilter) (map[keep.EscalationKind]int, error)
}

// Details are what surfaces show of one thing.
type Details interface {
	// Input returns an input, or *keep.NotFoundError.
	Input(ctx context.Context, id keep.InputID) (keep.Input, error)

	// Event returns an event, or *keep.NotFoundError.
	Event(ctx context.Context, w keep.WorkflowName, t keep.TopicName, id keep.MessageID) (keep.Event, error)

	// Outputs returns the mutations of the runs that reserved events caused by
	// an input, oldest first.
	Outputs(ctx context.Context, id keep.InputID) ([]keep.MutationKey, error)

	// History returns every move of a mutation, oldest first.
	History(ctx context.Context, key keep.MutationKey) ([]keep.Move, error)

	// Logs returns every line that a run wrote, oldest first.
	Logs(ctx context.Context, run keep.RunID) ([]keep.LogLine, error)

	// TopicCounts counts the events of every topic that a version declared or
	// that has events, of one workflow or of all if w is empty, sorted by name.
	TopicCounts(ctx context.Context, w keep.WorkflowName) ([]keep.TopicCount, error)

	// Deployments returns the versions of a workflow, or of all if w is empty,
	// newest first, without their code.
	Deployments(ctx context.Context, w keep.WorkflowName) ([]keep.Deployment, error)
}

// A Reopener is a store that survives its process. Reopen closes it and opens
// the same data again.
type Reopener interface {
	Reopen(tb testing.TB) Store
}

// A promise is one thing that every store does.
type promise struct {
	name string
	test func(*world)
}

// Run checks every promise on a store of its own. Open returns an empty store
// and closes it when the test ends.
func Run(t *testing.T, open func(testing.TB) Store) {
	promises := slices.Concat(runPromises, mutationPromises, eventPromises, inputPromises, workflowPromises,
		itemPromises, escalationPromises, ofTellers(noticePromises), listPromises, ofLookers(countPromises),
		ofLookers(searchPromises), credentialPromises, commitPromises, sweepPromises)
	for _, p := range promises {
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, open(t))
			p.test(w)
			w.check()
		})
	}
}

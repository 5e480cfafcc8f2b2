package operator

import "github.com/keep-run/keep/store"

// A Store is what an operator reads and writes. It composes what package store
// declares, and is wide because people decide about every noun.
type Store interface {
	store.Committer
	store.Workflows
	store.Checkpoints
	store.Grants
	store.Proposals
	store.Runs
	store.Events
	store.Inputs
	store.Lineage
	store.Mutations
	store.Spending
	store.Items
	store.Escalations
	store.Decisions
	store.Sweeper
	store.Gates
}

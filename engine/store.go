package engine

import "github.com/keep-run/keep/store"

// A Store keeps everything that must survive the process. It composes what package store
// declares, and is wide because the engine works on every noun but credentials and notices.
type Store interface {
	store.Committer
	store.Workflows
	store.Grants
	store.Checkpoints
	store.Runs
	store.Events
	store.Topics
	store.Inputs
	store.Lineage
	store.Mutations
	store.Doubts
	store.Rivals
	store.Spending
	store.Items
	store.Escalations
	store.Gates
}

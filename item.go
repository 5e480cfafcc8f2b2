package keep

import "time"

// An ItemStatus is how far the work on an item came.
type ItemStatus string

const (
	ItemProcessing ItemStatus = "processing"      // a handler is at work, or was when the host died
	ItemDone       ItemStatus = "done"            // the handler completed
	ItemFailed     ItemStatus = "failed"          // the handler did not complete; it will run again
	ItemSkipped    ItemStatus = "skipped"         // a person decided to leave it
	ItemAttention  ItemStatus = "needs_attention" // a person must decide
)

// ItemStatuses returns every status.
func ItemStatuses() []ItemStatus {
	return []ItemStatus{ItemProcessing, ItemDone, ItemFailed, ItemSkipped, ItemAttention}
}

// An Item is one unit of work of a job. Items belong to the workflow, not to a
// version of it.
type Item struct {
	Workflow  WorkflowName
	ID        string
	Title     string
	Status    ItemStatus
	Attempt   int // from 1; rises only when a person asks to reprocess
	Rev       int // see Run.Rev
	CreatedAt time.Time
	UpdatedAt time.Time
}

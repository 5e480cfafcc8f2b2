package operator

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/law/pin"
)

// settleTool records the answer to a question about a tool that its MCP server changed. Approved
// is what the question shows, and nothing that the server made of it since.
func (o *Operator) settleTool(ctx context.Context, q keep.Escalation, d keep.Decision) error {
	d.At = o.now()
	changes := []keep.Change{keep.CloseEscalation{ID: q.ID, Decision: &d}}
	if d.Action == keep.Approve {
		server := q.Connection
		tool := q.Title[len(server)+1:]
		raw, err := o.store.KV(ctx, q.Workflow, pin.Pins(pin.Listed, server), tool)
		if err != nil {
			return err
		}
		var listed *pin.Pin
		if err := json.Unmarshal(raw, &listed); raw != nil && err != nil {
			return fmt.Errorf("the pin of %s: %w", q.Title, err)
		}
		accepted, err := pin.Accept(listed, q.PayloadHash, d.By, d.At)
		if err != nil {
			return &ActionError{q.ID, d.Action, err.Error()}
		}
		at, key := pin.EntryOf(pin.Listed, server, tool)
		if accepted.Entry, err = o.store.KV(ctx, q.Workflow, at, key); err != nil {
			return err
		}
		changes = append(changes, pin.Put(pin.Agreed, server, tool, accepted)...)
	}
	return o.decided(ctx, q.Workflow, d.At, changes...)
}

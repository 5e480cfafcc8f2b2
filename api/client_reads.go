package api

import (
	"context"
	"net/http"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/idempotency"
)

// read asks for what is at a path.
func read[T any](ctx context.Context, c *Client, query any, path ...string) (T, error) {
	return ask[T](ctx, c, call{method: http.MethodGet, path: path, query: query})
}

// readAll is read of a list that comes whole.
func readAll[T any](ctx context.Context, c *Client, query any, path ...string) ([]T, error) {
	p, err := read[Page[T]](ctx, c, query, path...)
	return p.Items, err
}

// queries are the fields of several queries.
type queries []any

// inWorkflow is a query about one workflow; empty: about all.
type inWorkflow struct {
	Workflow keep.WorkflowName `query:"workflow"`
}

// Status returns what needs a person, what fails, and what is late.
func (c *Client) Status(ctx context.Context) (Status, error) {
	return read[Status](ctx, c, nil, "status")
}

// Runs returns a page of runs.
func (c *Client) Runs(ctx context.Context, f RunQuery, p Paging) (Page[Run], error) {
	return read[Page[Run]](ctx, c, queries{f, p}, "runs")
}

// Run returns one run.
func (c *Client) Run(ctx context.Context, id keep.RunID) (Run, error) {
	return read[Run](ctx, c, nil, "runs", string(id))
}

// Logs returns what a run logged, oldest first.
func (c *Client) Logs(ctx context.Context, id keep.RunID) ([]LogLine, error) {
	return read[[]LogLine](ctx, c, nil, "runs", string(id), "logs")
}

// Mutations returns a page of the ledger.
func (c *Client) Mutations(ctx context.Context, f MutationQuery, p Paging) (Page[Mutation], error) {
	return read[Page[Mutation]](ctx, c, queries{f, p}, "mutations")
}

// Mutation returns one record with its history.
func (c *Client) Mutation(ctx context.Context, key keep.MutationKey) (Mutation, error) {
	return read[Mutation](ctx, c, nil, "mutations", string(key))
}

// Inputs returns a page of inputs.
func (c *Client) Inputs(ctx context.Context, f InputQuery, p Paging) (Page[Input], error) {
	return read[Page[Input]](ctx, c, queries{f, p}, "inputs")
}

// Input returns one input.
func (c *Client) Input(ctx context.Context, id keep.InputID) (Input, error) {
	return read[Input](ctx, c, nil, "inputs", string(id))
}

// Items returns a page of items.
func (c *Client) Items(ctx context.Context, f ItemQuery, p Paging) (Page[Item], error) {
	return read[Page[Item]](ctx, c, queries{f, p}, "items")
}

// Item returns one item.
func (c *Client) Item(ctx context.Context, w keep.WorkflowName, id string) (Item, error) {
	return read[Item](ctx, c, nil, "workflows", string(w), "items", id)
}

// Escalations returns a page of questions with their answers.
func (c *Client) Escalations(ctx context.Context, f EscalationQuery, p Paging) (Page[Answered], error) {
	return read[Page[Answered]](ctx, c, queries{f, p}, "escalations")
}

// Escalation returns one question with its answer.
func (c *Client) Escalation(ctx context.Context, id keep.EscalationID) (Answered, error) {
	return read[Answered](ctx, c, nil, "escalations", string(id))
}

// Notices returns who was notified of a question.
func (c *Client) Notices(ctx context.Context, id keep.EscalationID) ([]Notice, error) {
	return readAll[Notice](ctx, c, nil, "escalations", string(id), "notices")
}

// Workflows returns every workflow, by name.
func (c *Client) Workflows(ctx context.Context) ([]Workflow, error) {
	return readAll[Workflow](ctx, c, nil, "workflows")
}

// Workflow returns one workflow.
func (c *Client) Workflow(ctx context.Context, w keep.WorkflowName) (Workflow, error) {
	return read[Workflow](ctx, c, nil, "workflows", string(w))
}

// WorkflowSource returns one workflow with the files of the version that is current.
func (c *Client) WorkflowSource(ctx context.Context, w keep.WorkflowName) (Workflow, error) {
	return read[Workflow](ctx, c, struct {
		Source bool `query:"source"`
	}{true}, "workflows", string(w))
}

// Versions returns the versions of a workflow, newest first.
func (c *Client) Versions(ctx context.Context, w keep.WorkflowName) ([]Version, error) {
	return readAll[Version](ctx, c, nil, "workflows", string(w), "versions")
}

// Topics returns the counts of the topics of a workflow, or of all.
func (c *Client) Topics(ctx context.Context, w keep.WorkflowName) ([]Topic, error) {
	return readAll[Topic](ctx, c, inWorkflow{w}, "topics")
}

// Topic returns one topic with the events that wait longest.
func (c *Client) Topic(ctx context.Context, w keep.WorkflowName, t keep.TopicName) (TopicShown, error) {
	return read[TopicShown](ctx, c, nil, "workflows", string(w), "topics", string(t))
}

// Events returns a page of the events of a workflow, or of all.
func (c *Client) Events(ctx context.Context, w keep.WorkflowName, f EventQuery, p Paging) (Page[Event], error) {
	return read[Page[Event]](ctx, c, queries{inWorkflow{w}, f, p}, "topics", "events")
}

// Event returns one event.
func (c *Client) Event(ctx context.Context, w keep.WorkflowName, t keep.TopicName, id keep.MessageID) (Event, error) {
	return read[Event](ctx, c, nil, "workflows", string(w), "topics", string(t), "events", string(id))
}

// Hosts returns the processes that share the database.
func (c *Client) Hosts(ctx context.Context) ([]Host, error) {
	return readAll[Host](ctx, c, nil, "hosts")
}

// Hooks returns the hooks with what came to them, sorted by name.
func (c *Client) Hooks(ctx context.Context) ([]Hook, error) {
	return readAll[Hook](ctx, c, nil, "hooks")
}

// Host returns the host of that id or name.
func (c *Client) Host(ctx context.Context, name string) (Host, error) {
	return read[Host](ctx, c, nil, "hosts", name)
}

// Keys returns a page of idempotency keys.
func (c *Client) Keys(ctx context.Context, f KeyQuery, p Paging) (Page[idempotency.View], error) {
	return read[Page[idempotency.View]](ctx, c, queries{f, KeyPaging{p.Limit, p.Cursor}}, "keys")
}

// Key returns one idempotency key with its answer.
func (c *Client) Key(ctx context.Context, reference string) (idempotency.View, error) {
	return read[idempotency.View](ctx, c, nil, "keys", reference)
}

// Identity returns whose requests those of the client are, and what time it is there.
func (c *Client) Identity(ctx context.Context) (Identity, error) {
	return read[Identity](ctx, c, nil, "whoami")
}

// Tokens returns what is known of all tokens.
func (c *Client) Tokens(ctx context.Context) ([]Token, error) {
	return readAll[Token](ctx, c, nil, "tokens")
}

// Audit returns a page of what people did, newest first.
func (c *Client) Audit(ctx context.Context, f AuditQuery, p Paging) (Page[AuditEntry], error) {
	return read[Page[AuditEntry]](ctx, c, queries{f, KeyPaging{p.Limit, p.Cursor}}, "audit")
}

// Grants returns what each workflow may do, by workflow.
func (c *Client) Grants(ctx context.Context) ([]Grant, error) {
	return readAll[Grant](ctx, c, nil, "grants")
}

// Grant returns what a workflow may do, with what it might before.
func (c *Client) Grant(ctx context.Context, w keep.WorkflowName) (GrantDetail, error) {
	return read[GrantDetail](ctx, c, nil, "workflows", string(w), "grant")
}

// Budgets returns the budgets, by name.
func (c *Client) Budgets(ctx context.Context) ([]Budget, error) {
	return readAll[Budget](ctx, c, nil, "budgets")
}

// Budget returns a budget with what counts in it.
func (c *Client) Budget(ctx context.Context, name string) (BudgetDetail, error) {
	return read[BudgetDetail](ctx, c, nil, "budgets", name)
}

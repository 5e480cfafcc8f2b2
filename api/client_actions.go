package api

import (
	"context"
	"crypto/rand"
	"net/http"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/idempotency"
)

// act asks for a change.
func act[T any](ctx context.Context, c *Client, body any, path ...string) (T, error) {
	return ask[T](ctx, c, call{method: http.MethodPost, path: path, body: body})
}

// Decide answers a question.
func (c *Client) Decide(ctx context.Context, id keep.EscalationID, d DecisionRequest) (Answered, error) {
	return act[Answered](ctx, c, d, "escalations", string(id), "decision")
}

// named is the body of a request about things that have ids.
func named[ID ~string](ids []ID, note string) map[string]any {
	return withNote(map[string]any{"ids": ids}, note)
}

// withNote adds a note to a body, if there is one: a host of before takes none of some requests.
func withNote(body map[string]any, note string) map[string]any {
	if note != "" {
		body["note"] = note
	}
	return body
}

// SkipInputs leaves inputs undone, at most 1000: all of them exist, or nothing is
// done.
func (c *Client) SkipInputs(ctx context.Context, ids []keep.InputID, note string) ([]Skipped, error) {
	p, err := act[Page[Skipped]](ctx, c, named(ids, note), "inputs", "skip")
	return p.Items, err
}

// SkipEvents leaves events of a topic undone, at most 1000.
func (c *Client) SkipEvents(ctx context.Context, w keep.WorkflowName, t keep.TopicName, ids []keep.MessageID, note string) (Skipped, error) {
	return act[Skipped](ctx, c, named(ids, note), "workflows", string(w), "topics", string(t), "skip")
}

// An ItemsRequest names items of a workflow, at most 1000, to skip, to reprocess or to undo the skip of.
type ItemsRequest struct {
	IDs     []string `json:"ids" minItems:"1" maxItems:"1000"`
	Note    string   `json:"note,omitempty" maxLength:"4000"`
	Preview bool     `json:"preview,omitempty" doc:"only say what would be done"`
	Confirm bool     `json:"confirm,omitempty" doc:"needed to reprocess, which sends again"`

	// Attempts keep a request that is late, or repeated, from taking what an item became meanwhile.
	Attempts []int `json:"attempts,omitempty" minItems:"1" maxItems:"1000" doc:"that were shown, one of each of ids: an item that is at another one is refused"`
}

// DoItems skips or reprocesses items, or undoes their skip: all of them exist, or nothing is
// done. The action is keep.Skip, keep.Reprocess or keep.Unskip.
func (c *Client) DoItems(ctx context.Context, w keep.WorkflowName, a keep.Action, in ItemsRequest) ([]ItemDone, error) {
	p, err := act[Page[ItemDone]](ctx, c, in, "workflows", string(w), "items", string(a))
	return p.Items, err
}

// Pause lets the current call of a workflow finish, and then nothing begin. The note says why.
func (c *Client) Pause(ctx context.Context, w keep.WorkflowName, note string) (Workflow, error) {
	var body any
	if note != "" {
		body = Pause{Note: note}
	}
	return act[Workflow](ctx, c, body, "workflows", string(w), "pause")
}

// PauseRunning is Pause of a workflow that is not paused, else keep.ErrStale.
func (c *Client) PauseRunning(ctx context.Context, w keep.WorkflowName, note string) (Workflow, error) {
	return act[Workflow](ctx, c, Pause{Note: note, IfRunning: true}, "workflows", string(w), "pause")
}

// Resume lets a paused workflow continue, as in says.
func (c *Client) Resume(ctx context.Context, w keep.WorkflowName, in Resume) (Workflow, error) {
	var body any
	if in != (Resume{}) {
		body = in
	}
	return act[Workflow](ctx, c, body, "workflows", string(w), "resume")
}

// Trigger asks for a run of a producer or a job; an empty handler is the only one. The note says why.
func (c *Client) Trigger(ctx context.Context, w keep.WorkflowName, h keep.HandlerName, note string) (Workflow, error) {
	body := map[string]string{"handler": string(h)}
	if note != "" {
		body["note"] = note
	}
	return act[Workflow](ctx, c, body, "workflows", string(w), "trigger")
}

// Publish adds an event to a topic. created is false if the topic has its message id
// already; the event then stays as it is. An event without an id gets one here, so that the
// request may be repeated, whatever became of it.
func (c *Client) Publish(ctx context.Context, w keep.WorkflowName, t keep.TopicName, p PublishRequest) (ev Event, created bool, err error) {
	var status int
	own := p.MessageID == ""
	if own {
		p.MessageID = keep.MessageID(rand.Text())
	}
	ev, err = ask[Event](ctx, c, call{method: http.MethodPost, path: []string{"workflows", string(w), "topics", string(t), "events"}, body: p, status: &status})
	return ev, err == nil && own || status == http.StatusCreated, err
}

// Deploy makes a script current. replaced is the version that it replaces; empty:
// there is none yet. If there is another one by now, the error is keep.ErrStale.
func (c *Client) Deploy(ctx context.Context, w keep.WorkflowName, s Script, replaced string) (Deployed, error) {
	header := http.Header{"If-None-Match": {"*"}}
	if replaced != "" {
		header = http.Header{"If-Match": {etag(replaced)}}
	}
	return ask[Deployed](ctx, c, call{method: http.MethodPut, path: []string{"workflows", string(w)}, body: s, header: header})
}

// Propose stores a script as a version that waits for a person. Waiting is nil if the script
// is current already. If another version than p.Over is current by now, the error is keep.ErrStale.
func (c *Client) Propose(ctx context.Context, w keep.WorkflowName, p NewProposal) (ProposalTaken, error) {
	return ask[ProposalTaken](ctx, c, call{method: http.MethodPut, path: []string{"workflows", string(w), "proposal"}, body: p})
}

// ProposalTaken is what became of a script that was proposed.
type ProposalTaken struct {
	Version *string   `json:"version"` // that is current; null: the workflow is new
	Waiting *Proposed `json:"waiting"` // null: the script is current
}

// Deployed is the workflow after a deploy, or what of it is known while a version waits.
type Deployed struct {
	Workflow           // of one that is new and waits: its name
	Waiting  *Proposed `json:"waiting"` // null: the script is current
}

// GiveGrant makes g what a workflow may do.
func (c *Client) GiveGrant(ctx context.Context, w keep.WorkflowName, g NewGrant) (GrantDetail, error) {
	return ask[GrantDetail](ctx, c, call{method: http.MethodPut, path: []string{"workflows", string(w), "grant"}, body: g})
}

// TakeGrant takes from a workflow all that it may do.
func (c *Client) TakeGrant(ctx context.Context, w keep.WorkflowName) (GrantDetail, error) {
	return ask[GrantDetail](ctx, c, call{method: http.MethodDelete, path: []string{"workflows", string(w), "grant"}})
}

// Drain makes a host release its workflows and take none, or ends that.
func (c *Client) Drain(ctx context.Context, host string, undo bool) (Host, error) {
	return act[Host](ctx, c, map[string]bool{"undo": undo}, "hosts", host, "drain")
}

// ResolveKey says what became of a request whose outcome is unknown.
func (c *Client) ResolveKey(ctx context.Context, reference string, r Resolution) (idempotency.View, error) {
	return act[idempotency.View](ctx, c, r, "keys", reference, "resolve")
}

// ForgetKey gives a key free; with seen only as View.Seen named it, else keep.ErrStale.
func (c *Client) ForgetKey(ctx context.Context, reference, seen string) (idempotency.View, error) {
	var body any
	if seen != "" {
		body = Forgetting{seen}
	}
	return act[idempotency.View](ctx, c, body, "keys", reference, "forget")
}

// AddToken makes a token of a secret that access.Make made.
func (c *Client) AddToken(ctx context.Context, t NewToken) (Token, error) {
	return act[Token](ctx, c, t, "tokens")
}

// RevokeToken ends a token.
func (c *Client) RevokeToken(ctx context.Context, id string) (Token, error) {
	return act[Token](ctx, c, nil, "tokens", id, "revoke")
}

package api

import (
	"context"
	"encoding/json"
	"net/http"

	"github.com/keep-run/keep"
)

// A Comparer says what another version would have done otherwise.
type Comparer interface {
	// Compare goes through the recorded runs of a version with another one. It sends
	// nothing and reads nothing from a service. A script that is wrong is a *ScriptError.
	Compare(ctx context.Context, w keep.WorkflowName, q CompareRequest) (Comparison, error)
}

// A CompareRequest names the version whose runs are gone through, and what they are gone
// through with.
type CompareRequest struct {
	From    string  `json:"from,omitempty" doc:"the version whose runs are gone through; empty: the current one"`
	Version string  `json:"version,omitempty" doc:"the other version; needed unless there is a script"`
	Script  *Script `json:"script,omitempty" doc:"a script that needs not be deployed, in the place of version"`
}

// A Comparison says what another version would have done otherwise with the runs of one.
type Comparison struct {
	Workflow  keep.WorkflowName  `json:"workflow"`
	From      string             `json:"from"` // empty: the workflow is new
	To        string             `json:"to"`   // "new": a script that was not deployed
	Impact    string             `json:"impact" enum:"safe,impactful,inconclusive"`
	Declared  []string           `json:"declared" doc:"what it declares differently that no run shows"`
	Runs      []ComparedRun      `json:"runs"` // those that differ first
	Inputs    []ComparedInput    `json:"inputs"`
	Mutations []ComparedMutation `json:"mutations"`
	Counts    map[string]int     `json:"counts"` // of runs, by change
	Whole     bool               `json:"whole" doc:"false: the time was over before all runs were gone through"`
	Older     bool               `json:"older" doc:"true: there are more runs, which were not asked for"`
}

// A ComparedRun is a run of the older version with what would have become of it.
type ComparedRun struct {
	Run     keep.RunID       `json:"run"`
	Input   *keep.InputID    `json:"input"`
	Handler keep.HandlerName `json:"handler"`
	At      Time             `json:"at"`
	Done    bool             `json:"done" doc:"its work is done, or may be: it counts in the impact"`
	Change  string           `json:"change" enum:"same,changed,missing,added,failed,inconclusive"`
	Why     string           `json:"why" doc:"what is not known"`
	Before  []ComparedEffect `json:"before"`
	After   []ComparedEffect `json:"after"`
}

// A ComparedEffect is one thing that a run did, or would have done.
type ComparedEffect struct {
	Phase string          `json:"phase"`
	What  string          `json:"what"`
	Value json.RawMessage `json:"value"`
}

// A ComparedInput is what a run that differs came from.
type ComparedInput struct {
	ID     keep.InputID `json:"id"`
	Source string       `json:"source"`
	Type   string       `json:"type"`
	Name   string       `json:"external_id"`
	Title  string       `json:"title"`
}

// A ComparedMutation is a call that would have been otherwise.
type ComparedMutation struct {
	Key    keep.MutationKey `json:"key"` // empty: none was made, or it is not kept
	Run    keep.RunID       `json:"run"`
	Tool   keep.ToolName    `json:"tool"`
	Title  string           `json:"title"`
	Change string           `json:"change" enum:"changed,missing,added"`
	Remedy string           `json:"remedy" enum:"nothing,redo,by hand"`
	How    string           `json:"how" doc:"the command that does it"`
}

// comparePath is posted to since a script is sent, and keeps no answer under an idempotency
// key: it only reads.
const comparePath = "/workflows/{workflow}/compare"

// compares registers what compares versions.
func (s *Server) compares() {
	check := func(in *compareInput) error {
		if in.Body.Version == "" && in.Body.Script == nil {
			return problemOf(http.StatusUnprocessableEntity, KindAmbiguous, "say what the runs are compared with: version, one of those that "+
				Prefix+"/workflows/"+segment(string(in.Workflow))+"/versions lists, or script")
		}
		return nil
	}
	shadow(s, comparePath, "compare-versions", "Say what another version would have done otherwise with the recorded runs of one; nothing is sent", check,
		func(ctx context.Context, r Replayer, in *compareInput) (Comparison, error) {
			return r.Compare(ctx, in.Workflow, in.Body)
		})
}

type compareInput struct {
	Workflow keep.WorkflowName `path:"workflow"`
	Body     CompareRequest
}

// Compare says what another version would have done otherwise.
func (c *Client) Compare(ctx context.Context, w keep.WorkflowName, q CompareRequest) (Comparison, error) {
	return act[Comparison](ctx, c, q, "workflows", string(w), "compare")
}

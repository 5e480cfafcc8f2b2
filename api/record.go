package api

import (
	"context"
	"fmt"
	"net/http"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/api/access"
)

// A RecordRequest says how a test is made of a run.
type RecordRequest struct {
	Script string `json:"script,omitempty" doc:"file that the test names as its script; empty: the one beside it"`
	Plain  bool   `json:"plain,omitempty" doc:"leave addresses and what looks like a secret as they are"`
}

// A RecordedTest is a test that was made of a run, and passes on its version.
type RecordedTest struct {
	Run      keep.RunID        `json:"run"`
	Workflow keep.WorkflowName `json:"workflow"`
	Version  string            `json:"version"` // of the run
	Entry    string            `json:"entry" doc:"file of the script, in its project"`
	Text     string            `json:"text" doc:"a file of tests, in TOML"`
	Scrubbed []string          `json:"scrubbed" doc:"what was replaced, in words"`
	Loose    []string          `json:"loose" doc:"what is not compared, since it is another in each run"`

	// Checkpoint says that Text has values of a checkpoint.
	Checkpoint bool `json:"-"`
}

// A RecordError is why no test can be made of a run.
type RecordError struct{ Err error }

// Error says why.
func (e *RecordError) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *RecordError) Unwrap() error { return e.Err }

// records registers what makes tests of runs. It is posted to as a replay is.
func (s *Server) records() {
	shadow(s, recordPath, "record-test", "Make a test of a run: its events, reads, answers and what came of it; nothing is sent", anything, func(ctx context.Context, r Replayer, in *recordInput) (RecordedTest, error) {
		test, err := r.Record(ctx, in.Run, in.Body)
		if who, _ := access.From(ctx); err == nil && test.Checkpoint && !who.Role.Covers(access.Admin) {
			return test, problemOf(http.StatusForbidden, KindForbidden, fmt.Sprintf("%s has the role %s; the test of run %s has values of a checkpoint, which need %s",
				who.Name, who.Role, in.Run, access.Admin))
		}
		return test, err
	})
}

const recordPath = "/runs/{run}/test"

type recordInput struct {
	Run  keep.RunID `path:"run"`
	Body RecordRequest
}

// RecordTest makes a test of a run.
func (c *Client) RecordTest(ctx context.Context, run keep.RunID, q RecordRequest) (RecordedTest, error) {
	return act[RecordedTest](ctx, c, q, "runs", string(run), "test")
}

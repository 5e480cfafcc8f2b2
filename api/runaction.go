package api

import (
	"context"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/operator"
)

// A RunActor does what people decide about runs.
type RunActor interface {
	DoRun(ctx context.Context, id keep.RunID, d keep.Decision, preview bool) (operator.RunDone, error)
}

// A RunRequest cancels a run, or brings its next attempt or lookup forward.
type RunRequest struct {
	Note    string `json:"note,omitempty" maxLength:"4000"`
	Preview bool   `json:"preview,omitempty" doc:"only say what would be done"`
}

// A RunDone says what an action on a run caused, or would cause.
type RunDone struct {
	Run     keep.RunID      `json:"run"`
	Action  keep.Action     `json:"action" enum:"cancel,retry"`
	Preview bool            `json:"preview" doc:"nothing was done"`
	Effect  string          `json:"effect"`
	Skipped []SkippedEvents `json:"skipped"`
}

// SkippedEvents are events of a topic that are skipped.
type SkippedEvents struct {
	Topic keep.TopicName   `json:"topic"`
	IDs   []keep.MessageID `json:"ids"`
}

// doRun performs an action on a run.
func (s *Server) doRun(ctx context.Context, id keep.RunID, a keep.Action, in RunRequest) (RunDone, error) {
	done, err := s.cfg.Actor.DoRun(ctx, id, decision(ctx, a, in.Note), in.Preview)
	if err != nil {
		return RunDone{}, err
	}
	return RunDone{Run: id, Action: a, Preview: in.Preview, Effect: done.Effect, Skipped: each(done.Events, func(r keep.Reservation) SkippedEvents { return SkippedEvents{r.Topic, list(r.IDs)} })}, nil
}

func (s *Server) cancelRun(ctx context.Context, in *struct {
	ID   keep.RunID `path:"run"`
	Body RunRequest
}) (RunDone, error) {
	return s.doRun(ctx, in.ID, keep.Cancel, in.Body)
}

func (s *Server) retryRun(ctx context.Context, in *struct {
	ID   keep.RunID `path:"run"`
	Body RunRequest
}) (RunDone, error) {
	return s.doRun(ctx, in.ID, keep.Retry, in.Body)
}

// DoRun cancels a run before its call, or brings its next attempt or lookup forward. The
// action is keep.Cancel or keep.Retry.
func (c *Client) DoRun(ctx context.Context, id keep.RunID, a keep.Action, in RunRequest) (RunDone, error) {
	return act[RunDone](ctx, c, in, "runs", string(id), string(a))
}

package api

import (
	"context"
	"encoding/json"
	"net/http"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/api/access"
)

// A Replayer goes through runs again, with what they saw.
type Replayer interface {
	// Replay goes through a run with the script that the request names. It sends nothing
	// and reads nothing from a service. A script that is wrong is a *ScriptError.
	Replay(ctx context.Context, run keep.RunID, q ReplayRequest) (Replay, error)

	// Record makes a test of a run. It sends nothing and reads nothing from a service. Why
	// none can be made is a *RecordError.
	Record(ctx context.Context, run keep.RunID, q RecordRequest) (RecordedTest, error)

	Comparer
}

// A ReplayRequest names the script that a run is gone through with: by default, that of its
// own version.
type ReplayRequest struct {
	Script  *Script `json:"script,omitempty" doc:"a script that needs not be deployed"`
	Version string  `json:"version,omitempty" doc:"another version of the workflow, or current"`
}

// A Replay is what came of going through a run again.
type Replay struct {
	Run         keep.RunID   `json:"run"`
	Version     string       `json:"version"` // of the run
	Verdict     string       `json:"verdict" enum:"equal,different,inconclusive"`
	Phases      []string     `json:"phases"` // that were gone through
	Differences []Difference `json:"differences"`
	Missing     []Missing    `json:"missing"`
}

// A Difference is what the script does otherwise than the run did.
type Difference struct {
	Phase    string          `json:"phase"`
	What     string          `json:"what" enum:"order_key,reservations,data,call,identity,payload,publishes,made_ids,items,checkpoint,error"`
	Recorded json.RawMessage `json:"recorded"` // null: nothing, or it is not kept
	Now      json.RawMessage `json:"now"`      // null: nothing
}

// A Missing is what would have to be known to continue a replay, which ended there.
type Missing struct {
	Phase  string          `json:"phase"`
	Tool   string          `json:"tool"`
	Params json.RawMessage `json:"params"`
	Why    string          `json:"why"`
}

// replayPath is posted to since a script is sent, and keeps no answer under an idempotency key:
// it only reads.
const replayPath = "/runs/{run}/replay"

// replays registers what goes through runs again.
func (s *Server) replays() {
	shadow(s, replayPath, "replay-run", "Go through a run again with what it saw, and say where a script differs; nothing is sent", anything,
		func(ctx context.Context, r Replayer, in *replayInput) (Replay, error) {
			return r.Replay(ctx, in.Run, in.Body)
		})
}

// anything is right.
func anything[I any](*I) error { return nil }

// shadow registers what goes through runs again. It is posted to, and changes nothing. Check says what is wrong with a request.
func shadow[I, O any](s *Server, path, id, summary string, check func(*I) error, f func(context.Context, Replayer, *I) (O, error)) {
	op := s.operation(http.MethodPost, path, id, summary, access.Author)
	op.MaxBodyBytes, op.Parameters = maxScript, nil
	register(s, op, func(ctx context.Context, in *I) (*out[O], error) {
		if err := check(in); err != nil {
			return nil, err
		}
		if s.cfg.Replayer == nil {
			return nil, problemOf(http.StatusNotImplemented, KindUnsupported, "this host replays no runs")
		}
		v, err := f(ctx, s.cfg.Replayer, in)
		if err != nil {
			return nil, s.problem(ctx, err)
		}
		return &out[O]{v}, nil
	})
}

type replayInput struct {
	Run  keep.RunID `path:"run"`
	Body ReplayRequest
}

// Replay goes through a run again.
func (c *Client) Replay(ctx context.Context, run keep.RunID, q ReplayRequest) (Replay, error) {
	return act[Replay](ctx, c, q, "runs", string(run), "replay")
}

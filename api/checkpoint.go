package api

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/api/access"
	"github.com/keep-run/keep/operator"
)

// A Checkpoint is how far a producer came: its ctx.kv. Scripts may keep anything there, so only admins see it.
type Checkpoint struct {
	Workflow keep.WorkflowName          `json:"workflow"`
	Handler  keep.HandlerName           `json:"handler"`
	Values   map[string]json.RawMessage `json:"values"`
}

// A CheckpointRequest changes one value of a checkpoint.
type CheckpointRequest struct {
	Handler keep.HandlerName `json:"handler" minLength:"1" doc:"a producer"`
	Key     string           `json:"key" minLength:"1" maxLength:"512"`
	Value   json.RawMessage  `json:"value,omitempty" doc:"any JSON; needed without delete"`
	Delete  bool             `json:"delete,omitempty" doc:"the key has no value any more"`
	Note    string           `json:"note,omitempty" maxLength:"4000" doc:"why, for the history of the workflow"`
	Preview bool             `json:"preview,omitempty" doc:"only say what would change"`
	Seen    string           `json:"seen,omitempty" doc:"of the value as it was shown: if it is another by now, nothing is changed"`
}

// A CheckpointChanged is what became, or would become, of one value of a checkpoint.
type CheckpointChanged struct {
	Workflow  keep.WorkflowName `json:"workflow"`
	Handler   keep.HandlerName  `json:"handler"`
	Key       string            `json:"key"`
	Was       json.RawMessage   `json:"was,omitempty" doc:"absent: it was not set"`
	Now       json.RawMessage   `json:"now,omitempty" doc:"absent: it is not set"`
	Publishes []keep.TopicName  `json:"publishes" doc:"topics to which the producer may publish what it then reads"`
	Preview   bool              `json:"preview" doc:"nothing was changed"`
	Seen      string            `json:"seen" doc:"names what was: with it a change is of this value, and of none that came since"`
}

// seenValue names a value of a checkpoint as it stands; nil: it is not set.
func seenValue(value json.RawMessage) string {
	if value == nil {
		return "none"
	}
	sum := sha256.Sum256(value)
	return base64.RawURLEncoding.EncodeToString(sum[:9])
}

// checkpoints registers what is about checkpoints of producers.
func (s *Server) checkpoints() {
	post(s, "/workflows/{workflow}/reset-checkpoint", "reset-checkpoint", "Let a producer forget how far it came", s.resetCheckpoint)
	as(s, access.Admin, http.MethodGet, "/workflows/{workflow}/checkpoints/{handler}", "get-checkpoint", "How far a producer came: all values of its ctx.kv",
		func(ctx context.Context, in *struct {
			WorkflowPath
			Handler keep.HandlerName `path:"handler"`
		}) (Checkpoint, error) {
			kept, err := s.checkpointOf(ctx, in.Workflow, in.Handler)
			if err != nil {
				return Checkpoint{}, err
			}
			all, err := s.cfg.Store.KVs(ctx, in.Workflow, kept)
			out := Checkpoint{in.Workflow, in.Handler, make(map[string]json.RawMessage, len(all))}
			for _, kv := range all {
				out.Values[kv.Key] = kv.Value
			}
			return out, err
		})
	as(s, access.Admin, http.MethodPost, "/workflows/{workflow}/set-checkpoint", "set-checkpoint", "Set or delete one value of a producer's checkpoint, or look what that would change", s.setCheckpoint)
}

// checkpointOf returns the name under which the checkpoint of a producer of the current version is kept.
func (s *Server) checkpointOf(ctx context.Context, name keep.WorkflowName, h keep.HandlerName) (keep.HandlerName, error) {
	w, err := s.cfg.Store.Workflow(ctx, name)
	if err != nil {
		return "", err
	}
	d, err := s.cfg.Store.Deployment(ctx, name, w.Version)
	if err != nil {
		return "", err
	}
	if def, ok := d.Definition.Handler(h); ok && def.Kind == keep.Producer {
		return keep.HandlerName(def.ItemsOf()), nil
	}
	return "", &keep.NotFoundError{What: "producer", ID: string(name) + "/" + string(h)}
}

func (s *Server) resetCheckpoint(ctx context.Context, in *struct {
	WorkflowPath
	Body struct {
		Handler keep.HandlerName `json:"handler" minLength:"1" doc:"a producer"`
		Note    string           `json:"note,omitempty" maxLength:"4000" doc:"why, for the history of the workflow"`
	}
}) (Workflow, error) {
	if err := s.cfg.Actor.ResetCheckpoint(ctx, in.Workflow, in.Body.Handler, decision(ctx, "", in.Body.Note)); err != nil {
		return Workflow{}, err
	}
	return ShowWorkflow(ctx, s.cfg.Store, in.Workflow)
}

func (s *Server) setCheckpoint(ctx context.Context, in *struct {
	WorkflowPath
	Body CheckpointRequest
}) (CheckpointChanged, error) {
	b := in.Body
	if b.Delete == (b.Value != nil) {
		return CheckpointChanged{}, problemOf(http.StatusUnprocessableEntity, KindBadCheckpoint, `give a value, or "delete": true`)
	}
	c, err := s.changeCheckpoint(ctx, in.Workflow, b)
	if e, ok := errors.AsType[*operator.CheckpointError](err); ok {
		err = problemOf(http.StatusUnprocessableEntity, KindBadCheckpoint, e.Error())
	}
	return CheckpointChanged{in.Workflow, b.Handler, b.Key, c.Was, c.Now, list(c.Publishes), b.Preview, seenValue(c.Was)}, err
}

// changeCheckpoint changes one value of a checkpoint, or says what that would change. If the caller says which value he saw, it is that one
// that is changed, or none: what the producer, or somebody else, set since stays.
func (s *Server) changeCheckpoint(ctx context.Context, w keep.WorkflowName, b CheckpointRequest) (operator.CheckpointChange, error) {
	d := decision(ctx, "", b.Note)
	if b.Seen == "" || b.Preview {
		return s.cfg.Actor.SetCheckpoint(ctx, w, b.Handler, b.Key, b.Value, d, b.Preview)
	}
	now, err := s.cfg.Actor.SetCheckpoint(ctx, w, b.Handler, b.Key, b.Value, d, true)
	if err == nil && seenValue(now.Was) != b.Seen {
		err = fmt.Errorf("%.80q of %s is not as it was shown: %w", b.Key, b.Handler, keep.ErrStale)
	}
	if err == nil {
		err = s.cfg.Actor.SetShownCheckpoint(ctx, w, b.Handler, b.Key, now.Was, b.Value, d)
	}
	return now, err
}

// Checkpoint returns how far a producer came.
func (c *Client) Checkpoint(ctx context.Context, w keep.WorkflowName, h keep.HandlerName) (Checkpoint, error) {
	return read[Checkpoint](ctx, c, nil, "workflows", string(w), "checkpoints", string(h))
}

// SetCheckpoint changes one value of a checkpoint, or says what that would change.
func (c *Client) SetCheckpoint(ctx context.Context, w keep.WorkflowName, in CheckpointRequest) (CheckpointChanged, error) {
	return act[CheckpointChanged](ctx, c, in, "workflows", string(w), "set-checkpoint")
}

// ResetCheckpoint lets a producer forget how far it came.
func (c *Client) ResetCheckpoint(ctx context.Context, w keep.WorkflowName, h keep.HandlerName, note string) (Workflow, error) {
	return act[Workflow](ctx, c, map[string]string{"handler": string(h), "note": note}, "workflows", string(w), "reset-checkpoint")
}

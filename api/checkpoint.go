package api

import (
	"context"
	"encoding/json"
	"errors"
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
	Note    string           `json:"note,omitempty" maxLength:"4000" doc:"why, for the log of the last run of the producer"`
	Preview bool             `json:"preview,omitempty" doc:"only say what would change"`
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
		Note    string           `json:"note,omitempty" maxLength:"4000" doc:"why, for the log of the last run of the producer"`
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
	c, err := s.cfg.Actor.SetCheckpoint(ctx, in.Workflow, b.Handler, b.Key, b.Value, decision(ctx, "", b.Note), b.Preview)
	if e, ok := errors.AsType[*operator.CheckpointError](err); ok {
		err = problemOf(http.StatusUnprocessableEntity, KindBadCheckpoint, e.Error())
	}
	return CheckpointChanged{in.Workflow, b.Handler, b.Key, c.Was, c.Now, list(c.Publishes), b.Preview}, err
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

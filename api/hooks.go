package api

import (
	"context"

	"github.com/keep-run/keep"
)

// A Hook is where a service delivers events, and what came.
type Hook struct {
	Name          string            `json:"name"`
	URL           string            `json:"url" doc:"where the service sends to"`
	Workflow      keep.WorkflowName `json:"workflow"`
	Topic         keep.TopicName    `json:"topic"`
	Verify        string            `json:"verify" doc:"how a delivery is known to be the service's"`
	Accepted      int64             `json:"accepted" doc:"deliveries that became an event"`
	Repeated      int64             `json:"repeated" doc:"deliveries of an event that was there"`
	Refused       int64             `json:"refused"`
	LastAt        *Time             `json:"last_at" doc:"of the last that was accepted or repeated"`
	LastRefusedAt *Time             `json:"last_refused_at"`
	LastRefusal   *string           `json:"last_refusal" doc:"why it was refused"`
}

// Counted returns h with what came to it.
func (h Hook) Counted(c keep.HookCount) Hook {
	h.Accepted, h.Repeated, h.Refused = c.Accepted, c.Repeated, c.Refused
	h.LastAt, h.LastRefusedAt, h.LastRefusal = timeOf(c.LastAt), timeOf(c.LastRefusedAt), orNull(c.LastRefusal)
	return h
}

// hooks registers what is about hooks.
func (s *Server) hooks() {
	get(s, "/hooks", "list-hooks", "Where services deliver events, and what came; sorted by name",
		func(ctx context.Context, _ *struct{}) (Page[Hook], error) {
			if s.cfg.Hooks == nil {
				return Page[Hook]{Items: []Hook{}}, nil
			}
			all, err := s.cfg.Hooks(ctx)
			return paged(all, "", err)
		})
}

package api

import (
	"context"
	"errors"
	"net/http"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/store"
	"github.com/keep-run/keep/view"
)

// A FullID is the whole id of a record.
type FullID struct {
	ID string `json:"id"`
}

// ShowFullID returns the id of a noun that a person named by a part of it, as view.FullID does.
func ShowFullID(ctx context.Context, s store.Reader, n keep.Noun, given string) (FullID, error) {
	id, err := view.FullID(ctx, s, n, given)
	return FullID{id}, err
}

func (s *Server) ids() {
	get(s, "/workflows/{workflow}/ids", "fullName", "The whole id of an event or an item of a workflow", func(ctx context.Context, in *struct {
		Workflow keep.WorkflowName `path:"workflow"`
		Topic    keep.TopicName    `query:"topic" doc:"of the event; without it an item is meant"`
		Name     string            `query:"name" required:"true" minLength:"1" maxLength:"1024" doc:"six or more characters that it begins or ends with, or the whole"`
	}) (FullID, error) {
		id, err := view.FullName(ctx, s.cfg.Store, in.Workflow, in.Topic, in.Name)
		return FullID{id}, ambiguous(err)
	})
	get(s, "/ids/{noun}", "fullID", "The whole id of a run, mutation, input or question", func(ctx context.Context, in *struct {
		Noun keep.Noun `path:"noun" enum:"run,mutation,input,question"`
		Name string    `query:"name" required:"true" minLength:"1" maxLength:"1024" doc:"six or more characters that it begins or ends with after its prefix, or the whole, or last"`
	}) (FullID, error) {
		id, err := ShowFullID(ctx, s.cfg.Store, in.Noun, in.Name)
		return id, ambiguous(err)
	})
}

// ambiguous makes a problem of an id that several things have.
func ambiguous(err error) error {
	if several, ok := errors.AsType[*view.AmbiguousError](err); ok {
		return problemOf(http.StatusUnprocessableEntity, KindAmbiguous, several.Error())
	}
	return err
}

// FullID returns the id of the record of a noun that a person named.
func (c *Client) FullID(ctx context.Context, n keep.Noun, name string) (string, error) {
	full, err := read[FullID](ctx, c, struct {
		Name string `query:"name"`
	}{name}, "ids", string(n))
	return full.ID, err
}

// FullName returns the id of an event of a topic, or of an item if topic is empty, that a person named.
func (c *Client) FullName(ctx context.Context, w keep.WorkflowName, topic keep.TopicName, name string) (string, error) {
	full, err := read[FullID](ctx, c, struct {
		Topic keep.TopicName `query:"topic"`
		Name  string         `query:"name"`
	}{topic, name}, "workflows", string(w), "ids")
	return full.ID, err
}

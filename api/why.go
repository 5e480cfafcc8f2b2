package api

import (
	"context"
	"strings"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/store"
	"github.com/keep-run/keep/view"
)

// A Why is what is known of one thing: what it is, what it waits for and what came of it.
// Of each kind of what belongs to it, it names the newest 20.
type Why struct {
	ID        string              `json:"id"`
	Is        view.Nature         `json:"is" enum:"run,mutation,event,input,item,question,version,proposal"`
	Workflow  keep.WorkflowName   `json:"workflow"`
	Sentence  string              `json:"sentence"`
	WaitsFor  *string             `json:"waits_for"` // a sentence; null: nothing
	Became    []string            `json:"became"`    // sentences, oldest first
	Inputs    []keep.InputID      `json:"inputs"`
	Events    []keep.EventRef     `json:"events"`
	Runs      []keep.RunID        `json:"runs"`
	Mutations []keep.MutationKey  `json:"mutations"`
	Questions []keep.EscalationID `json:"questions"`
}

// ShowWhy returns what is known of what an id names, as view.Why does. What waits says so if no host
// can execute its workflow.
func ShowWhy(ctx context.Context, s store.Reader, by view.Executors, id string) (Why, error) {
	v, err := view.Why(ctx, s, id)
	if err != nil {
		return Why{}, err
	}
	if v.Wait != "" || v.Is == view.IsVersion {
		missing, err := by.MissingOf(ctx, s, v.Workflow)
		if err != nil {
			return Why{}, err
		}
		for _, m := range missing {
			if v.Is != view.IsVersion || v.ID == string(m.Workflow)+"@"+m.Version.String() {
				v.Wait = strings.TrimPrefix(v.Wait+"; "+m.Sentence(), "; ")
			}
		}
	}
	return Why{
		ID: v.ID, Is: v.Is, Workflow: v.Workflow, Sentence: v.Sentence, WaitsFor: orNull(v.Wait), Became: list(v.Became),
		Inputs: list(v.Inputs), Events: list(v.Events), Runs: list(v.Runs), Mutations: list(v.Mutations), Questions: list(v.Questions),
	}, nil
}

func (s *Server) why() {
	get(s, "/why", "why", "What a thing is, what it waits for and what came of it", func(ctx context.Context, in *struct {
		ID string `query:"id" required:"true" minLength:"1" maxLength:"1024" doc:"of a run, mutation, event, input, item or question, or six or more characters that one which the host made begins or ends with, or WORKFLOW@VERSION, or the id of a repair"`
	}) (Why, error) {
		w, err := ShowWhy(ctx, s.cfg.Store, s.cfg.Executors, in.ID)
		return w, ambiguous(err)
	})
}

// Why returns what is known of what an id names.
func (c *Client) Why(ctx context.Context, id string) (Why, error) {
	return read[Why](ctx, c, struct {
		ID string `query:"id"`
	}{id}, "why")
}

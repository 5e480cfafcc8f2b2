package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/api/access"
	"github.com/keep-run/keep/operator"
)

// A GrantActor does what people decide about grants.
type GrantActor interface {
	SetGrant(ctx context.Context, w keep.WorkflowName, tools []keep.GrantedTool, by operator.Giver, over *int) (keep.Grant, error)
	TakeGrant(ctx context.Context, w keep.WorkflowName, by operator.Giver, over *int) (keep.Grant, error)
}

// A Grant is what a workflow may do.
type Grant struct {
	ID       string            `json:"id"`
	Workflow keep.WorkflowName `json:"workflow"`
	Version  string            `json:"version" doc:"of the workflow, current when the grant was made"`
	Tools    []GrantedTool     `json:"tools"`
	GivenBy  string            `json:"given_by"`
	From     string            `json:"from" doc:"by which way it was given or taken: such as cli, keep.toml or api"`
	GivenAt  Time              `json:"given_at"`
	TakenBy  *string           `json:"taken_by" doc:"who took all away; the workflow may then call nothing"`
	TakenAt  *Time             `json:"taken_at"`
}

// A GrantedTool is a tool that a workflow may call, or several.
type GrantedTool struct {
	Tool    string  `json:"tool" minLength:"3" maxLength:"200" doc:"full name, or such as bank.* for all of a connection"`
	When    *string `json:"when" required:"false" maxLength:"2000" doc:"condition (CEL) over params: the call is allowed only if it is true"`
	Approve *string `json:"approve" required:"false" maxLength:"2000" doc:"condition (CEL) over params: a person must agree if it is true; or always"`
}

// GrantDetail is a grant with those before it.
type GrantDetail struct {
	Grant
	History []Grant `json:"history" doc:"every grant of the workflow, newest first"`
}

// GrantOf returns the object of g.
func GrantOf(g keep.Grant) Grant {
	out := Grant{ID: g.ID(), Workflow: g.Workflow, Version: g.Version.String(), Tools: []GrantedTool{}, GivenBy: g.GivenBy, From: g.From,
		GivenAt: Time(g.GivenAt), TakenBy: orNull(g.TakenBy), TakenAt: timeOf(g.TakenAt)}
	for _, t := range g.Tools {
		out.Tools = append(out.Tools, GrantedTool{t.Tool, orNull(t.When), orNull(t.Approve)})
	}
	return out
}

// Granted returns what the tools of a grant are to the rest of Keep.
func Granted(tools []GrantedTool) []keep.GrantedTool {
	out := make([]keep.GrantedTool, len(tools))
	for i, t := range tools {
		out[i].Tool = t.Tool
		if t.When != nil {
			out[i].When = *t.When
		}
		if t.Approve != nil {
			out[i].Approve = *t.Approve
		}
	}
	return out
}

// A NewGrant is all that a workflow may do.
type NewGrant struct {
	Tools []GrantedTool `json:"tools" maxItems:"500"`
	Over  *string       `json:"over,omitempty" doc:"id of the grant that is replaced; empty or left out: the workflow has none. If another one holds by now, nothing changes: 409"`
}

// grants registers what is about grants.
func (s *Server) grants() {
	get(s, "/grants", "list-grants", "What each workflow may do, by workflow; one that was never given a grant may call every tool, and is not listed",
		func(ctx context.Context, _ *struct{}) (Page[Grant], error) {
			all, err := s.cfg.Store.Grants(ctx)
			return paged(each(all, GrantOf), "", err)
		})
	get(s, "/workflows/{workflow}/grant", "get-grant", "What a workflow may do, and what it might before",
		func(ctx context.Context, in *WorkflowPath) (GrantDetail, error) { return s.grantOf(ctx, in.Workflow) })
	as(s, access.Admin, http.MethodPut, "/workflows/{workflow}/grant", "give-grant", "Give a workflow a grant, in the place of the one that it has",
		func(ctx context.Context, in *struct {
			WorkflowPath
			Body NewGrant
		}) (GrantDetail, error) {
			err := s.giveGrant(ctx, in.Workflow, in.Body)
			if e, ok := errors.AsType[*operator.GrantError](err); ok {
				return GrantDetail{}, problemOf(http.StatusUnprocessableEntity, KindBadGrant, e.Error())
			}
			if err != nil {
				return GrantDetail{}, err
			}
			return s.grantOf(ctx, in.Workflow)
		})
	as(s, access.Admin, http.MethodDelete, "/workflows/{workflow}/grant", "take-grant", "Take all from a workflow that it may do",
		func(ctx context.Context, in *WorkflowPath) (GrantDetail, error) {
			if _, err := s.cfg.Actor.TakeGrant(ctx, in.Workflow, giver(ctx), nil); err != nil {
				return GrantDetail{}, err
			}
			return s.grantOf(ctx, in.Workflow)
		})
}

// giver returns the caller as who gives.
func giver(ctx context.Context) operator.Giver {
	d := decision(ctx, "", "")
	return operator.Giver{By: d.By, From: d.From}
}

// giveGrant gives a workflow a grant in the place of the one that its caller saw: none, if it names none.
func (s *Server) giveGrant(ctx context.Context, w keep.WorkflowName, g NewGrant) error {
	now, err := s.cfg.Store.Grant(ctx, w)
	if err != nil && !errors.Is(err, keep.ErrNotFound) {
		return err
	}
	holds, over := "", ""
	if now.N > 0 {
		holds = now.ID()
	}
	if g.Over != nil {
		over = *g.Over
	}
	switch {
	case over != holds && holds == "":
		return problemOf(http.StatusConflict, KindStale, fmt.Sprintf("%s has no grant by now; to give it one, leave out over", w))
	case over != holds:
		return problemOf(http.StatusConflict, KindStale, fmt.Sprintf(`%s has the grant %s; to replace it, say "over": "%[2]s"`, w, holds))
	}
	tools := Granted(g.Tools)
	if err := s.grantable(w, tools, now); err != nil {
		return err
	}
	_, err = s.cfg.Actor.SetGrant(ctx, w, tools, giver(ctx), &now.N)
	return err
}

// grantable refuses tools that cannot be granted so. What the grant before has stays: its connection may be gone.
func (s *Server) grantable(w keep.WorkflowName, tools []keep.GrantedTool, before keep.Grant) error {
	for _, t := range tools {
		if s.cfg.Ungrantable == nil || slices.Contains(before.Tools, t) {
			continue
		}
		if why := s.cfg.Ungrantable(t); why != "" {
			return &operator.GrantError{Workflow: w, Err: errors.New(why)}
		}
	}
	return nil
}

// grantOf returns the grant of a workflow with those before it.
func (s *Server) grantOf(ctx context.Context, w keep.WorkflowName) (GrantDetail, error) {
	all, err := s.cfg.Store.GrantsBefore(ctx, w)
	if err != nil {
		return GrantDetail{}, err
	}
	if len(all) == 0 {
		return GrantDetail{}, &keep.NotFoundError{What: "grant of workflow", ID: string(w)}
	}
	return GrantDetail{GrantOf(all[0]), each(all, GrantOf)}, nil
}

package mcp

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/api"
	"github.com/keep-run/keep/api/access"
	"github.com/keep-run/keep/internal/framed"
)

// reading adds the tools that every role has.
func (s *server) reading(to *sdk.Server) {
	add(s, to, "guide", "How to write workflows: patterns, mistakes, tests, keep.toml. Read this first.", s.guide)
	add(s, to, "types", "TypeScript declarations of what scripts may call here: the connections of this project and their tools.", s.types)
	add(s, to, "check", "Parse and validate a script, and list its effects. Changes nothing.", s.check)
	add(s, to, "list", "List "+strings.Join(listed, ", ")+"; the newest first.", s.list)
	add(s, to, "show", "Show one of what list lists, with its payload, result or prepared data.", s.show)
	add(s, to, "explain", "What any id is (run, mutation, question, input, event, item, WORKFLOW@VERSION), what it waits for, and what came of it.", s.explain)
	add(s, to, "why", "Why a workflow does not continue: its state, open runs with what each waits for, and open questions.", s.why)
}

// listed is what list takes.
var listed = []string{"workflows", "runs", "events", "inputs", "items", "mutations", "inbox", "topics", "proposals"}

// A listParams says what to list.
type listParams struct {
	What     string `json:"what" jsonschema:"workflows, runs, events, inputs, items, mutations, inbox (open questions), topics or proposals (versions that wait or waited for a person)"`
	Workflow string `json:"workflow,omitempty" jsonschema:"only of this workflow; needed for events and topics"`
	Status   string `json:"status,omitempty" jsonschema:"only with this status, or state of mutations and proposals"`
	Limit    int    `json:"limit,omitempty" jsonschema:"at most this many, to 100; left out: 20"`
	Cursor   string `json:"cursor,omitempty" jsonschema:"next of the page before"`
}

// list lists a page. One that is too long for an answer is made shorter, so that its
// cursor is right.
func (s *server) list(ctx context.Context, in listParams) (answer, error) {
	limit := in.Limit
	if limit < 1 || limit > 100 {
		limit = 20
	}
	for ; ; limit /= 2 {
		var page any
		err := s.call(ctx, func(c *api.Client) (err error) {
			page, err = s.page(ctx, c, in, api.Paging{Limit: limit, Cursor: in.Cursor})
			return err
		})
		if err != nil {
			return answer{}, err
		}
		if _, cut, err := framed.Encode(page); err != nil || !cut || limit == 1 {
			return answer{said: "With next, ask for the next page as cursor.", data: page}, err
		}
	}
}

// page reads one page.
func (s *server) page(ctx context.Context, c *api.Client, in listParams, p api.Paging) (any, error) {
	w := keep.WorkflowName(in.Workflow)
	if w == "" && (in.What == "events" || in.What == "topics") {
		return nil, fmt.Errorf("list %s needs a workflow", in.What)
	}
	switch in.What {
	case "workflows":
		list, err := c.Workflows(ctx)
		return part(p, list, err)
	case "runs":
		return c.Runs(ctx, api.RunQuery{Workflow: w, Status: keep.RunStatus(in.Status)}, p)
	case "events":
		return c.Events(ctx, w, api.EventQuery{Status: keep.EventStatus(in.Status)}, p)
	case "inputs":
		return c.Inputs(ctx, api.InputQuery{Workflow: w, Status: keep.InputStatus(in.Status)}, p)
	case "items":
		return c.Items(ctx, api.ItemQuery{Workflow: w, Status: keep.ItemStatus(in.Status)}, p)
	case "mutations":
		return c.Mutations(ctx, api.MutationQuery{Workflow: w, State: keep.MutationState(in.Status)}, p)
	case "inbox":
		return c.Escalations(ctx, api.EscalationQuery{Workflow: w}, p)
	case "topics":
		list, err := c.Topics(ctx, w)
		return part(p, list, err)
	case "proposals":
		return c.Proposals(ctx, api.ProposalQuery{Workflow: w, Status: api.ProposalState(in.Status)}, p)
	}
	return nil, fmt.Errorf("what is one of %s", strings.Join(listed, ", "))
}

// part makes a page of a list that comes at once. The cursor is how many were before it.
func part[T any](p api.Paging, items []T, err error) (api.Page[T], error) {
	from := 0
	if p.Cursor != "" && err == nil {
		if from, err = strconv.Atoi(p.Cursor); err != nil || from < 0 {
			err = keep.ErrBadCursor
		}
	}
	if err != nil {
		return api.Page[T]{}, err
	}
	from = min(from, len(items))
	out := api.Page[T]{Items: items[from:min(from+p.Limit, len(items))]}
	if to := from + p.Limit; to < len(items) {
		next := strconv.Itoa(to)
		out.Next = &next
	}
	return out, nil
}

// A showParams names one thing.
type showParams struct {
	What     string `json:"what" jsonschema:"workflows, runs, events, inputs, items, mutations, inbox, topics or proposals"`
	ID       string `json:"id" jsonschema:"as list has it: a name, an id or a key; the message id of an event"`
	Workflow string `json:"workflow,omitempty" jsonschema:"of an item, event or topic"`
	Topic    string `json:"topic,omitempty" jsonschema:"of an event"`
}

func (s *server) show(ctx context.Context, in showParams) (answer, error) {
	var out any
	err := s.call(ctx, func(c *api.Client) (err error) {
		out, err = s.one(ctx, c, in)
		return err
	})
	return answer{data: out}, err
}

// one reads one thing.
func (s *server) one(ctx context.Context, c *api.Client, in showParams) (any, error) {
	w := keep.WorkflowName(in.Workflow)
	switch {
	case in.ID == "":
		return nil, fmt.Errorf("id is empty")
	case w == "" && slices.Contains([]string{"items", "events", "topics"}, in.What), in.Topic == "" && in.What == "events":
		return nil, fmt.Errorf("show %s needs the workflow, and of an event the topic", in.What)
	}
	switch in.What {
	case "workflows":
		return c.Workflow(ctx, keep.WorkflowName(in.ID))
	case "runs":
		r, err := c.Run(ctx, keep.RunID(in.ID))
		if r.Trace != nil { // the process that serves the agent may have more rights than it
			shown := r.Trace.ShownTo(s.Role)
			r.Trace = &shown
		}
		return r, err
	case "events":
		return c.Event(ctx, w, keep.TopicName(in.Topic), keep.MessageID(in.ID))
	case "inputs":
		return c.Input(ctx, keep.InputID(in.ID))
	case "items":
		return c.Item(ctx, w, in.ID)
	case "mutations":
		return c.Mutation(ctx, keep.MutationKey(in.ID))
	case "inbox":
		return c.Escalation(ctx, keep.EscalationID(in.ID))
	case "topics":
		return c.Topic(ctx, w, keep.TopicName(in.ID))
	case "proposals":
		if s.Role.Covers(access.Author) {
			return c.Judged(ctx, in.ID)
		}
		return c.Proposal(ctx, in.ID)
	}
	return nil, fmt.Errorf("what is one of %s", strings.Join(listed, ", "))
}

// An idParams names anything.
type idParams struct {
	ID string `json:"id" jsonschema:"of a run, mutation, question, input, event or item, WORKFLOW@VERSION, or the id of a repair"`
}

func (s *server) explain(ctx context.Context, in idParams) (answer, error) {
	if in.ID == "" {
		return answer{}, fmt.Errorf("id is empty")
	}
	var out api.Why
	err := s.call(ctx, func(c *api.Client) (err error) {
		out, err = c.Why(ctx, in.ID)
		return err
	})
	return answer{data: out}, err
}

// A workflowParams names a workflow.
type workflowParams struct {
	Workflow string `json:"workflow"`
}

// A whyAnswer says why a workflow does not continue.
type whyAnswer struct {
	Workflow  api.Workflow   `json:"workflow"`
	Runs      []api.Run      `json:"runs"`
	Questions []api.Answered `json:"questions"`
}

// why answers for a workflow as a whole what explain answers for one id. It is three reads, and something
// may happen between them: an agent that sees a contradiction asks again.
func (s *server) why(ctx context.Context, in workflowParams) (answer, error) {
	const most = 20
	w, out := keep.WorkflowName(in.Workflow), whyAnswer{}
	err := s.call(ctx, func(c *api.Client) (err error) {
		if out.Workflow, err = c.Workflow(ctx, w); err != nil {
			return err
		}
		runs, err := c.Runs(ctx, api.RunQuery{Workflow: w, Open: true}, api.Paging{Limit: most})
		if err != nil {
			return err
		}
		questions, err := c.Escalations(ctx, api.EscalationQuery{Workflow: w}, api.Paging{Limit: most})
		out.Runs, out.Questions = runs.Items, questions.Items
		return err
	})
	return answer{said: "A run says what it waits for in waits_for. A person answers the questions.", data: out}, err
}

// A pauseParams names a workflow, and says why it is paused.
type pauseParams struct {
	workflowParams
	Note string `json:"note,omitempty" jsonschema:"why, in a sentence for the person who resumes it"`
}

// pause pauses a workflow that is not paused. The note of whoever paused it before says to people why it waits, and which command resumes
// it: an agent does not put its own in the place of that.
func (s *server) pause(ctx context.Context, in pauseParams) (answer, error) {
	w, out, said := keep.WorkflowName(in.Workflow), api.Workflow{}, "It is paused. A person resumes it."
	err := s.call(ctx, func(c *api.Client) (err error) {
		if out, err = c.PauseRunning(ctx, w, noted(in.Note)); !errors.Is(err, keep.ErrStale) {
			return err
		}
		now, readErr := c.Workflow(ctx, w)
		if readErr != nil || !now.Paused { // resumed meanwhile
			return errors.Join(err, readErr)
		}
		out, said = now, "It was paused before, and the note of then stays. A person resumes it."
		return nil
	})
	return answer{said: said, data: out}, err
}

// call calls f with a client whose requests go through the gate.
func (s *server) call(ctx context.Context, f func(*api.Client) error) error {
	return s.Call(ctx, gated(f))
}

// gated returns f for clients that are put behind the gate.
//
// The client is copied, since the transport of the one that comes is used by others, too.
func gated(f func(*api.Client) error) func(*api.Client) error {
	return func(c *api.Client) error {
		behind := *c
		behind.Transport = gate{c.Transport}
		return f(&behind)
	}
}

package api

import (
	"context"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/lifecycle"
)

// A Status says what needs a person, what fails, and what is late.
type Status struct {
	Workflows []Workflow   `json:"workflows"`
	NeedsYou  []Escalation `json:"needs_you" doc:"open questions"`
	NotTold   []NotTold    `json:"not_told" doc:"of them, and of whom [notify] gave up"`
	Failing   []Run        `json:"failing" doc:"unfinished runs with an error, or in doubt"`
	InDoubt   []Doubt      `json:"in_doubt" doc:"calls with an unknown outcome that no open run waits for"`
	Late      []Late       `json:"late" doc:"what should have happened by now"`
	Topics    []Topic      `json:"topics"`
}

// A NotTold is a question of which people could not be told.
type NotTold struct {
	Question keep.EscalationID `json:"question"`
	Sink     keep.Sink         `json:"sink"`
	Attempts int               `json:"attempts"`
	Error    string            `json:"error"`
}

// A Doubt is a call with an unknown outcome that blocks its item and nothing else.
type Doubt struct {
	Workflow keep.WorkflowName `json:"workflow"`
	Item     string            `json:"item"`
	Mutation keep.MutationKey  `json:"mutation"`
	Why      string            `json:"why" doc:"a sentence"`
}

// A Late is something that should have happened by now.
type Late struct {
	Workflow keep.WorkflowName `json:"workflow"`
	What     string            `json:"what"`
	DueAt    Time              `json:"due_at"`
}

// LateAfter is how far behind its time something may be.
const LateAfter = time.Minute

// ReadStatus returns how things stand at now. It reads workflow by workflow: there
// are few.
func ReadStatus(ctx context.Context, store Store, now time.Time) (Status, error) {
	r := statusReader{store, now, Status{
		NeedsYou: []Escalation{}, NotTold: []NotTold{}, Failing: []Run{}, InDoubt: []Doubt{}, Late: []Late{}, Topics: []Topic{},
	}}
	var err error
	if r.Workflows, err = ListWorkflows(ctx, store); err != nil {
		return r.Status, err
	}
	if err := r.questions(ctx); err != nil {
		return r.Status, err
	}
	for _, w := range r.Workflows {
		if err := r.workflow(ctx, w); err != nil {
			return r.Status, err
		}
	}
	counts, err := store.TopicCounts(ctx, "")
	r.Topics = each(counts, TopicOf)
	return r.Status, err
}

// A statusReader collects a status.
type statusReader struct {
	store Store
	now   time.Time
	Status
}

// questions adds the open questions, and of which a sink was given up.
func (r *statusReader) questions(ctx context.Context) error {
	all, err := OpenQuestions(ctx, r.store, "")
	if err != nil {
		return err
	}
	r.NeedsYou = append(r.NeedsYou, all...)
	for _, q := range all {
		told, err := r.store.Notices(ctx, q.ID)
		if err != nil {
			return err
		}
		for _, n := range told {
			if n.Status == keep.NoticeGivenUp {
				r.NotTold = append(r.NotTold, NotTold{q.ID, n.Sink, n.Attempts, n.Error})
			}
		}
	}
	return nil
}

// workflow adds what fails and what is late of one workflow. While a run is open
// its handlers are not late: they wait for it.
func (r *statusReader) workflow(ctx context.Context, w Workflow) error {
	run, open, err := r.store.OpenRun(ctx, w.Name)
	if err != nil {
		return err
	}
	if err := r.doubts(ctx, w.Name, run.Mutation); err != nil {
		return err
	}
	if open {
		v, err := ShowRun(ctx, r.store, run.ID)
		if err != nil {
			return err
		}
		if v.Error != nil || v.Status != keep.StatusActive {
			r.Failing = append(r.Failing, v)
		}
		r.overdue(w.Name, "retry of run "+string(run.ID), run.RetryAt)
		return nil // the handlers wait for this run
	}
	if w.Paused {
		return nil
	}
	for _, h := range w.Handlers {
		if h.NextRunAt != nil {
			r.overdue(w.Name, string(h.Name), time.Time(*h.NextRunAt))
		}
	}
	return nil
}

// overdue adds what is late.
func (r *statusReader) overdue(w keep.WorkflowName, what string, due time.Time) {
	if !due.IsZero() && r.now.Sub(due) > LateAfter {
		r.Late = append(r.Late, Late{w, what, Time(due)})
	}
}

// doubts adds the doubts about items that were detached from their runs. of is the
// call of the open run, which is shown with that run.
func (r *statusReader) doubts(ctx context.Context, w keep.WorkflowName, of keep.MutationKey) error {
	for _, state := range []keep.MutationState{keep.NeedsReconcile, keep.Indeterminate} {
		ms, _, err := r.store.Mutations(ctx, keep.MutationFilter{Workflow: w, State: state}, keep.Page{Limit: 1000})
		if err != nil {
			return err
		}
		for _, m := range ms {
			if m.Key != of && m.Item != "" {
				r.InDoubt = append(r.InDoubt, Doubt{w, m.Item, m.Key, lifecycle.ExplainDoubt(m)})
			}
		}
	}
	return nil
}

// OpenQuestions returns all open questions of a workflow, or of all, newest first.
func OpenQuestions(ctx context.Context, s Questions, w keep.WorkflowName) ([]Escalation, error) {
	var out []Escalation
	page := keep.Page{Limit: 1000}
	for {
		qs, next, err := s.Escalations(ctx, keep.EscalationFilter{Workflow: w, Open: true}, page)
		if err != nil {
			return nil, err
		}
		out = append(out, each(qs, EscalationOf)...)
		if page.After = next; next == "" {
			return out, nil
		}
	}
}

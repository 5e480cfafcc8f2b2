package api

import (
	"context"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/view"
)

// A Status says what needs a person, what fails, and what is late.
type Status struct {
	Config    *Settings    `json:"config" doc:"of the process that answers; null: no host runs"`
	Refusal   *Refusal     `json:"store_refuses" doc:"the store of the process that answers refused its last commit; null: it takes them, or no host runs"`
	Workflows []Workflow   `json:"workflows"`
	Causes    []Cause      `json:"causes" doc:"what the open questions are about, the most frequent first"`
	NeedsYou  []Escalation `json:"needs_you" doc:"open questions, newest first; at most 1,000"`
	Asked     int          `json:"needs_you_count" doc:"how many there are"`
	NotTold   []NotTold    `json:"not_told" doc:"of them, and of whom [notify] gave up"`
	Failing   []Run        `json:"failing" doc:"unfinished runs with an error, or in doubt, with no open question about them or about what they wait for"`
	Limited   []Run        `json:"limited" doc:"runs that are executed and wait for the limits of a connection"`
	InDoubt   []Doubt      `json:"in_doubt" doc:"calls with an unknown outcome that no open run waits for"`
	Late      []Late       `json:"late" doc:"what should have happened by now"`
	Stranded  []Stranded   `json:"stranded" doc:"topics with pending events that no consumer of the version in force will handle"`
	Topics    []Topic      `json:"topics"`
	Unlike    []Mismatch   `json:"unlike" doc:"connections that are not the same on all hosts"`
	NoProgram []NoProgram  `json:"no_program" doc:"workflows written in Go that no host which is there can execute"`

	Connections []Connection `json:"connections" doc:"those that have limits, or were shut once"`

	// KeysUnknown counts up to idempotency.MaxUnknown.
	KeysUnknown *int `json:"keys_unknown" doc:"idempotency keys whose outcome nobody knows; null: the store keeps none"`
}

// A Refusal says that a store takes no commits.
type Refusal struct {
	Since  Time   `json:"since"`
	Reason string `json:"reason"`
}

// Settings say what became of the configuration of a running host.
type Settings struct {
	TakenAt Time            `json:"taken_at" doc:"when the one in force was taken"`
	Refused *RefusedSetting `json:"refused" doc:"the last change, if it was refused"`

	Unfinished *UnfinishedSetting `json:"unfinished" doc:"what of the one in force is not done yet, and is tried again"`
}

// An UnfinishedSetting is a part of a configuration that was taken, such as its grants, which the database did not take yet.
type UnfinishedSetting struct {
	At     Time   `json:"at"`
	Reason string `json:"reason"`
}

// A RefusedSetting is a change of the configuration that was not taken.
type RefusedSetting struct {
	At     Time   `json:"at"`
	Reason string `json:"reason" doc:"with file and line"`
}

// A Cause is what several open questions have in common.
type Cause struct {
	Kind      keep.EscalationKind `json:"kind"`
	Tool      string              `json:"tool" doc:"the handler, if no tool was called"`
	Code      string              `json:"code" doc:"of the error; empty: there is none"`
	Count     int                 `json:"count"`
	Workflows []keep.WorkflowName `json:"workflows"`
	Example   keep.EscalationID   `json:"example" doc:"the newest of the questions"`
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

// A Stranded is a topic whose pending events nothing will handle.
type Stranded struct {
	Workflow keep.WorkflowName `json:"workflow"`
	Topic    keep.TopicName    `json:"topic"`
	Pending  int               `json:"pending"`
	Why      string            `json:"why" doc:"a sentence, with what to do"`
}

// A NoProgram is a workflow written in Go whose version no host that is there has.
type NoProgram struct {
	Workflow keep.WorkflowName `json:"workflow"`
	Version  string            `json:"version"`
	Program  string            `json:"program" doc:"that deployed it, as the go command names its main package; empty: it did not say"`
	Build    string            `json:"build"`
	Why      string            `json:"why" doc:"a sentence, with what to do"`
}

func noProgramOf(m view.Missing) NoProgram {
	return NoProgram{m.Workflow, m.Version.String(), m.Program.Path, m.Program.Build, m.Sentence()}
}

// ReadStatus returns how things stand at now. A nil by does not know who executes workflows.
func ReadStatus(ctx context.Context, s view.Store, by view.Executors, now time.Time) (Status, error) {
	o, err := view.Read(ctx, s, now)
	if err != nil {
		return Status{}, err
	}
	missing, err := by.Missing(ctx, s, o.Workflows...)
	if err != nil {
		return Status{}, err
	}
	st := StatusOf(o)
	if err := st.list(ctx, s, o); err != nil {
		return Status{}, err
	}
	st.NoProgram = each(missing, noProgramOf)
	return st, nil
}

// list adds what an overview only counts: the newest of the open questions, and which runs of each workflow are open.
func (st *Status) list(ctx context.Context, s view.Store, o *view.Overview) error {
	questions := []Escalation{}
	_, err := eachQuestion(ctx, s, keep.EscalationFilter{Open: true}, keep.Page{Limit: view.MaxQuestions}, func(q keep.Escalation) {
		questions = append(questions, Listed(q))
	})
	if err != nil {
		return err
	}
	waiting := make(map[string][]keep.RunID)
	for _, c := range o.Connections {
		waiting[c.Name] = c.Waiting
	}
	st.NeedsYou = waitedFor(questions, waiting)
	runs, _, err := s.Runs(ctx, keep.RunFilter{Open: true}, keep.Page{Limit: keep.MaxPage, Bare: true})
	open := make(map[keep.WorkflowName][]keep.Run)
	for _, r := range runs {
		open[r.Workflow] = append(open[r.Workflow], r)
	}
	st.Workflows = each(o.Workflows, func(w view.Workflow) Workflow { return workflowOf(w, open[w.Name]) })
	return err
}

// StatusOf returns the object of o, without what o only counts.
func StatusOf(o *view.Overview) Status {
	return Status{
		Asked:       o.Asked,
		Unlike:      []Mismatch{},
		NoProgram:   []NoProgram{},
		Connections: each(o.Connections, connectionOf),

		Causes: each(o.Causes(), func(c view.Cause) Cause {
			return Cause{c.Kind, c.Tool, c.Code, c.Count, c.Workflows, c.Example}
		}),
		NotTold: each(o.GivenUp, func(n keep.Notice) NotTold {
			return NotTold{n.Escalation, n.Sink, n.Attempts, n.Error}
		}),
		Failing: each(o.Failing(), func(r *view.Run) Run { return runOf(r.Run, r.Call, r.Wait) }),
		Limited: each(o.Limited(), func(r *view.Run) Run { return runOf(r.Run, r.Call, r.Wait) }),
		InDoubt: each(o.Doubts, func(m keep.Mutation) Doubt {
			return Doubt{m.Workflow, m.Item, m.Key, o.Limits.WaitOfDoubt(m).String()}
		}),
		Late: each(o.Late(), func(l view.Late) Late {
			what := string(l.Handler)
			if l.Run != "" {
				what = "retry of run " + string(l.Run)
			}
			return Late{l.Workflow, what, Time(l.Due)}
		}),
		Stranded: each(o.Stranded(), func(s view.Stranded) Stranded {
			return Stranded{s.Workflow, s.Topic, s.Pending, s.Sentence()}
		}),
		Topics: each(o.Topics, func(c keep.TopicCount) Topic { return TopicOf(c, o.Readers(c.Workflow, c.Topic)) }),
	}
}

// workflowOf returns the object of a workflow in an overview.
func workflowOf(w view.Workflow, open []keep.Run) Workflow {
	states := each(w.Handlers, func(h view.Handler) keep.HandlerState { return h.State })
	return WorkflowOf(w.Workflow, w.Deployed, states, open)
}

// OpenQuestions returns all open questions of a workflow, or of all, newest first.
func OpenQuestions(ctx context.Context, s questions, w keep.WorkflowName) ([]Escalation, error) {
	var out []Escalation
	page := keep.Page{Limit: 1000}
	for {
		more := []Escalation{}
		next, err := eachQuestion(ctx, s, keep.EscalationFilter{Workflow: w, Open: true}, page, func(q keep.Escalation) { more = append(more, Listed(q)) })
		if err != nil {
			return nil, err
		}
		more, err = withRuns(ctx, s, more)
		if err != nil {
			return nil, err
		}
		out = append(out, more...)
		if page.After = next; next == "" {
			return out, nil
		}
	}
}

package api

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/api/access"
	"github.com/keep-run/keep/idempotency"
	"github.com/keep-run/keep/law/search"
	"github.com/keep-run/keep/store"
	"github.com/keep-run/keep/view"
)

// A Page is a part of a list, newest first.
type Page[T any] struct {
	Items []T     `json:"items"`
	Next  *string `json:"next" doc:"cursor of the next page; null: this is the last one"`
}

// Counted says how many rows a filter selects.
type Counted struct {
	Total int            `json:"total"`
	More  bool           `json:"more,omitempty" doc:"there are more: what a text, an error or a period selects is counted up to 1,000"`
	By    map[string]int `json:"by" doc:"how many are in each status, state or kind; those that none has are left out"`
}

// out is the answer of an operation.
type out[T any] struct{ Body T }

// Paging is what all lists take. It and the queries are exported since their
// fields are found by reflection.
type Paging struct {
	Limit  int    `query:"limit" minimum:"1" maximum:"1000" default:"100" doc:"most items of the page"`
	Cursor string `query:"cursor" doc:"next of the page before; empty: the first page"`
	Full   bool   `query:"full" doc:"with payloads, results and prepared data, which are null otherwise"`
}

func (p Paging) page() keep.Page {
	return keep.Page{Limit: p.Limit, After: p.Cursor, Bare: !p.Full}
}

// The filters of lists and counts, as queries have them.
type (
	RunQuery struct {
		Workflow keep.WorkflowName `query:"workflow"`
		Handler  keep.HandlerName  `query:"handler"`
		Status   keep.RunStatus    `query:"status" doc:"one in which a run is executed or waits selects those that are not over" enum:"active,paused:transient,paused:approval,paused:reconciliation,paused:person,failed:logic,failed:internal,committed,crashed,aborted"`
		Open     bool              `query:"open" doc:"only those that are not over"`
		Error    string            `query:"error" maxLength:"100" doc:"class or code of what stopped them; none that is active or committed"`
		Made
		Text string `query:"q" maxLength:"200" doc:"beginnings of words of the title, or of messages that it works on"`
	}
	MutationQuery struct {
		Workflow keep.WorkflowName  `query:"workflow"`
		State    keep.MutationState `query:"state" enum:"in_flight,needs_reconcile,indeterminate,failed,applied,skipped"`
		Tool     keep.ToolName      `query:"tool"`
		Run      keep.RunID         `query:"run"`
		Item     string             `query:"item" doc:"id of an item; needs workflow"`
		Input    keep.InputID       `query:"input"`
		Error    string             `query:"error" maxLength:"100" doc:"class or code of the last thing that went wrong; none that is applied"`
		Made
		Text string `query:"q" maxLength:"200" doc:"beginnings of words of the title, target, key, or of values of the identity"`
	}
	InputQuery struct {
		Workflow keep.WorkflowName `query:"workflow"`
		Status   keep.InputStatus  `query:"status" enum:"pending,done,skipped"`
		Made
		Text string `query:"q" maxLength:"200" doc:"beginnings of words of the title or external id"`
	}
	ItemQuery struct {
		Workflow keep.WorkflowName `query:"workflow"`
		Status   keep.ItemStatus   `query:"status" enum:"processing,done,failed,skipped,needs_attention"`
		Made
		Text string `query:"q" maxLength:"200" doc:"beginnings of words of the title or id"`
	}
	EscalationQuery struct {
		Workflow keep.WorkflowName `query:"workflow"`
		Run      keep.RunID        `query:"run"`
		All      bool              `query:"all" doc:"also those that are answered"`
		Closed   bool              `query:"closed" doc:"only those that were answered, or no longer apply, whatever all says"`
		Made
		Text string `query:"q" maxLength:"200" doc:"beginnings of words of the title, of the question, of what was attempted, or of why; a page may have fewer rows than it could, and a next"`
	}
)

// Made is the period of a filter, as queries have it.
type Made struct {
	Since string `query:"since" maxLength:"40" doc:"made then or later: a time of RFC 3339, or 2026-11-20 or 2026-11-20T09:30 in UTC, or how long ago: 90m, 2h, 7d"`
	Until string `query:"until" maxLength:"40" doc:"made before that time, which is written as since"`
}

// in returns the period.
func (m Made) in(now time.Time) (keep.Period, error) {
	p, err := view.ParsePeriod(m.Since, m.Until, now)
	if err != nil {
		return p, problemOf(http.StatusUnprocessableEntity, KindBadTime, err.Error())
	}
	return p, nil
}

func (f RunQuery) filter(now time.Time) (keep.RunFilter, error) {
	made, err := f.in(now)
	return keep.RunFilter{Workflow: f.Workflow, Handler: f.Handler, Status: f.Status, Open: f.Open, Made: made, Error: f.Error, Text: f.Text}, err
}

func (f MutationQuery) filter(now time.Time) (keep.MutationFilter, error) {
	made, err := f.in(now)
	return keep.MutationFilter{Workflow: f.Workflow, State: f.State, Tool: f.Tool, Run: f.Run, Item: f.Item, Input: f.Input,
		Made: made, Error: f.Error, Text: f.Text}, err
}

func (f InputQuery) filter(now time.Time) (keep.InputFilter, error) {
	made, err := f.in(now)
	return keep.InputFilter{Workflow: f.Workflow, Status: f.Status, Made: made, Text: f.Text}, err
}

func (f ItemQuery) filter(now time.Time) (keep.ItemFilter, error) {
	made, err := f.in(now)
	return keep.ItemFilter{Workflow: f.Workflow, Status: f.Status, Made: made, Text: f.Text}, err
}

// pageOf returns the page of a list that a query asks for.
func pageOf[F, T any](ctx context.Context, s *Server, filter func(time.Time) (F, error), p Paging,
	read func(context.Context, store.Reader, F, keep.Page) ([]T, string, error)) (Page[T], error) {
	f, err := filter(s.cfg.Clock())
	if err != nil {
		return Page[T]{}, err
	}
	return paged(bounded(p.page(), func(p keep.Page) ([]T, string, error) { return read(ctx, s.cfg.Store, f, p) }))
}

// A page in full is read in steps, and ends after the step with which it has so many bytes of payloads (law: bounded). Its cursor continues
// there.
const (
	fullStep  = 10
	fullBytes = 8 << 20
)

// bounded reads a page, or as much of it as a host has memory for.
func bounded[T any](p keep.Page, read func(keep.Page) ([]T, string, error)) (items []T, next string, err error) {
	if p.Bare {
		return read(p)
	}
	for left, size := p.Limit, 0; left > 0 && size < fullBytes; {
		p.Limit = min(left, fullStep)
		var some []T
		if some, next, err = read(p); err != nil {
			return nil, "", err
		}
		for _, one := range some {
			size += weight(one)
		}
		items, left = append(items, some...), left-len(some)
		if p.After = next; next == "" || len(some) < p.Limit { // a search that looked at enough ends a page, too
			break
		}
	}
	return items, next, nil
}

// weight returns how much of payloads an object has, in bytes.
func weight(object any) int {
	switch v := object.(type) {
	case Run:
		return len(v.Prepared)
	case Mutation:
		return len(v.Identity) + len(v.Payload) + len(v.Result)
	case Event:
		return len(v.Payload)
	}
	return 0
}

// countOf counts what a query asks for.
func countOf[F interface{ Bounded() bool }, S ~string](ctx context.Context, s *Server, filter func(time.Time) (F, error),
	count func(context.Context, F) (map[S]int, error)) (Counted, error) {
	f, err := filter(s.cfg.Clock())
	if err != nil {
		return Counted{}, err
	}
	by, err := count(ctx, f)
	return counted(f.Bounded(), by, err)
}

func (f EscalationQuery) filter(now time.Time) (keep.EscalationFilter, error) {
	made, err := f.in(now)
	return keep.EscalationFilter{Workflow: f.Workflow, Run: f.Run, Open: !f.All && !f.Closed, Closed: f.Closed, Made: made}, err
}

// questionStep is how many questions are read at once: each has the payload that a person is asked to approve (law: bounded).
const questionStep = 50

// eachQuestion gives f those of a page, which are read in steps, and returns the cursor of the next page. Who keeps of each what a list
// shows has memory for a step.
func eachQuestion(ctx context.Context, s store.Escalations, of keep.EscalationFilter, p keep.Page, f func(keep.Escalation)) (next string, err error) {
	for left := p.Limit; left > 0; {
		p.Limit = min(left, questionStep)
		qs, next, err := s.Escalations(ctx, of, p)
		if err != nil {
			return "", err
		}
		for _, q := range qs {
			f(q)
		}
		left -= len(qs)
		if p.After = next; next == "" || len(qs) < p.Limit {
			break
		}
	}
	return p.After, nil
}

// questions gives f those of a page that a query selects. No index has their words: there are few,
// since each one stops something.
func (s *Server) questions(ctx context.Context, in EscalationQuery, p keep.Page, f func(keep.Escalation)) (next string, err error) {
	of, err := in.filter(s.cfg.Clock())
	if err != nil {
		return "", err
	}
	terms := search.Terms(in.Text)
	return eachQuestion(ctx, s.cfg.Store, of, p, func(q keep.Escalation) {
		if search.OfQuestion(q).Has(terms) {
			f(q)
		}
	})
}

// countQuestions counts what a query selects; with a text it stops a little above search.MaxCount.
func (s *Server) countQuestions(ctx context.Context, in EscalationQuery) (Counted, error) {
	if in.Text == "" {
		return countOf(ctx, s, in.filter, s.cfg.Store.CountEscalations)
	}
	by, total := make(map[keep.EscalationKind]int), 0
	for p := (keep.Page{Limit: keep.MaxPage}); ; {
		next, err := s.questions(ctx, in, p, func(q keep.Escalation) { by[q.Kind], total = by[q.Kind]+1, total+1 })
		if err != nil || next == "" || total > search.MaxCount {
			return counted(true, by, err)
		}
		p.After = next
	}
}

// reads registers everything that changes nothing.
func (s *Server) reads() {
	s.readRuns()
	s.readLedger()
	s.readInputs()
	s.readItems()
	s.readEscalations()
	s.readWorkflows()
	s.readProposals()
	s.readTopics()
	s.hosts()
	s.hooks()
	s.budgets()
	s.idempotencyKeys()
	s.why()
	s.ids()
	get(s, "/status", "status", "What needs a person, what fails, what is late", func(ctx context.Context, _ *struct{}) (Status, error) {
		st, err := ReadStatus(ctx, s.cfg.Store, s.cfg.Executors, s.cfg.Clock())
		if err == nil && s.cfg.Keys != nil {
			var n int
			n, err = idempotency.NewKeys(s.cfg.Keys).Unknown(ctx)
			st.KeysUnknown = &n
		}
		if err == nil && s.cfg.Hosts != nil {
			st.Unlike, err = ListMismatches(ctx, s.cfg.Hosts)
		}
		if s.cfg.Settings != nil {
			st.Config = s.cfg.Settings()
		}
		if s.cfg.Refusal != nil {
			st.Refusal = s.cfg.Refusal()
		}
		return st, err
	})
	get(s, "/whoami", "whoami", "Whose token or session this is, and what time it is where it is asked", func(ctx context.Context, _ *struct{}) (Identity, error) {
		id, _ := access.From(ctx)
		return Identity{Name: id.Name, Role: id.Role, Via: id.Via, Now: Time(s.cfg.Clock())}, nil
	})
}

// An Identity is whose a request is.
type Identity struct {
	Name string      `json:"name"`
	Role access.Role `json:"role"`
	Via  access.Via  `json:"via"`
	Now  Time        `json:"now" doc:"by the clock of the process that answers, which dates what is done there"`
}

// get registers a read whose answer is what f returns.
func get[I, O any](s *Server, path, id, summary string, f func(context.Context, *I) (O, error)) {
	as(s, access.Viewer, http.MethodGet, path, id, summary, f)
}

// paged makes a page of what a list returns.
func paged[T any](items []T, next string, err error) (Page[T], error) {
	return Page[T]{Items: list(items), Next: orNull(next)}, err
}

// counted makes the object of counts.
func counted[S ~string](bounded bool, by map[S]int, err error) (Counted, error) {
	return countedOf(view.FoundOf(bounded, by)), err
}

func countedOf[S ~string](found view.Found[S]) Counted {
	c := Counted{By: make(map[string]int, len(found.By)), Total: found.Total, More: found.More}
	for state, n := range found.By {
		c.By[string(state)] = n
	}
	return c
}

func (s *Server) readRuns() {
	get(s, "/runs", "list-runs", "Runs", func(ctx context.Context, in *struct {
		RunQuery
		Paging
	}) (Page[Run], error) {
		return pageOf(ctx, s, in.filter, in.Paging, ListRuns)
	})
	get(s, "/runs/counts", "count-runs", "How many runs there are, by status", func(ctx context.Context, in *RunQuery) (Counted, error) {
		f, err := in.filter(s.cfg.Clock())
		if err != nil {
			return Counted{}, err
		}
		found, err := view.CountRuns(ctx, s.cfg.Store, view.RunsIn(f))
		return countedOf(found), err
	})
	get(s, "/runs/{run}", "show-run", "One run", func(ctx context.Context, in *struct {
		Run keep.RunID `path:"run"`
	}) (Run, error) {
		r, err := ShowRun(ctx, s.cfg.Store, in.Run)
		if who, _ := access.From(ctx); r.Trace != nil {
			shown := r.Trace.ShownTo(who.Role)
			r.Trace = &shown
		}
		return r, err
	})
	get(s, "/runs/{run}/logs", "list-logs", "What a run logged, oldest first", func(ctx context.Context, in *struct {
		Run keep.RunID `path:"run"`
	}) ([]LogLine, error) {
		if _, err := s.cfg.Store.Run(ctx, in.Run); err != nil {
			return nil, err
		}
		lines, err := s.cfg.Store.Logs(ctx, in.Run)
		return each(lines, LogLineOf), err
	})
	get(s, "/runs/{run}/trace", "show-trace", "What a run read, called and looked up, and how long each took", func(ctx context.Context, in *struct {
		Run keep.RunID `path:"run"`
	}) (Trace, error) {
		if _, err := s.cfg.Store.Run(ctx, in.Run); err != nil {
			return Trace{}, err
		}
		who, _ := access.From(ctx)
		t, err := ShowTrace(ctx, s.cfg.Store, in.Run)
		return t.ShownTo(who.Role), err
	})
}

func (s *Server) readLedger() {
	get(s, "/mutations", "list-mutations", "Records of the ledger", func(ctx context.Context, in *struct {
		MutationQuery
		Paging
	}) (Page[Mutation], error) {
		return pageOf(ctx, s, in.filter, in.Paging, ListMutations)
	})
	get(s, "/mutations/counts", "count-mutations", "How many records there are, by state", func(ctx context.Context, in *MutationQuery) (Counted, error) {
		return countOf(ctx, s, in.filter, s.cfg.Store.CountMutations)
	})
	get(s, "/mutations/{mutation}", "show-mutation", "One record, with its history", func(ctx context.Context, in *struct {
		Key keep.MutationKey `path:"mutation"`
	}) (Mutation, error) {
		return ShowMutation(ctx, s.cfg.Store, in.Key)
	})
}

func (s *Server) readInputs() {
	get(s, "/inputs", "list-inputs", "Inputs, with what was done about them", func(ctx context.Context, in *struct {
		InputQuery
		Paging
	}) (Page[Input], error) {
		return pageOf(ctx, s, in.filter, in.Paging, ListInputs)
	})
	get(s, "/inputs/counts", "count-inputs", "How many inputs there are, by status", func(ctx context.Context, in *InputQuery) (Counted, error) {
		return countOf(ctx, s, in.filter, s.cfg.Store.CountInputs)
	})
	get(s, "/inputs/{input}", "show-input", "One input", func(ctx context.Context, in *struct {
		ID keep.InputID `path:"input"`
	}) (Input, error) {
		return ShowInput(ctx, s.cfg.Store, in.ID)
	})
}

func (s *Server) readItems() {
	get(s, "/items", "list-items", "Items of jobs", func(ctx context.Context, in *struct {
		ItemQuery
		Paging
	}) (Page[Item], error) {
		return pageOf(ctx, s, in.filter, in.Paging, ListItems)
	})
	get(s, "/items/counts", "count-items", "How many items there are, by status", func(ctx context.Context, in *ItemQuery) (Counted, error) {
		return countOf(ctx, s, in.filter, s.cfg.Store.CountItems)
	})
	get(s, "/workflows/{workflow}/items/{item}", "show-item", "One item", func(ctx context.Context, in *struct {
		Workflow keep.WorkflowName `path:"workflow"`
		ID       string            `path:"item"`
	}) (Item, error) {
		return ShowItem(ctx, s.cfg.Store, in.Workflow, in.ID)
	})
}

func (s *Server) readEscalations() {
	get(s, "/escalations", "list-escalations", "Questions to people", func(ctx context.Context, in *struct {
		EscalationQuery
		Paging
	}) (Page[Answered], error) {
		answers, asked := []Answered{}, []Escalation{}
		next, err := s.questions(ctx, in.EscalationQuery, in.page(), func(q keep.Escalation) {
			one := Listed(q)
			answers, asked = append(answers, answered(one, q)), append(asked, one)
		})
		if err != nil {
			return Page[Answered]{}, err
		}
		asked, err = withRuns(ctx, s.cfg.Store, asked)
		for i, q := range asked {
			answers[i].Escalation = q
		}
		return paged(answers, next, err)
	})
	get(s, "/escalations/counts", "count-escalations", "How many questions there are, by kind", func(ctx context.Context, in *EscalationQuery) (Counted, error) {
		return s.countQuestions(ctx, *in)
	})
	get(s, "/escalations/{escalation}", "show-escalation", "One question, with its evidence", func(ctx context.Context, in *struct {
		ID keep.EscalationID `path:"escalation"`
	}) (Answered, error) {
		q, err := s.cfg.Store.Escalation(ctx, in.ID)
		if err != nil {
			return Answered{}, err
		}
		out := AnsweredOf(q)
		one, err := withRuns(ctx, s.cfg.Store, []Escalation{out.Escalation})
		out.Escalation = one[0]
		return out, err
	})
	get(s, "/escalations/{escalation}/notices", "list-notices", "Who was notified of a question, and who was not", func(ctx context.Context, in *struct {
		ID keep.EscalationID `path:"escalation"`
	}) (Page[Notice], error) {
		if _, err := s.cfg.Store.Escalation(ctx, in.ID); err != nil {
			return Page[Notice]{}, err
		}
		all, err := s.cfg.Store.Notices(ctx, in.ID)
		return paged(each(all, NoticeOf), "", err)
	})
}

func (s *Server) readWorkflows() {
	get(s, "/workflows", "list-workflows", "Every workflow, by name", func(ctx context.Context, _ *struct{}) (Page[Workflow], error) {
		all, err := ListWorkflows(ctx, s.cfg.Store)
		return paged(all, "", err)
	})
	op := s.operation(http.MethodGet, "/workflows/{workflow}", "show-workflow", "One workflow; its ETag is its version", access.Viewer)
	register(s, op, func(ctx context.Context, in *sourcePath) (*tagged, error) {
		show := ShowWorkflow
		if in.Source {
			show = ShowSource
		}
		w, err := show(ctx, s.cfg.Store, in.Workflow)
		if err != nil {
			return nil, s.problem(ctx, err)
		}
		return &tagged{ETag: etag(w.Version), Body: w}, nil
	})
	get(s, "/workflows/{workflow}/versions", "list-versions", "Versions of a workflow, newest first", func(ctx context.Context, in *WorkflowPath) (Page[Version], error) {
		all, err := s.versions(ctx, in.Workflow)
		return paged(all, "", err)
	})
}

// versions returns those of a workflow. One whose first version waits for a person has no
// row yet.
func (s *Server) versions(ctx context.Context, name keep.WorkflowName) ([]Version, error) {
	proposed, err := s.cfg.Store.Proposals(ctx, name)
	if err != nil {
		return nil, err
	}
	w, err := s.cfg.Store.Workflow(ctx, name)
	if err != nil && (len(proposed) == 0 || !errors.Is(err, keep.ErrNotFound)) {
		return nil, err
	}
	all, err := s.cfg.Store.Deployments(ctx, name)
	return VersionsOf(w.Version, all, proposed), err
}

// A WorkflowPath is the workflow of a path.
type WorkflowPath struct {
	Workflow keep.WorkflowName `path:"workflow"`
}

// sourcePath is a workflow, and whether to show its source.
type sourcePath struct {
	WorkflowPath
	Source bool `query:"source" doc:"also the text of the files of the version"`
}

// tagged is a workflow with the tag that a deploy can compare.
type tagged struct {
	ETag string `header:"ETag"`
	Body Workflow
}

// etag returns the tag of a version.
func etag(version string) string { return `"` + version + `"` }

package api

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/api/access"
	"github.com/keep-run/keep/idempotency"
	"github.com/keep-run/keep/law/budget"
	"github.com/keep-run/keep/law/canonical"
	"github.com/keep-run/keep/operator"
	"github.com/keep-run/keep/store"
)

// maxNamed is the most things that one request may name (law: bounded).
const maxNamed = 1000

// actions registers everything that changes something.
func (s *Server) actions() {
	post(s, "/escalations/{escalation}/decision", "decide", "Answer a question; the second of two answers gets 409", s.decide)
	post(s, "/inputs/skip", "skip-inputs", "Leave out pending inputs, or say what that would do", s.skipInputs)
	post(s, "/inputs/skip-all", "skip-all-inputs", "Leave all pending inputs that match undone, in parts, or look how many there are", s.skipAll)
	post(s, "/workflows/{workflow}/topics/{topic}/skip", "skip-events", "Leave out pending events, or say what that would do", s.skipEvents)
	post(s, "/workflows/{workflow}/items/skip", "skip-items", "Leave out items that are not done, or say which could be", s.skipItems)
	post(s, "/inputs/unskip", "unskip-inputs", "Undo the skip of inputs, as far as nothing depends on it", s.unskipInputs)
	post(s, "/workflows/{workflow}/topics/{topic}/unskip", "unskip-events", "Undo the skip of events, of all or of none", s.unskipEvents)
	post(s, "/workflows/{workflow}/topics/{topic}/redo", "redo-events", "Do finished events again as new attempts, all or none, or look what that would cause", s.redoEvents)
	post(s, "/inputs/{input}/redo", "redo-input", "Do the events of an input again that came from outside, or look what that would cause", s.redoInput)
	post(s, "/workflows/{workflow}/items/unskip", "unskip-items", "Undo the skip of items, or look which could be", s.unskipItems)
	post(s, "/workflows/{workflow}/items/reprocess", "reprocess-items", "Do items again as a new attempt, or look which could be", s.reprocessItems)
	post(s, "/runs/{run}/cancel", "cancel-run", "End a run before its call, or say what that would do", s.cancelRun)
	post(s, "/runs/{run}/retry", "retry-run", "Bring the next attempt or lookup of a run forward, or say what that would do", s.retryRun)
	post(s, "/workflows/{workflow}/pause", "pause", "Let the current call finish, then start nothing new", s.pause)
	post(s, "/workflows/{workflow}/resume", "resume", "Let a paused workflow continue", s.resume)
	post(s, "/workflows/{workflow}/trigger", "trigger", "Run a producer or a job now", s.trigger)
	s.checkpoints()
	s.publishes()
	s.deploys()
	s.proposals()
	s.replays()
	s.compares()
	s.records()
	s.tokens()
	s.audit()
	s.accounts()
	s.grants()
}

// post registers an action whose answer is what f returns.
func post[I, O any](s *Server, path, id, summary string, f func(context.Context, *I) (O, error)) {
	as(s, access.Operator, http.MethodPost, path, id, summary, f)
}

// decision returns what the caller decided.
func decision(ctx context.Context, a keep.Action, note string) keep.Decision {
	id, _ := access.From(ctx)
	from := "api"
	if id.Via == access.ViaSocket {
		from = "cli" // nothing else has the socket
	}
	return keep.Decision{Action: a, By: id.Name, From: from, Note: note}
}

// A DecisionRequest is an answer to a question.
type DecisionRequest struct {
	Action  keep.Action `json:"action" minLength:"1"`
	Note    string      `json:"note,omitempty" maxLength:"4000"`
	Confirm bool        `json:"confirm,omitempty" doc:"needed for actions that may send something again"`

	// Result distinguishes null, which is a result, from nothing.
	Result json.RawMessage `json:"result,omitempty" doc:"happened, and treat-as-done of an approval: what the call would have answered; null says that nothing is known of it"`

	Limit float64 `json:"limit,omitempty" doc:"raise: the limit that the budget gets, more than 0"`
	Until *Time   `json:"until,omitempty" doc:"raise: when the raise ends; without it, it has no end"`
}

// needsConfirmation is the problem of an action that was not confirmed.
func needsConfirmation(a keep.Action, effect string) error {
	return problemOf(http.StatusUnprocessableEntity, KindConfirm, fmt.Sprintf(
		`%s %s; nothing was changed. Repeat the request with "confirm": true`, a, effect))
}

// decide answers a question. If it was already answered, the problem names who
// answered it.
func (s *Server) decide(ctx context.Context, in *struct {
	ID   keep.EscalationID `path:"escalation"`
	Body DecisionRequest
}) (Answered, error) {
	if in.Body.Action.NeedsConfirmation() && !in.Body.Confirm {
		q, err := s.cfg.Store.Escalation(ctx, in.ID)
		if err != nil {
			return Answered{}, err
		}
		for _, c := range q.Choices {
			if q.ClosedAt.IsZero() && c.Action == in.Body.Action {
				return Answered{}, needsConfirmation(c.Action, c.Effect+": "+shorten(q.Attempted, 2000))
			}
		}
	}
	if err := s.mayAnswer(ctx, in.ID, in.Body.Action); err != nil {
		return Answered{}, err
	}
	d := decision(ctx, in.Body.Action, in.Body.Note)
	if d.Result = in.Body.Result; d.Result != nil && d.Action != keep.Happened && d.Action != keep.TreatAsDone {
		return Answered{}, problemOf(http.StatusUnprocessableEntity, KindResult, fmt.Sprintf("%s takes no result; only happened and treat-as-done do", d.Action))
	}
	if err := raised(&d, in.Body); err != nil {
		return Answered{}, err
	}
	err := s.cfg.Actor.Decide(ctx, in.ID, d)
	_, refused := errors.AsType[*operator.ActionError](err)
	late := errors.Is(err, keep.ErrDecided) || errors.Is(err, keep.ErrStale)
	if err != nil && !refused && !late {
		return Answered{}, err
	}
	q, readErr := s.cfg.Store.Escalation(ctx, in.ID)
	switch {
	case readErr != nil:
		return Answered{}, readErr
	case err == nil:
		return AnsweredOf(q), nil
	case late && idempotency.Repeated(ctx):
		taken, readErr := s.isTaken(ctx, q, d)
		if readErr != nil {
			return Answered{}, readErr
		}
		if taken {
			return AnsweredOf(q), nil
		}
	}
	return Answered{}, notDecided(err, q, in.Body.Action)
}

// isTaken reports whether a question has the decision that a request takes again, whose answer was lost. A result of a call that
// happened is with its record, and a limit with its budget.
func (s *Server) isTaken(ctx context.Context, q keep.Escalation, d keep.Decision) (bool, error) {
	was := q.Decision
	if was == nil || was.Action != d.Action || was.By != d.By || was.From != d.From || was.Note != d.Note {
		return false, nil
	}
	switch {
	case d.Action == keep.Raise:
		row, err := s.cfg.Store.Gate(ctx, keep.BudgetGate(q.Budget))
		if err != nil {
			return false, err
		}
		state, err := budget.Read(row, func(id keep.EscalationID) (keep.Escalation, error) { return s.cfg.Store.Escalation(ctx, id) })
		up := state.Raise
		return up != nil && up.By == was.By && up.At.Equal(was.At) && up.Limit == d.Limit && up.Until.Equal(d.Until), err
	case d.Action == keep.Happened && d.Result != nil:
		m, err := s.cfg.Store.Mutation(ctx, q.Mutation)
		return sameJSON(m.Result, d.Result), err
	}
	return sameJSON(was.Result, d.Result), nil
}

// sameJSON reports whether two texts are the same value, or neither is there.
func sameJSON(a, b json.RawMessage) bool {
	if a == nil || b == nil {
		return a == nil && b == nil
	}
	x, err := canonical.Exact(a)
	y, otherErr := canonical.Exact(b)
	if err != nil || otherErr != nil {
		return bytes.Equal(a, b)
	}
	return bytes.Equal(x, y)
}

// raised adds what raise gives to a budget.
func raised(d *keep.Decision, in DecisionRequest) error {
	if d.Action != keep.Raise {
		if in.Limit != 0 || in.Until != nil {
			return problemOf(http.StatusUnprocessableEntity, KindLimit, fmt.Sprintf("%s takes no limit; only raise does", d.Action))
		}
		return nil
	}
	var err error
	if d.Limit, err = budget.FromFloat(in.Limit); err != nil || d.Limit == 0 {
		return problemOf(http.StatusUnprocessableEntity, KindLimit, "raise needs the limit that the budget gets, more than 0")
	}
	if in.Until == nil {
		return nil
	}
	if d.Until = time.Time(*in.Until); d.Until.IsZero() { // which would be no end
		return problemOf(http.StatusUnprocessableEntity, KindLimit, "raise: its end is over already; leave out until for a raise without an end")
	}
	return nil
}

// mayAnswer refuses an answer by which a caller would give what its role may not give.
func (s *Server) mayAnswer(ctx context.Context, id keep.EscalationID, a keep.Action) error {
	who, _ := access.From(ctx)
	if who.Role.Covers(access.Admin) {
		return nil
	}
	what, needs := "to raise the limit of a budget", access.Admin
	if a != keep.Raise {
		q, err := s.cfg.Store.Escalation(ctx, id)
		if err != nil {
			return err
		}
		if needs, err = MayDecide(ctx, s.cfg.Store, q); err != nil || needs == "" || who.Role.Covers(needs) {
			return err
		}
		what = "to answer a question of kind " + string(q.Kind)
	}
	return problemOf(http.StatusForbidden, KindForbidden, fmt.Sprintf("%s has the role %s; %s needs %s", who.Name, who.Role, what, needs))
}

// notDecided says why an action was refused; q is the question as it is now. Who is
// overtaken may find the question decided, or only what it is about in another state.
func notDecided(err error, q keep.Escalation, action keep.Action) error {
	switch {
	case q.ClosedAt.IsZero() && errors.Is(err, keep.ErrDecided): // it ended, and nobody closed it yet
		return problemOf(http.StatusConflict, KindDecided, err.Error())
	case q.ClosedAt.IsZero() && len(q.Choices) > 0 && !q.Allows(action):
		return problemOf(http.StatusConflict, KindNotOffered,
			fmt.Sprintf("question %s does not offer %q; choose from %s", q.ID, string(action), actionsOf(q)))
	case q.ClosedAt.IsZero():
		return err
	case q.Decision == nil && errors.Is(err, keep.ErrDecided):
		return problemOf(http.StatusConflict, KindDecided, err.Error())
	case q.Decision == nil:
		return problemOf(http.StatusConflict, KindDecided,
			fmt.Sprintf("question %s was closed at %s, since it no longer applied", q.ID, Time(q.ClosedAt)))
	}
	return problemOf(http.StatusConflict, KindDecided, fmt.Sprintf("question %s: already decided: %s decided %s at %s, from the %s",
		q.ID, q.Decision.By, q.Decision.Action, Time(q.Decision.At), q.Decision.From))
}

// actionsOf lists what a question offers.
func actionsOf(q keep.Escalation) string {
	return strings.Join(each(q.Choices, func(c keep.Choice) string { return string(c.Action) }), ", ")
}

// A Skipped is what skipping did, or would do.
type Skipped struct {
	Input    *keep.InputID `json:"input" doc:"null: events were named"`
	Preview  bool          `json:"preview" doc:"nothing was done"`
	Skipped  int           `json:"skipped" doc:"events that are skipped"`
	InRun    int           `json:"in_run" doc:"preview: events that a run holds; it is ended if it has not made its call"`
	Aborted  []keep.RunID  `json:"aborted" doc:"runs that were ended before their call"`
	TooLate  int           `json:"too_late" doc:"events whose run is past its call, and completes"`
	Finished int           `json:"finished" doc:"events that were consumed or skipped before"`
}

func skippedOf(r operator.SkipResult) Skipped {
	return Skipped{Skipped: r.Skipped, Aborted: list(r.Aborted), TooLate: r.TooLate, Finished: r.Finished}
}

// wouldSkip counts what skipping an event would do.
func (s *Skipped) wouldSkip(e keep.Event) {
	switch {
	case e.Free():
		s.Skipped++
	case e.Status == keep.EventPending:
		s.InRun++
	default:
		s.Finished++
	}
}

// skipInputs skips the inputs that are named, or all that a filter selects: all
// of them are found before the first is skipped, and those that somebody takes up again meanwhile are left alone.
func (s *Server) skipInputs(ctx context.Context, in *struct {
	Body struct {
		IDs   []keep.InputID `json:"ids,omitempty" maxItems:"1000"`
		Match *struct {
			Workflow keep.WorkflowName `json:"workflow,omitempty"`
			Text     string            `json:"q,omitempty" maxLength:"200"`
		} `json:"match,omitempty" doc:"all pending inputs that match, instead of ids"`
		Note    string `json:"note,omitempty" maxLength:"4000"`
		Preview bool   `json:"preview,omitempty" doc:"only say what would be done"`
	}
}) (Page[Skipped], error) {
	var inputs []keep.Input
	skip := s.cfg.Actor.SkipInput
	switch {
	case (len(in.Body.IDs) == 0) == (in.Body.Match == nil):
		return Page[Skipped]{}, problemOf(http.StatusUnprocessableEntity, KindAmbiguous, "name either ids or a match")
	case in.Body.Match != nil:
		at := s.cfg.Clock().UTC().Truncate(time.Millisecond) // as the times of stores
		skip = func(ctx context.Context, w keep.WorkflowName, id keep.InputID, d keep.Decision) (operator.SkipResult, error) {
			return s.cfg.Actor.SkipInputAsOf(ctx, w, id, at, d)
		}
		f := keep.InputFilter{Workflow: in.Body.Match.Workflow, Text: in.Body.Match.Text, Status: keep.InputPending}
		found, more, err := s.matching(ctx, f)
		if err != nil {
			return Page[Skipped]{}, err
		}
		if more && !in.Body.Preview {
			return Page[Skipped]{}, problemOf(http.StatusUnprocessableEntity, KindTooMany, fmt.Sprintf("more than %d match; POST /inputs/skip-all does them in parts", maxNamed))
		}
		inputs = found
	}
	for _, id := range in.Body.IDs {
		input, err := s.cfg.Store.Input(ctx, id)
		if err != nil {
			return Page[Skipped]{}, err
		}
		inputs = append(inputs, input)
	}
	results := make([]Skipped, 0, len(inputs))
	for _, input := range inputs {
		res, err := s.skipInput(ctx, input, skip, in.Body.Note, in.Body.Preview)
		if errors.Is(err, operator.ErrTakenUp) {
			continue
		}
		if err != nil {
			return Page[Skipped]{}, s.partly(ctx, len(results), err)
		}
		results = append(results, res)
	}
	return Page[Skipped]{Items: results}, nil
}

// matching returns the newest inputs that a filter selects, as many as one request may change, and whether there are more. A page of a
// search may have fewer than it could, and a next.
func (s *Server) matching(ctx context.Context, f keep.InputFilter) (found []keep.Input, more bool, err error) {
	for in, err := range store.All(ctx, s.cfg.Store.Inputs, f, keep.Page{Limit: maxNamed + 1}) {
		if err != nil || len(found) == maxNamed {
			return found, err == nil, err
		}
		found = append(found, in)
	}
	return found, false, nil
}

// skipInput skips one input, or says what that would do.
func (s *Server) skipInput(ctx context.Context, input keep.Input, skip func(context.Context, keep.WorkflowName, keep.InputID, keep.Decision) (operator.SkipResult, error), note string, preview bool) (Skipped, error) {
	res := Skipped{Preview: true, Aborted: []keep.RunID{}}
	if preview {
		for e, err := range store.All(ctx, s.cfg.Store.Events, keep.EventFilter{Workflow: input.Workflow, Input: input.ID}, keep.Page{Limit: keep.MaxPage, Bare: true}) {
			if err != nil {
				return res, err
			}
			res.wouldSkip(e)
		}
	} else {
		done, err := skip(ctx, input.Workflow, input.ID, decision(ctx, keep.Skip, note))
		if err != nil {
			return res, err
		}
		res = skippedOf(done)
	}
	res.Input = &input.ID
	return res, nil
}

func (s *Server) skipEvents(ctx context.Context, in *struct {
	WorkflowPath
	Topic keep.TopicName `path:"topic"`
	Body  struct {
		IDs     []keep.MessageID `json:"ids" minItems:"1" maxItems:"1000"`
		Note    string           `json:"note,omitempty" maxLength:"4000"`
		Preview bool             `json:"preview,omitempty" doc:"only say what would be done"`
	}
}) (Skipped, error) {
	if !in.Body.Preview {
		res, err := s.cfg.Actor.SkipEvents(ctx, in.Workflow, in.Topic, in.Body.IDs, decision(ctx, keep.Skip, in.Body.Note))
		return skippedOf(res), err
	}
	res := Skipped{Preview: true, Aborted: []keep.RunID{}}
	for _, id := range once(in.Body.IDs) {
		e, err := s.cfg.Store.Event(ctx, in.Workflow, in.Topic, id)
		if err != nil {
			return Skipped{}, err
		}
		res.wouldSkip(e)
	}
	return res, nil
}

// An itemsAction is a request to do something to items.
type itemsAction struct {
	WorkflowPath
	Body ItemsRequest
}

// An ItemDone is what became of one item.
type ItemDone struct {
	ID      string          `json:"id"`
	Done    bool            `json:"done" doc:"preview: it could be done"`
	Refused *string         `json:"refused" doc:"why not"`
	Status  keep.ItemStatus `json:"status" doc:"now"`
}

func (s *Server) skipItems(ctx context.Context, in *itemsAction) (Page[ItemDone], error) {
	return s.doItems(ctx, in, keep.Skip, s.cfg.Actor.SkipItem)
}

func (s *Server) reprocessItems(ctx context.Context, in *itemsAction) (Page[ItemDone], error) {
	if !in.Body.Confirm && !in.Body.Preview {
		return Page[ItemDone]{}, needsConfirmation(keep.Reprocess, "makes the calls of these items again")
	}
	return s.doItems(ctx, in, keep.Reprocess, s.cfg.Actor.ReprocessItem)
}

// shown returns the attempts that a request says, by item; nil: it says none.
func (in ItemsRequest) shown() (map[string]int, error) {
	if len(in.Attempts) == 0 {
		return nil, nil
	}
	if len(in.Attempts) != len(in.IDs) {
		return nil, problemOf(http.StatusUnprocessableEntity, KindAmbiguous,
			fmt.Sprintf("there are %d attempts of %d items; say one of each, in the order of ids", len(in.Attempts), len(in.IDs)))
	}
	of := make(map[string]int, len(in.IDs))
	for i, id := range in.IDs {
		if attempt, twice := of[id]; twice && attempt != in.Attempts[i] {
			return nil, problemOf(http.StatusUnprocessableEntity, KindAmbiguous, fmt.Sprintf("%q is named twice, with two attempts", id))
		}
		of[id] = in.Attempts[i]
	}
	return of, nil
}

// doItems does something to each item that allows it, once, however often it is named: what an item becomes after the first time
// would be changed by the second. All of them exist, or nothing is done.
func (s *Server) doItems(ctx context.Context, in *itemsAction, action keep.Action,
	do func(context.Context, keep.WorkflowName, string, keep.Decision) error) (Page[ItemDone], error) {
	shown, err := in.Body.shown()
	if err != nil {
		return Page[ItemDone]{}, err
	}
	var items []keep.Item
	for _, id := range once(in.Body.IDs) {
		it, err := s.cfg.Store.Item(ctx, in.Workflow, id)
		if err != nil {
			return Page[ItemDone]{}, err
		}
		items = append(items, it)
	}
	results := make([]ItemDone, 0, len(items))
	for _, it := range items {
		attempt, isShown := shown[it.ID]
		err := s.cfg.Actor.CanDoItem(it, action)
		switch {
		case err != nil:
		case isShown && attempt != it.Attempt:
			err = &operator.ItemError{Item: it.ID, Status: it.Status, Action: action, Why: fmt.Sprintf("it is at attempt %d, and what was shown is attempt %d", it.Attempt, attempt)}
		case in.Body.Preview:
		case isShown && action == keep.Reprocess:
			err = s.cfg.Actor.ReprocessAttempt(ctx, it.Workflow, it.ID, attempt, decision(ctx, action, in.Body.Note))
		case isShown && action == keep.Skip:
			err = s.cfg.Actor.SkipAttempt(ctx, it.Workflow, it.ID, attempt, decision(ctx, action, in.Body.Note))
		case isShown && action == keep.Unskip:
			err = s.cfg.Actor.UnskipAttempt(ctx, it.Workflow, it.ID, attempt, decision(ctx, action, in.Body.Note))
		default:
			err = do(ctx, it.Workflow, it.ID, decision(ctx, action, in.Body.Note))
		}
		if err != nil && !isRefusal(err) {
			return Page[ItemDone]{}, s.partly(ctx, len(results), err)
		}
		res := ItemDone{ID: it.ID, Done: err == nil, Status: it.Status}
		if err != nil {
			res.Refused = orNull(err.Error())
		}
		if now, err := s.cfg.Store.Item(ctx, it.Workflow, it.ID); err == nil {
			res.Status = now.Status
		}
		results = append(results, res)
	}
	return Page[ItemDone]{Items: results}, nil
}

// once returns ids in their order, each once.
func once[T comparable](ids []T) []T {
	out, seen := make([]T, 0, len(ids)), make(map[T]bool, len(ids))
	for _, id := range ids {
		if !seen[id] {
			seen[id], out = true, append(out, id)
		}
	}
	return out
}

// partly is the error of a list of which the first n were gone through: its status is none of those that say that
// nothing was done.
func (s *Server) partly(ctx context.Context, n int, err error) error {
	if n == 0 {
		return err
	}
	return problemOf(http.StatusInternalServerError, KindInternal,
		fmt.Sprintf("the first %d of the list were gone through, and the next failed: %s", n, s.problem(ctx, err).Detail))
}

// isRefusal reports whether err says that an item or input is not in the state that the
// action needs: the others can still be done.
func isRefusal(err error) bool {
	if _, ok := errors.AsType[*operator.ItemError](err); ok {
		return true
	}
	if _, ok := errors.AsType[*operator.ActionError](err); ok {
		return true
	}
	if _, ok := errors.AsType[*operator.UnskipError](err); ok {
		return true
	}
	if _, ok := errors.AsType[*operator.RunError](err); ok {
		return true
	}
	return errors.Is(err, keep.ErrStale) || errors.Is(err, keep.ErrDecided)
}

// A Pause may say why.
type Pause struct {
	Note      string `json:"note,omitempty" maxLength:"4000" doc:"why; it is shown until the workflow is resumed"`
	IfRunning bool   `json:"if_running,omitempty" doc:"if it is paused already, that is refused as stale, and its note stays"`
}

// A Resume may say why, and what it resumes.
type Resume struct {
	Note   string  `json:"note,omitempty" maxLength:"4000" doc:"why, kept with who resumed it"`
	IfNote *string `json:"if_note,omitempty" maxLength:"4000" doc:"if it is not paused with this note, that is refused as stale"`
}

func (s *Server) pause(ctx context.Context, in *struct {
	WorkflowPath
	Body *Pause
}) (Workflow, error) {
	p := cmp.Or(in.Body, new(Pause))
	d := decision(ctx, keep.Pause, p.Note)
	return s.setPaused(ctx, in.Workflow, func() error {
		if p.IfRunning {
			return s.otherwisePaused(ctx, in.Workflow, "if_running", s.cfg.Actor.PauseRunning(ctx, in.Workflow, d))
		}
		return s.cfg.Actor.Pause(ctx, in.Workflow, d)
	})
}

func (s *Server) resume(ctx context.Context, in *struct {
	WorkflowPath
	Body *Resume
}) (Workflow, error) {
	r := cmp.Or(in.Body, new(Resume))
	d := decision(ctx, keep.Resume, r.Note)
	return s.setPaused(ctx, in.Workflow, func() error {
		if r.IfNote != nil {
			return s.otherwisePaused(ctx, in.Workflow, "if_note", s.cfg.Actor.ResumePaused(ctx, in.Workflow, *r.IfNote, d))
		}
		return s.cfg.Actor.Resume(ctx, in.Workflow, d)
	})
}

// otherwisePaused says of a workflow that is not paused as the condition has it how it is, and that nothing was changed.
func (s *Server) otherwisePaused(ctx context.Context, name keep.WorkflowName, condition string, err error) error {
	if !errors.Is(err, keep.ErrStale) {
		return err
	}
	w, readErr := ShowWorkflow(ctx, s.cfg.Store, name)
	if readErr != nil {
		return readErr
	}
	state := "is not paused"
	switch {
	case w.Paused && w.PauseNote != nil:
		state = fmt.Sprintf("is paused, with the note %q", shorten(*w.PauseNote, 200))
	case w.Paused:
		state = "is paused, without a note"
	}
	return problemOf(http.StatusConflict, KindStale, fmt.Sprintf("workflow %s %s; nothing was changed. Leave out %s to do it all the same", name, state, condition))
}

// setPaused looks the workflow up first: a mistyped name is not found, and
// nothing is paused.
func (s *Server) setPaused(ctx context.Context, name keep.WorkflowName, set func() error) (Workflow, error) {
	if _, err := ShowWorkflow(ctx, s.cfg.Store, name); err != nil {
		return Workflow{}, err
	}
	if err := set(); err != nil {
		return Workflow{}, err
	}
	return ShowWorkflow(ctx, s.cfg.Store, name)
}

func (s *Server) trigger(ctx context.Context, in *struct {
	WorkflowPath
	Body struct {
		Handler keep.HandlerName `json:"handler,omitempty" doc:"a producer or a job; empty: the only one"`
		Note    string           `json:"note,omitempty" maxLength:"4000" doc:"why, kept with who asked for it"`
	}
}) (Workflow, error) {
	w, err := ShowWorkflow(ctx, s.cfg.Store, in.Workflow)
	if err != nil {
		return Workflow{}, err
	}
	handler, err := starter(w, in.Body.Handler)
	if err != nil {
		return Workflow{}, err
	}
	if err := s.cfg.Actor.Trigger(ctx, w.Name, handler, decision(ctx, keep.Trigger, in.Body.Note)); err != nil {
		return Workflow{}, err
	}
	return ShowWorkflow(ctx, s.cfg.Store, in.Workflow)
}

// starter returns the handler that is meant: a producer or a job.
func starter(w Workflow, name keep.HandlerName) (keep.HandlerName, error) {
	var found []string
	known := false
	for _, h := range w.Handlers {
		known = known || h.Name == name
		if h.Kind != keep.Consumer {
			found = append(found, string(h.Name))
		}
	}
	switch {
	case name != "" && !known:
		return "", &keep.NotFoundError{What: "handler", ID: string(w.Name) + "/" + string(name)}
	case slices.Contains(found, string(name)):
		return name, nil
	case len(found) == 0:
		return "", problemOf(http.StatusUnprocessableEntity, KindConsumer,
			fmt.Sprintf("workflow %s has no producer and no job; its consumers run when events come", w.Name))
	case name != "":
		return "", problemOf(http.StatusUnprocessableEntity, KindConsumer,
			fmt.Sprintf("%s is a consumer; it runs when an event comes. To be started there are %s", name, strings.Join(found, ", ")))
	case len(found) > 1:
		return "", problemOf(http.StatusUnprocessableEntity, KindAmbiguous,
			fmt.Sprintf("workflow %s has several; name one of %s", w.Name, strings.Join(found, ", ")))
	}
	return keep.HandlerName(found[0]), nil
}

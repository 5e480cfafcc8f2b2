package api

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/law/search"
	"github.com/keep-run/keep/operator"
	"github.com/keep-run/keep/store"
)

// To skip all inputs that match, however many, goes in parts. Each part is one
// request, some commits, and leads to the next by a cursor, which holds all there is
// to know: there is no job in the background, and nothing to clean up. The cursor
// begins below the newest input of the plan, so what comes in later is left alone. So is an
// older one that somebody had done again since the plan was made.
//
// If the process dies in a part, each of its commits is there whole or not at all.
// The same cursor then continues: what is skipped is not pending any more, so it is
// neither found nor counted again.

// A part takes so long, and so many inputs, at most.
const (
	PartTime   = 3 * time.Second
	PartInputs = 20_000
)

// A SkipPlan is a skip of all pending inputs that match, as far as it came.
type SkipPlan struct {
	Workflow keep.WorkflowName `json:"w,omitempty"` // empty: all
	Text     string            `json:"q,omitempty"` // words of titles; empty: any
	Total    int               `json:"n"`           // pending inputs that matched when it was made
	Made     time.Time         `json:"t,omitzero"`  // when that was; zero: by a version of before
	First    keep.InputID      `json:"f,omitempty"` // the newest, until it is skipped
	After    string            `json:"a,omitempty"` // cursor of the list, to those before it

	// What was done so far, as far as answers arrived.
	Done operator.InputsSkipped `json:"d"`
}

// filter returns what is left to skip.
func (p SkipPlan) filter() keep.InputFilter {
	return keep.InputFilter{Workflow: p.Workflow, Text: p.Text, Status: keep.InputPending}
}

// Over reports whether all of the plan was done.
func (p SkipPlan) Over() bool { return p.First == "" && p.After == "" }

// Cursor returns the plan as a text, and an empty one if it is over.
func (p SkipPlan) Cursor() string {
	if p.Over() {
		return ""
	}
	text, err := json.Marshal(p)
	if err != nil {
		panic(err) // it has strings and numbers only
	}
	return base64.RawURLEncoding.EncodeToString(text)
}

// ParseSkipPlan reads what Cursor wrote. Its error is keep.ErrBadCursor.
func ParseSkipPlan(cursor string) (p SkipPlan, err error) {
	text, err := base64.RawURLEncoding.DecodeString(cursor)
	if err == nil {
		err = json.Unmarshal(text, &p)
	}
	if err != nil || p.Over() || p.Total < 0 {
		return SkipPlan{}, fmt.Errorf("cursor %.40q: %w", cursor, keep.ErrBadCursor)
	}
	return p, nil
}

// PlanSkip says what a skip of all pending inputs that match would do. It changes
// nothing. The number is exact. Now is the time by which what people decide is dated.
func PlanSkip(ctx context.Context, s store.Inputs, w keep.WorkflowName, text string, now time.Time) (SkipPlan, error) {
	p := SkipPlan{Workflow: w, Text: text, Made: now.UTC().Truncate(time.Millisecond)} // as the times of stores
	if err := p.find(ctx, s); err != nil || p.Over() {
		return p, err
	}
	// After the newest was found: what comes in between may be counted, and is left alone.
	counts, err := s.CountInputs(ctx, p.filter())
	if err != nil {
		return p, err
	}
	if p.Total = counts[keep.InputPending]; p.Text != "" && p.Total > search.MaxCount {
		p.Total, err = countPending(ctx, s, p.filter())
	}
	return p, err
}

// find looks for the newest input of a plan.
func (p *SkipPlan) find(ctx context.Context, s store.Inputs) error {
	for page := (keep.Page{Limit: 1}); ; page.After = p.After {
		first, next, err := s.Inputs(ctx, p.filter(), page)
		if err != nil {
			return err
		}
		if p.After = next; len(first) > 0 {
			p.First = first[0].ID
		}
		if len(first) > 0 || next == "" {
			return nil
		}
	}
}

// countPending counts what a list returns, a page at a time: counts of a text are bounded.
func countPending(ctx context.Context, s store.Inputs, f keep.InputFilter) (n int, err error) {
	for _, err := range store.All(ctx, s.Inputs, f, keep.Page{Limit: keep.MaxPage, Bare: true}) {
		if err != nil {
			return 0, err
		}
		n++
	}
	return n, nil
}

// InputSkipper skips inputs of a workflow together, without those of which something was done again at that time or later;
// *operator.Operator does.
type InputSkipper interface {
	SkipInputsAsOf(ctx context.Context, w keep.WorkflowName, ids []keep.InputID, at time.Time, d keep.Decision) (operator.InputsSkipped, error)
}

// SkipPart does the next part of a plan and returns what is left of it. After an error
// that is the plan as far as it was done.
func SkipPart(ctx context.Context, s store.Inputs, to InputSkipper, p SkipPlan, d keep.Decision, until time.Time) (SkipPlan, error) {
	if p.First != "" {
		in, err := s.Input(ctx, p.First)
		if err == nil {
			err = skipSome(ctx, to, &p, []keep.Input{in}, d)
		}
		if err != nil && !errors.Is(err, keep.ErrNotFound) {
			return p, err
		}
		p.First = ""
	}
	for n := 0; !p.Over() && n < PartInputs && time.Now().Before(until); {
		ins, next, err := s.Inputs(ctx, p.filter(), keep.Page{Limit: operator.MaxSkip, After: p.After})
		if err != nil {
			return p, err
		}
		if err := skipSome(ctx, to, &p, ins, d); err != nil {
			return p, err
		}
		n += len(ins)
		p.After = next
	}
	return p, nil
}

// skipSome skips inputs of any workflows, those of each together.
func skipSome(ctx context.Context, to InputSkipper, p *SkipPlan, ins []keep.Input, d keep.Decision) error {
	of := make(map[keep.WorkflowName][]keep.InputID)
	var names []keep.WorkflowName
	for _, in := range ins {
		if in.Status != keep.InputPending { // it was done meanwhile
			continue
		}
		if of[in.Workflow] == nil {
			names = append(names, in.Workflow)
		}
		of[in.Workflow] = append(of[in.Workflow], in.ID)
	}
	slices.Sort(names)
	for _, w := range names {
		done, err := to.SkipInputsAsOf(ctx, w, of[w], p.Made, d)
		p.Done = p.Done.Plus(done)
		if err != nil {
			return err
		}
	}
	return nil
}

// SkippedAll is how far a skip of all that match has come.
type SkippedAll struct {
	Total   int     `json:"total" doc:"pending inputs that matched at the beginning, exactly"`
	Skipped int     `json:"skipped" doc:"inputs that are skipped so far"`
	TooLate int     `json:"too_late" doc:"inputs that are skipped, but a run past its call has an event of them and completes"`
	Aborted int     `json:"aborted" doc:"runs that were ended before their call"`
	Cursor  *string `json:"cursor" doc:"continues; null: all of them are done"`
}

// SkippedAllOf returns the object of p.
func SkippedAllOf(p SkipPlan) SkippedAll {
	out := SkippedAll{Total: p.Total, Skipped: p.Done.Inputs, TooLate: p.Done.Late, Aborted: p.Done.Aborted}
	if cursor := p.Cursor(); cursor != "" {
		out.Cursor = &cursor
	}
	return out
}

// skipAll begins a skip of all that match, or continues one.
func (s *Server) skipAll(ctx context.Context, in *struct {
	Body struct {
		Match *struct {
			Workflow keep.WorkflowName `json:"workflow,omitempty"`
			Text     string            `json:"q,omitempty" maxLength:"200"`
		} `json:"match,omitempty" doc:"begin: all pending inputs that match"`
		Cursor  string `json:"cursor,omitempty" maxLength:"4000" doc:"to continue: that of the last answer"`
		Note    string `json:"note,omitempty" maxLength:"4000"`
		Preview bool   `json:"preview,omitempty" doc:"only say how many there are; the cursor does it"`
	}
}) (SkippedAll, error) {
	if (in.Body.Match == nil) == (in.Body.Cursor == "") || in.Body.Preview && in.Body.Match == nil {
		return SkippedAll{}, problemOf(http.StatusUnprocessableEntity, KindAmbiguous, "name either a match or a cursor; a preview is of a match")
	}
	var plan SkipPlan
	var err error
	if in.Body.Match != nil {
		plan, err = PlanSkip(ctx, s.cfg.Store, in.Body.Match.Workflow, in.Body.Match.Text, s.cfg.Clock())
	} else {
		plan, err = ParseSkipPlan(in.Body.Cursor)
	}
	if err != nil || in.Body.Preview || plan.Over() {
		return SkippedAllOf(plan), err
	}
	before := plan.Done
	if plan, err = SkipPart(ctx, s.cfg.Store, s.cfg.Actor, plan, decision(ctx, keep.Skip, in.Body.Note), time.Now().Add(PartTime)); err == nil {
		return SkippedAllOf(plan), nil
	}
	if n := plan.Done.Inputs + plan.Done.Late - before.Inputs - before.Late; n > 0 {
		err = problemOf(http.StatusInternalServerError, KindInternal,
			fmt.Sprintf("inputs that were skipped: %d; the next failed: %s; the cursor of before continues", n, s.problem(ctx, err).Detail))
	}
	return SkippedAll{}, err
}

// PlanSkipAll says how many pending inputs match; the cursor skips them.
func (c *Client) PlanSkipAll(ctx context.Context, w keep.WorkflowName, text string) (SkippedAll, error) {
	match := map[string]string{"workflow": string(w), "q": text}
	return act[SkippedAll](ctx, c, map[string]any{"match": match, "preview": true}, "inputs", "skip-all")
}

// SkipAll does the next part of a skip of all that match.
func (c *Client) SkipAll(ctx context.Context, cursor, note string) (SkippedAll, error) {
	return act[SkippedAll](ctx, c, withNote(map[string]any{"cursor": cursor}, note), "inputs", "skip-all")
}

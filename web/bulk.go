package web

import (
	"context"
	"net/http"
	"strconv"
	"time"

	"github.com/keep-run/keep"
)

// A request skips inputs for so long, and at most so many; then the page asks to go
// on, with how far it came. Nothing runs on behind a page that was closed.
const (
	bulkTime = 3 * time.Second
	bulkStep = 2000
)

// bulkData is a skip of all inputs that a filter matches: before it, under way,
// and after it.
type bulkData struct {
	Filter inputQuery
	Total  int // that matched when it was planned

	// First is the newest that was planned, until it is done; Cursor leads to
	// those before it. What came later is behind neither.
	First  keep.InputID
	Cursor string

	Rows []keep.Input // the first of them, in the plan

	// What was done so far.
	Begun, Over bool
	Skipped     int // inputs
	Aborted     int // runs that were ended before their call
	TooLate     int // inputs with a run past its call
	Left        int
}

// bulkPreview shows what would be skipped.
func (s *site) bulkPreview(r *http.Request) (page, error) {
	f, err := parseInputQuery(r.URL.Query())
	if err != nil {
		return page{}, err
	}
	f.Status, f.After = keep.InputPending, ""
	p := page{Title: "Skip all that match", Section: "inputs"}
	d := bulkData{Filter: f}
	if d.Total, err = s.countInputs(r.Context(), f.InputFilter); err != nil {
		return p, err
	}
	if d.Rows, _, err = s.cfg.Store.Inputs(r.Context(), f.InputFilter, keep.Page{Limit: 10}); err != nil {
		return p, err
	}
	first, cursor, err := s.cfg.Store.Inputs(r.Context(), f.InputFilter, keep.Page{Limit: 1})
	if err != nil {
		return p, err
	}
	if len(first) > 0 {
		d.First, d.Cursor = first[0].ID, cursor
	}
	p.Data = d
	return p, nil
}

// bulkSkip does one step of what bulkPreview showed.
func (s *site) bulkSkip(r *http.Request) (page, error) {
	if err := r.ParseForm(); err != nil {
		return page{}, err
	}
	f, err := parseInputQuery(r.PostForm)
	if err != nil {
		return page{}, err
	}
	f.Status, f.After = keep.InputPending, ""
	d := bulkData{Filter: f, First: keep.InputID(r.PostForm.Get("first")), Begun: true, Cursor: r.PostForm.Get("cursor")}
	for name, n := range map[string]*int{"total": &d.Total, "skipped": &d.Skipped, "aborted": &d.Aborted, "late": &d.TooLate} {
		if *n, err = strconv.Atoi(r.PostForm.Get(name)); err != nil || *n < 0 {
			return page{}, refusef("the form says %q for %s", cut(40, r.PostForm.Get(name)), name)
		}
	}
	if d.First == "" && d.Cursor == "" {
		return page{}, refusef("the form does not say which inputs were meant")
	}
	if err := s.bulkStep(r.Context(), &d, time.Now().Add(bulkTime)); err != nil {
		return page{}, err
	}
	d.Left = max(d.Total-d.Skipped-d.TooLate, 0)
	return page{Title: "Skip all that match", Section: "inputs", Data: d}, nil
}

// bulkStep skips inputs, newest first, until the time is over. Those that somebody
// else finished meanwhile are no longer in the list.
func (s *site) bulkStep(ctx context.Context, d *bulkData, until time.Time) error {
	if d.First != "" {
		in, err := s.cfg.Store.Input(ctx, d.First)
		if err != nil {
			return err
		}
		if err := s.bulkOne(ctx, d, in); err != nil {
			return err
		}
		d.First = ""
	}
	for done := 0; d.Cursor != "" && done < bulkStep && time.Now().Before(until); {
		ins, next, err := s.cfg.Store.Inputs(ctx, d.Filter.InputFilter, keep.Page{Limit: 50, After: d.Cursor})
		if err != nil {
			return err
		}
		for _, in := range ins {
			if err := s.bulkOne(ctx, d, in); err != nil {
				return err
			}
		}
		done += len(ins)
		d.Cursor = next
	}
	d.Over = d.Cursor == ""
	return nil
}

// bulkOne skips one input.
func (s *site) bulkOne(ctx context.Context, d *bulkData, in keep.Input) error {
	res, err := s.cfg.Actor.SkipInput(ctx, in.Workflow, in.ID)
	if err != nil {
		return err
	}
	if d.Aborted += len(res.Aborted); res.TooLate > 0 {
		d.TooLate++
	} else {
		d.Skipped++
	}
	return nil
}

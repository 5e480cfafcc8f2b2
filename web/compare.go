package web

import (
	"cmp"
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/api"
	"github.com/keep-run/keep/view"
)

// A compareForm offers to compare two versions of a workflow.
type compareForm struct {
	Workflow keep.WorkflowName
	From, To keep.Version   // what is offered first
	Ran      []keep.Version // that were deployed, newest first
	All      []keep.Version // with those that wait for a person in front
}

// compareFormOf returns the form of a workflow; nil if this host replays no runs, or there is
// nothing to compare.
func (s *site) compareFormOf(name keep.WorkflowName, deployed []keep.Deployment, proposed []keep.Proposal) *compareForm {
	deployed = slices.DeleteFunc(slices.Clone(deployed), inGo)
	if s.cfg.Replayer == nil || len(deployed) == 0 {
		return nil
	}
	f := &compareForm{Workflow: name}
	for _, p := range proposed {
		if p.State == keep.ProposalWaiting {
			f.All = append(f.All, p.Version)
		}
	}
	for _, d := range deployed[:min(len(deployed), maxShown)] {
		f.Ran = append(f.Ran, d.Version)
	}
	f.All = append(f.All, f.Ran...)
	f.From, f.To = f.Ran[0], f.All[0]
	// No proposal waits: what is offered is the version in force against the one before. With one, it
	// is the proposal against the version in force.
	if len(f.All) == len(f.Ran) && len(f.Ran) > 1 {
		f.From = f.Ran[1]
	}
	return f
}

// compareData is what another version would have done otherwise.
type compareData struct {
	api.Comparison
	Workflow keep.WorkflowName
	With     string // what the runs were gone through with
	Compared []comparedRun
	Calls    []api.ComparedMutation // the first of them
	Refuse   []string               // why the script was not taken
}

// A comparedRun is a run with what would have been otherwise, line by line.
type comparedRun struct {
	api.ComparedRun
	Titles []string // of its inputs
	Calls  []api.ComparedMutation
	Lines  []view.DiffLine
}

// Differs reports whether the run would have done something else, or nobody knows.
func (r comparedRun) Differs() bool { return r.Change != "same" }

// Began is when the run began.
func (r comparedRun) Began() time.Time { return time.Time(r.At) }

// compare says what another version would have done otherwise. It sends nothing.
func (s *site) compare(r *http.Request) (page, error) {
	w, err := s.cfg.Store.Workflow(r.Context(), keep.WorkflowName(r.PathValue("name")))
	if err != nil {
		return page{}, err
	}
	p := page{Title: "Comparison of " + string(w.Name), Section: "workflows"}
	if s.cfg.Replayer == nil {
		return p, refusef("this host replays no runs")
	}
	if err := parseForm(r); err != nil { // else a script that is too large would be none
		return p, err
	}
	d := &compareData{Workflow: w.Name}
	p.Data = d
	q := api.CompareRequest{From: r.PostForm.Get("from")}
	if source := r.PostForm.Get("source"); strings.TrimSpace(source) != "" {
		q.Script = &api.Script{File: "pasted.ts", Source: source} // JavaScript is TypeScript, too
		d.With = "the script that you pasted"
	} else {
		q.Version = r.PostForm.Get("version")
		d.With = "version " + q.Version
	}
	d.Comparison, err = s.cfg.Replayer.Compare(r.Context(), w.Name, q)
	if wrong, ok := errors.AsType[*api.ScriptError](err); ok {
		d.Refuse = strings.Split(wrong.Error(), "\n")
		d.From = cmp.Or(q.From, w.Version.String())
		p.Status = http.StatusUnprocessableEntity
		return p, nil
	}
	d.fill()
	return p, err
}

// fill makes the rows of the page: those that differ first, as they come.
func (d *compareData) fill() {
	d.Calls = d.Mutations[:min(len(d.Mutations), maxShown)]
	for _, run := range d.Runs[:min(len(d.Runs), maxShown)] {
		row := comparedRun{ComparedRun: run, Lines: view.Diff(effectLines(run.Before), effectLines(run.After))}
		for _, m := range d.Mutations {
			if m.Run == run.Run {
				row.Calls = append(row.Calls, m)
			}
		}
		if i := slices.IndexFunc(d.Inputs, func(in api.ComparedInput) bool { return run.Input != nil && in.ID == *run.Input }); i >= 0 {
			row.Titles = append(row.Titles, cmp.Or(d.Inputs[i].Title, d.Inputs[i].Name))
		}
		d.Compared = append(d.Compared, row)
	}
}

// effectLines returns what a run did as lines.
func effectLines(list []api.ComparedEffect) string {
	var b strings.Builder
	for _, e := range list {
		b.WriteString(e.Phase + " " + e.What + "\n" + indented(e.Value) + "\n")
	}
	return strings.TrimSuffix(b.String(), "\n")
}

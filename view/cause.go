package view

import (
	"cmp"
	"slices"

	"github.com/keep-run/keep"
)

// A Cause is what several open questions have in common: a service that fails, or a
// script with a mistake, asks once for each workflow or item that meets it.
type Cause struct {
	Kind      keep.EscalationKind
	Tool      string // the tool that was called; the handler, if no tool was
	Code      string // of the error; empty: the question has none
	Count     int
	Workflows []keep.WorkflowName // sorted
	Example   keep.EscalationID   // the newest of the questions
	All       []keep.EscalationID // newest first
}

// Key names the cause among those of the same time.
func (c Cause) Key() string { return string(c.Kind) + " " + c.Tool + " " + c.Code }

// Causes returns what the open questions are about, the most frequent first.
func (o *Overview) Causes() []Cause {
	calls := make(map[keep.MutationKey]keep.Mutation, len(o.Doubts))
	for _, m := range o.Doubts {
		calls[m.Key] = m
	}
	type group struct {
		kind       keep.EscalationKind
		tool, code string
	}
	at := make(map[group]int)
	var out []Cause
	for _, q := range o.Questions {
		tool, code := aboutCall(q, runOf(o.Runs[q.Workflow], q.Run), calls)
		of := group{q.Kind, tool, code}
		i, known := at[of]
		if !known {
			i, at[of] = len(out), len(out)
			out = append(out, Cause{Kind: q.Kind, Tool: tool, Code: code, Workflows: []keep.WorkflowName{}, Example: q.ID})
		}
		out[i].Count++
		out[i].All = append(out[i].All, q.ID)
		if q.Workflow != "" && !slices.Contains(out[i].Workflows, q.Workflow) {
			out[i].Workflows = append(out[i].Workflows, q.Workflow)
		}
	}
	for _, c := range out {
		slices.Sort(c.Workflows)
	}
	slices.SortStableFunc(out, func(a, b Cause) int { return cmp.Compare(b.Count, a.Count) })
	return out
}

// runOf returns the run of an id among those that are open; nil: it is not.
func runOf(runs []*Run, id keep.RunID) *Run {
	if i := slices.IndexFunc(runs, func(r *Run) bool { return r.ID == id }); i >= 0 {
		return runs[i]
	}
	return nil
}

// aboutCall returns the tool, or else the handler, that a question is about, and the
// code of the error. r is its run, if that is open, and calls are those that no
// open run waits for.
func aboutCall(q keep.Escalation, r *Run, calls map[keep.MutationKey]keep.Mutation) (tool, code string) {
	if m, ok := calls[q.Mutation]; ok && q.Mutation != "" {
		return string(m.Tool), codeOf(m.Error)
	}
	if r == nil {
		return "", ""
	}
	failure := r.Error
	if failure == nil {
		failure = r.Before
	}
	switch {
	case r.Call.Key != "" && r.Call.Key == q.Mutation:
		return string(r.Call.Tool), cmp.Or(codeOf(failure), codeOf(r.Call.Error))
	case failure != nil && failure.Tool != "":
		return string(failure.Tool), failure.Code
	}
	return string(r.Handler), codeOf(failure)
}

func codeOf(f *keep.Failure) string {
	if f == nil {
		return ""
	}
	return f.Code
}

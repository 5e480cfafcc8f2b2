package view

import (
	"cmp"
	"slices"
	"strings"

	"github.com/keep-run/keep"
)

// MaxGroups bounds the causes that a view tells apart, of each workflow by itself.
const MaxGroups = 1000

// A Cause is what several open questions have in common, in one workflow or in several.
type Cause struct {
	keep.QuestionCause
	Count     int
	Workflows []keep.WorkflowName // sorted
	Example   keep.EscalationID   // the newest of the questions
}

// Key names the cause among those of the same time.
func (c Cause) Key() string { return string(c.Kind) + " " + c.Tool + " " + c.Code }

// ParseCause reads what Key wrote; false: it did not.
func ParseCause(key string) (keep.QuestionCause, bool) {
	parts := strings.SplitN(key, " ", 3)
	if len(parts) != 3 {
		return keep.QuestionCause{}, false
	}
	return keep.QuestionCause{Kind: keep.EscalationKind(parts[0]), Tool: parts[1], Code: parts[2]}, true
}

// CausesOf returns what open questions are about, the most frequent first: those of a workflow, or all if w is empty. The groups
// are as the store returns them.
func CausesOf(groups []keep.QuestionGroup, w keep.WorkflowName) []Cause {
	at := make(map[keep.QuestionCause]int)
	var out []Cause
	for _, g := range groups {
		if w != "" && g.Workflow != w {
			continue
		}
		i, known := at[g.QuestionCause]
		if !known {
			i, at[g.QuestionCause] = len(out), len(out)
			out = append(out, Cause{QuestionCause: g.QuestionCause, Workflows: []keep.WorkflowName{}, Example: g.Newest})
		}
		if out[i].Count += g.Count; g.Workflow != "" {
			out[i].Workflows = append(out[i].Workflows, g.Workflow)
		}
	}
	for _, c := range out {
		slices.Sort(c.Workflows)
	}
	slices.SortStableFunc(out, func(a, b Cause) int { return cmp.Compare(b.Count, a.Count) })
	return out
}

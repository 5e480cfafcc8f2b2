package stored

import (
	"fmt"
	"slices"
	"strings"

	"github.com/keep-run/keep"
)

// A Selection is how both SQL stores select and count the rows of a noun: which columns a filter
// of type F compares, and the states, of type S, by which they are counted. How the rows are
// found, by which index and in which order, is the business of each store.
type Selection[F any, S ~string] struct {
	Kind    string   // one letter that marks the cursors of the list
	Table   string   // the workflow is a column of each
	State   string   // the column that counts are by
	States  []S      // every state there is
	Usual   S        // the state of most rows, which counts take for what the others leave; empty: none
	Name    string   // the column that tallies and words know beside the workflow; empty: none
	Open    string   // the condition of those that are open; empty: no filter asks for it
	Columns []string // those that a filter compares; the first is the workflow

	filter func(F) Filter
}

// A Filter is what a list or a count selects.
type Filter struct {
	Values []string // of the columns of the list; an empty one selects every row
	Open   bool     // only those that are open
	Few    bool     // few rows are selected, so that a count looks at each
	Text   string   // words that the rows have; empty: any
}

// newSelection completes a selection. columns are the names of those that a filter compares, in the
// order of its values.
func newSelection[F any, S ~string](l Selection[F, S], columns string, filter func(F) Filter) Selection[F, S] {
	l.Columns, l.filter = strings.Fields(columns), filter
	if n := len(filter(*new(F)).Values); n != len(l.Columns) {
		panic(fmt.Sprintf("the list of %ss compares %d columns and has %d values", l.Table, len(l.Columns), n))
	}
	return l
}

// Filter returns f as its columns have it.
func (l Selection[F, S]) Filter(f F) Filter { return l.filter(f) }

// Value returns what a filter wants of a column; empty: anything.
func (l Selection[F, S]) Value(f F, column string) string {
	if i := slices.Index(l.Columns, column); i >= 0 {
		return l.filter(f).Values[i]
	}
	return ""
}

// Workflow returns the one workflow that a filter selects; empty: all.
func (l Selection[F, S]) Workflow(f F) keep.WorkflowName {
	return keep.WorkflowName(l.Value(f, "workflow"))
}

// Only returns the one state that a filter selects; empty: all.
func (l Selection[F, S]) Only(f F) S { return S(l.Value(f, l.State)) }

// What both SQL stores list and count.
var (
	SelectRuns = newSelection(Selection[keep.RunFilter, keep.RunStatus]{
		Kind: "r", Table: "run", State: "status", States: keep.RunStatuses(), Usual: keep.StatusCommitted, Name: "handler", Open: "NOT run.closed",
	}, "workflow handler status", func(f keep.RunFilter) Filter {
		return Filter{
			Values: []string{string(f.Workflow), string(f.Handler), string(f.Status)}, Open: f.Open, Text: f.Text,
			Few: f.Chain != "" || f.Open || f.Status == keep.StatusActive, // of each lane one is active
		}
	})

	SelectMutations = newSelection(Selection[keep.MutationFilter, keep.MutationState]{
		Kind: "m", Table: "mutation", State: "state", States: keep.MutationStates(), Usual: keep.Applied, Name: "tool",
	}, "workflow state tool run item", func(f keep.MutationFilter) Filter {
		return Filter{
			Values: []string{string(f.Workflow), string(f.State), string(f.Tool), string(f.Run), f.Item}, Text: f.Text,
			Few: f.Input != "" || f.Run != "" || f.Item != "",
		}
	})

	SelectEvents = newSelection(Selection[keep.EventFilter, keep.EventStatus]{
		Kind: "e", Table: "event", State: "status", States: keep.EventStatuses(), Usual: keep.EventConsumed, Name: "topic",
	}, "workflow topic status", func(f keep.EventFilter) Filter {
		return Filter{Values: []string{string(f.Workflow), string(f.Topic), string(f.Status)}, Text: f.Text, Few: f.Input != ""}
	})

	SelectInputs = newSelection(Selection[keep.InputFilter, keep.InputStatus]{
		Kind: "i", Table: "input", State: "status", States: keep.InputStatuses(), Usual: keep.InputDone,
	}, "workflow status", func(f keep.InputFilter) Filter {
		return Filter{Values: []string{string(f.Workflow), string(f.Status)}, Text: f.Text}
	})

	SelectItems = newSelection(Selection[keep.ItemFilter, keep.ItemStatus]{
		Kind: "t", Table: "item", State: "status", States: keep.ItemStatuses(), Usual: keep.ItemDone,
	}, "workflow status", func(f keep.ItemFilter) Filter {
		return Filter{Values: []string{string(f.Workflow), string(f.Status)}, Text: f.Text}
	})

	SelectEscalations = newSelection(Selection[keep.EscalationFilter, keep.EscalationKind]{
		Kind: "q", Table: "escalation", State: "kind", States: keep.EscalationKinds(), Open: "escalation.closed_at = 0",
	}, "workflow run", func(f keep.EscalationFilter) Filter {
		return Filter{Values: []string{string(f.Workflow), string(f.Run)}, Open: f.Open, Few: f.Open || f.Run != ""}
	})
)

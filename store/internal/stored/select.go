package stored

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

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
	Closed  string   // the condition of those that are not; empty: no filter asks for it
	Columns []string // those that a filter compares; the first is the workflow
	Stopped []S      // the states of rows that an error of a filter selects; nil: none has an error
	Listed  string   // what a filter compares in the place of State; empty: that column

	filter func(F) Filter
}

// A Filter is what a list or a count selects.
type Filter struct {
	Values []string // of the columns of the list; an empty one selects every row
	Open   bool     // only those that are open
	Closed bool     // only those that are not
	Few    bool     // few rows are selected, so that a count looks at each
	Text   string   // words that the rows have; empty: any
	Error  string   // class or code of their error; empty: any. It needs Stopped
	Since  int64    // made at that time or later, in milliseconds; 0: at any time
	Until  int64    // made before; 0: at any time
}

// Counted reports whether rows are counted one by one, up to search.MaxCount, since no tally
// knows how many they are.
func (f Filter) Counted() bool { return f.Since != 0 || f.Until != 0 || f.Error != "" }

// in returns f for what was made in a period.
func (f Filter) in(p keep.Period) Filter {
	f.Since, f.Until = bound(p.Since), bound(p.Until)
	return f
}

// bound returns an end of a period in milliseconds; 0: it has none. No row has the time 0, so the first millisecond of 1970 is as
// good an end as the next one.
func bound(at time.Time) int64 {
	if at.IsZero() {
		return 0
	}
	return cmp.Or(at.UnixMilli(), 1)
}

// FirstMade returns a statement for the first row of a table, by number, that was made at a
// time or later; one more than the last if there is none. time is a placeholder. Rows are
// numbered as they are recorded, which is nearly the order of the times when they were made:
// within keep.MaxDisorder of the row no other is misplaced.
func FirstMade(table, number, time string) string {
	late := `coalesce((SELECT created_at FROM ` + table + ` WHERE ` + number + ` >= (lo + hi) / 2 ORDER BY ` + number + ` LIMIT 1) >= ` + time + `, TRUE)`
	return `WITH RECURSIVE next (lo, hi) AS (
		SELECT coalesce((SELECT min(` + number + `) FROM ` + table + `), 1), 1 + coalesce((SELECT max(` + number + `) FROM ` + table + `), 0)
		UNION ALL
		SELECT CASE WHEN ` + late + ` THEN lo ELSE (lo + hi) / 2 + 1 END, CASE WHEN ` + late + ` THEN (lo + hi) / 2 ELSE hi END
		  FROM next WHERE lo < hi)
	SELECT lo FROM next WHERE lo >= hi`
}

// Disorder is keep.MaxDisorder as times are stored.
const Disorder = int64(keep.MaxDisorder / time.Millisecond)

// stopped returns states without some.
func stopped[S ~string](all []S, but ...S) []S {
	return slices.DeleteFunc(slices.Clone(all), func(s S) bool { return slices.Contains(but, s) })
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

// Compared returns what a filter compares with its value of a column.
func (l Selection[F, S]) Compared(column string) string {
	if column == l.State && l.Listed != "" {
		return l.Listed
	}
	return l.Table + "." + column
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
		Stopped: stopped(keep.RunStatuses(), keep.StatusActive, keep.StatusCommitted),
	}, "workflow handler status", func(f keep.RunFilter) Filter {
		return Filter{
			Values: []string{string(f.Workflow), string(f.Handler), string(f.Status)}, Open: f.Open, Text: f.Text, Error: f.Error,
			Few: f.Chain != "" || f.Open || f.Status == keep.StatusActive, // of each lane one is active
		}.in(f.Made)
	})

	SelectMutations = newSelection(Selection[keep.MutationFilter, keep.MutationState]{
		Kind: "m", Table: "mutation", State: "state", States: keep.MutationStates(), Usual: keep.Applied, Name: "tool",
		Stopped: stopped(keep.MutationStates(), keep.Applied),
	}, "workflow state tool run item", func(f keep.MutationFilter) Filter {
		return Filter{
			Values: []string{string(f.Workflow), string(f.State), string(f.Tool), string(f.Run), f.Item}, Text: f.Text, Error: f.Error,
			Few: f.Input != "" || f.Run != "" || f.Item != "",
		}.in(f.Made)
	})

	SelectEvents = newSelection(Selection[keep.EventFilter, keep.EventStatus]{
		Kind: "e", Table: "event", State: "status", States: keep.EventStatuses(), Usual: keep.EventConsumed, Name: "topic",
		Listed: "CASE WHEN event.status = 'pending' AND event.reserved_by <> '' THEN 'reserved' ELSE event.status END",
	}, "workflow topic status", func(f keep.EventFilter) Filter {
		return Filter{Values: []string{string(f.Workflow), string(f.Topic), string(f.Status)}, Text: f.Text, Few: f.Input != ""}.in(f.Made)
	})

	SelectInputs = newSelection(Selection[keep.InputFilter, keep.InputStatus]{
		Kind: "i", Table: "input", State: "status", States: keep.InputStatuses(), Usual: keep.InputDone,
	}, "workflow status", func(f keep.InputFilter) Filter {
		return Filter{Values: []string{string(f.Workflow), string(f.Status)}, Text: f.Text}.in(f.Made)
	})

	SelectItems = newSelection(Selection[keep.ItemFilter, keep.ItemStatus]{
		Kind: "t", Table: "item", State: "status", States: keep.ItemStatuses(), Usual: keep.ItemDone,
	}, "workflow status", func(f keep.ItemFilter) Filter {
		return Filter{Values: []string{string(f.Workflow), string(f.Status)}, Text: f.Text}.in(f.Made)
	})

	SelectEscalations = newSelection(Selection[keep.EscalationFilter, keep.EscalationKind]{
		Kind: "q", Table: "escalation", State: "kind", States: keep.EscalationKinds(), Open: "escalation.closed_at = 0", Closed: "escalation.closed_at <> 0",
	}, "workflow run kind item", func(f keep.EscalationFilter) Filter {
		return Filter{
			Values: []string{string(f.Workflow), string(f.Run), string(f.Kind), f.Item}, Open: f.Open, Closed: f.Closed,
			Few: f.Open || f.Closed || f.Run != "" || f.Item != "",
		}.in(f.Made)
	})
)

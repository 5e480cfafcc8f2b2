package sqlite

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"slices"

	"github.com/keep-run/keep"
)

// everything is the cut of a list that is not cut.
var everything = cut{before: math.MaxInt64, limit: math.MaxInt64}

// CountRuns counts the runs that a filter selects, by their status. A status that
// none has is not in the map.
func (db *DB) CountRuns(ctx context.Context, f keep.RunFilter) (map[keep.RunStatus]int, error) {
	few := f.Open || f.Chain != "" || f.Status == keep.StatusActive
	return tallied(ctx, db, tallies[keep.RunStatus]{
		noun: "run", state: "status", text: f.Text, workflow: f.Workflow, name: string(f.Handler), only: f.Status,
		all: keep.RunStatuses(), usual: keep.StatusCommitted, few: few,
		from: func(v *view) ([]stream, error) { return runStreams(ctx, v, f, everything) },
		of: func(v *view, what string, s keep.RunStatus) ([]int64, error) {
			if s == keep.StatusActive { // one run of each workflow, by law
				return rows(ctx, v, scanNumber, `
					SELECT `+what+` FROM run INDEXED BY run_open WHERE closed = 0 AND status = 'active'
					   AND (?1 = '' OR workflow = ?1) AND (?2 = '' OR handler = ?2)`, f.Workflow, f.Handler)
			}
			return rows(ctx, v, scanNumber, `
				SELECT `+what+` FROM run INDEXED BY run_unusual WHERE status = ?3 AND status NOT IN ('active', 'committed')
				   AND (?1 = '' OR workflow = ?1) AND (?2 = '' OR handler = ?2)`, f.Workflow, f.Handler, s)
		},
	})
}

// CountMutations counts the records that a filter selects, by their state. A
// state that none has is not in the map.
func (db *DB) CountMutations(ctx context.Context, f keep.MutationFilter) (map[keep.MutationState]int, error) {
	few := f.Run != "" || f.Item != "" || f.Input != ""
	return tallied(ctx, db, tallies[keep.MutationState]{
		noun: "mutation", state: "state", text: f.Text, workflow: f.Workflow, name: string(f.Tool), only: f.State,
		all: keep.MutationStates(), usual: keep.Applied, few: few,
		from: func(v *view) ([]stream, error) { return mutationStreams(ctx, v, f, everything) },
		of: func(v *view, what string, s keep.MutationState) ([]int64, error) {
			if s == keep.InFlight { // few: each one is a call that is out
				return rows(ctx, v, scanNumber, `
					SELECT `+what+` FROM mutation INDEXED BY mutation_by_state WHERE state = 'in_flight' AND state <> 'applied'
					   AND (?1 = '' OR workflow = ?1) AND (?2 = '' OR tool = ?2)`, f.Workflow, f.Tool)
			}
			return rows(ctx, v, scanNumber, `
				SELECT `+what+` FROM mutation INDEXED BY mutation_unusual WHERE state = ?3 AND state NOT IN ('applied', 'in_flight')
				   AND (?1 = '' OR workflow = ?1) AND (?2 = '' OR tool = ?2)`, f.Workflow, f.Tool, s)
		},
	})
}

// CountInputs counts the inputs that a filter selects, by their status. A status
// that none has is not in the map.
func (db *DB) CountInputs(ctx context.Context, f keep.InputFilter) (map[keep.InputStatus]int, error) {
	return tallied(ctx, db, tallies[keep.InputStatus]{
		noun: "input", state: "status", text: f.Text, workflow: f.Workflow, only: f.Status,
		all: keep.InputStatuses(), usual: keep.InputDone,
		from: func(v *view) ([]stream, error) { return inputStreams(ctx, v, f, everything) },
		of: func(v *view, what string, s keep.InputStatus) ([]int64, error) {
			return ofEach(ctx, v, f.Workflow, `SELECT `+what+` FROM input INDEXED BY input_by_status WHERE workflow = ? AND status = ?`, inputWorkflows, s)
		},
	})
}

// CountItems counts the items that a filter selects, by their status. A status
// that none has is not in the map.
func (db *DB) CountItems(ctx context.Context, f keep.ItemFilter) (map[keep.ItemStatus]int, error) {
	return tallied(ctx, db, tallies[keep.ItemStatus]{
		noun: "item", state: "status", text: f.Text, workflow: f.Workflow, only: f.Status,
		all: keep.ItemStatuses(), usual: keep.ItemDone,
		from: func(v *view) ([]stream, error) { return itemStreams(ctx, v, f, everything) },
		of: func(v *view, what string, s keep.ItemStatus) ([]int64, error) {
			return ofEach(ctx, v, f.Workflow, `SELECT `+what+` FROM item INDEXED BY item_by_status WHERE workflow = ? AND status = ?`, itemWorkflows, s)
		},
	})
}

// CountEscalations counts the questions that a filter selects, by their kind. A
// kind that none has is not in the map.
func (db *DB) CountEscalations(ctx context.Context, f keep.EscalationFilter) (map[keep.EscalationKind]int, error) {
	return tallied(ctx, db, tallies[keep.EscalationKind]{
		noun: "escalation", state: "kind", all: keep.EscalationKinds(), few: f.Open || f.Run != "",
		from: func(*view) ([]stream, error) { return escalationStreams(f, everything), nil },
		of: func(v *view, what string, k keep.EscalationKind) ([]int64, error) {
			return rows(ctx, v, scanNumber, `
				SELECT `+what+` FROM escalation INDEXED BY escalation_by_kind WHERE kind = ?2 AND (?1 = '' OR workflow = ?1)`,
				f.Workflow, k)
		},
	})
}

// tallies says how to count rows of a noun by their state.
type tallies[S ~string] struct {
	noun, state string // the table, and the column that says the state
	text        string // words of the title; empty: any
	workflow    keep.WorkflowName
	name        string // handler or tool; empty: any
	only        S      // the one state that is wanted; empty: all
	all         []S    // every state there is
	usual       S      // the state that is not counted, but left; empty: none

	few  bool // the filter selects few rows: look at each
	from func(*view) ([]stream, error)

	// of reads, by index, the rows in one state: their numbers ("n"), or numbers
	// that add up to how many they are ("count(*)").
	of func(v *view, what string, s S) ([]int64, error)
}

// tallied counts in one snapshot: the usual state is what the others leave.
func tallied[S ~string](ctx context.Context, db *DB, t tallies[S]) (map[S]int, error) {
	counts := make(map[S]int)
	err := db.snapshot(ctx, func(v *view) error {
		switch {
		case t.few:
			return t.look(ctx, v, counts)
		case len(keep.SearchWords(t.text)) > 0:
			return t.search(ctx, v, counts)
		}
		left, err := one(ctx, v, "count", "", scanNumber, `
			SELECT ifnull(sum(rows), 0) FROM tally
			 WHERE noun = ?1 AND (?2 = '' OR workflow = ?2) AND (?3 = '' OR name = ?3)`, t.noun, t.workflow, t.name)
		if err != nil {
			return err
		}
		return t.leave(counts, int(left), func(s S) (n int, err error) {
			list, err := t.of(v, "count(*)", s)
			for _, part := range list {
				n += int(part)
			}
			return n, err
		})
	})
	for s, n := range counts {
		if n == 0 || t.only != "" && s != t.only {
			delete(counts, s)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("count: %w", err)
	}
	return counts, nil
}

// leave counts the states but the usual one, which is what they leave of all.
func (t tallies[S]) leave(counts map[S]int, all int, count func(S) (int, error)) error {
	for _, s := range t.all {
		if s == t.usual || t.only != "" && t.only != t.usual && s != t.only {
			continue
		}
		n, err := count(s)
		if err != nil {
			return err
		}
		all -= n
		counts[s] = n
	}
	if t.usual != "" {
		counts[t.usual] = all
	}
	return nil
}

// maxLook is how many rows a count looks at one by one, rather than at all rows in
// the states that are not usual.
const maxLook = 2000

// search counts the rows that have the words.
func (t tallies[S]) search(ctx context.Context, v *view, counts map[S]int) error {
	f, err := newFinder(ctx, v, t.noun, t.text, string(t.workflow), t.name)
	if err != nil {
		return err
	}
	all, err := f.count(ctx)
	if err != nil {
		return err
	}
	if all <= maxLook {
		var found []int64
		for numbers, err := range f.descend(ctx, everything.before) {
			if err != nil {
				return err
			}
			found = append(found, numbers...)
		}
		return t.lookAt(ctx, v, found, counts)
	}
	return t.leave(counts, all, func(s S) (int, error) {
		numbers, err := t.of(v, "n", s)
		if err != nil {
			return 0, err
		}
		slices.SortFunc(numbers, func(a, b int64) int { return cmp.Compare(b, a) })
		kept, err := f.have(ctx, numbers)
		return len(kept), err
	})
}

// look counts the rows that the filter finds.
func (t tallies[S]) look(ctx context.Context, v *view, counts map[S]int) error {
	streams, err := t.from(v)
	if err != nil {
		return err
	}
	numbers, err := newest(ctx, v, streams, everything)
	if err != nil {
		return err
	}
	return t.lookAt(ctx, v, numbers, counts)
}

// lookAt counts rows.
func (t tallies[S]) lookAt(ctx context.Context, v *view, numbers []int64, counts map[S]int) error {
	found, err := json.Marshal(numbers)
	if err != nil {
		return err
	}
	for _, s := range t.all {
		n, err := one(ctx, v, "count", "", scanNumber, `
			SELECT count(*) FROM (SELECT value FROM json_each(?)) CROSS JOIN `+t.noun+` ON n = value WHERE `+t.state+` = ?`,
			string(found), s)
		if err != nil {
			return err
		}
		counts[s] = int(n)
	}
	return nil
}

// ofEach returns what a query finds in one workflow, or in each of those that a
// second query names.
func ofEach[S ~string](ctx context.Context, v *view, w keep.WorkflowName, text, workflows string, s S) (all []int64, err error) {
	names := []string{string(w)}
	if w == "" {
		if names, err = rows(ctx, v, scanName, workflows); err != nil {
			return nil, err
		}
	}
	for _, name := range names {
		found, err := rows(ctx, v, scanNumber, text, name, s)
		if err != nil {
			return nil, err
		}
		all = append(all, found...)
	}
	return all, nil
}

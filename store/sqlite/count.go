package sqlite

import (
	"context"
	"encoding/json"
	"fmt"
	"math"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/law/search"
)

// everything is the cut of a list that is not cut.
var everything = cut{before: math.MaxInt64, limit: math.MaxInt64}

// CountRuns counts the runs that a filter selects, by their status. A status that
// none has is not in the map. As in all counts, those of a text stop at search.MaxCount.
func (db *DB) CountRuns(ctx context.Context, f keep.RunFilter) (map[keep.RunStatus]int, error) {
	few := f.Open || f.Chain != "" || f.Status == keep.StatusActive
	return tallied(ctx, db, tallies[keep.RunStatus]{
		noun: "run", state: "status", text: runSearch(f), workflow: f.Workflow, name: string(f.Handler), only: f.Status,
		all: keep.RunStatuses(), usual: keep.StatusCommitted, few: few,
		from: func(v *view) ([]stream, error) { return runStreams(f, everything), nil },
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
		noun: "mutation", state: "state", text: mutationSearch(f), workflow: f.Workflow, name: string(f.Tool), only: f.State,
		all: keep.MutationStates(), usual: keep.Applied, few: few,
		from: func(v *view) ([]stream, error) { return mutationStreams(f, everything), nil },
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
	return countByStatus(ctx, db, f.Text, inputsOf(f), keep.InputDone)
}

// CountItems counts the items that a filter selects, by their status. A status
// that none has is not in the map.
func (db *DB) CountItems(ctx context.Context, f keep.ItemFilter) (map[keep.ItemStatus]int, error) {
	return countByStatus(ctx, db, f.Text, itemsOf(f), keep.ItemDone)
}

func countByStatus[S ~string](ctx context.Context, db *DB, text string, f byStatus[S], usual S) (map[S]int, error) {
	return tallied(ctx, db, tallies[S]{
		noun: f.noun.table, state: "status", text: f.search(text), workflow: f.workflow, only: f.status, all: f.all, usual: usual,
		from: func(v *view) ([]stream, error) { return f.streams(ctx, v, everything) },
		of:   func(v *view, what string, s S) ([]int64, error) { return f.numbers(ctx, v, what, s) },
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
	noun, state string      // the table, and the column that says the state
	text        *textSearch // nil: any
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
		case t.text != nil:
			limits := db.limits
			limits.candidates = math.MaxInt
			numbers, _, err := t.text.find(ctx, v, cut{before: everything.before, limit: search.MaxCount + 1}, limits)
			if err != nil {
				return err
			}
			return t.lookAt(ctx, v, numbers[:min(len(numbers), search.MaxCount+1)], counts)
		case t.few:
			return t.look(ctx, v, counts)
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
	if err != nil || len(numbers) == 0 {
		return err
	}
	states, err := rows(ctx, v, scanName, `
		SELECT `+t.state+` FROM (SELECT value FROM json_each(?)) CROSS JOIN `+t.noun+` ON n = value`, string(found))
	for _, s := range states {
		counts[S(s)]++
	}
	return err
}

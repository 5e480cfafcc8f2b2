package sqlite

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/law/search"
)

// everything is the cut of a list that is not cut.
var everything = cut{before: math.MaxInt64, limit: math.MaxInt64}

// CountRuns counts the runs that a filter selects, by their status. Like all counts, one of
// a text, an error or a period stops at search.MaxCount.
//
// Pages count those that are open, so these are not found and then read, but counted as they are found.
func (db *DB) CountRuns(ctx context.Context, f keep.RunFilter) (map[keep.RunStatus]int, error) {
	if f == (keep.RunFilter{Workflow: f.Workflow, Open: true}) {
		return countOpen[keep.RunStatus](ctx, db, `-- of the open runs
			SELECT status, count(*) FROM run INDEXED BY run_open WHERE closed = 0 AND (?1 = '' OR workflow = ?1) GROUP BY status`, f.Workflow)
	}
	return count(ctx, db, runLists, f)
}

// countOpen counts what a statement groups by its state.
func countOpen[S ~string](ctx context.Context, db *DB, text string, w keep.WorkflowName) (map[S]int, error) {
	counts := make(map[S]int)
	_, err := rows(ctx, db, func(row scanner) (none struct{}, err error) {
		var state string
		var n int
		err = row.Scan(&state, &n)
		counts[S(state)] = n
		return none, err
	}, text, w)
	return counts, err
}

// CountMutations counts the records that a filter selects, by their state.
func (db *DB) CountMutations(ctx context.Context, f keep.MutationFilter) (map[keep.MutationState]int, error) {
	return count(ctx, db, mutationLists, f)
}

// CountInputs counts the inputs that a filter selects, by their status.
func (db *DB) CountInputs(ctx context.Context, f keep.InputFilter) (map[keep.InputStatus]int, error) {
	return count(ctx, db, inputLists, f)
}

// CountItems counts the items that a filter selects, by their status.
func (db *DB) CountItems(ctx context.Context, f keep.ItemFilter) (map[keep.ItemStatus]int, error) {
	return count(ctx, db, itemLists, f)
}

// CountEscalations counts the questions that a filter selects, by their kind.
//
// Every page counts those that are open, so these are not found and then read, but counted as they are found.
func (db *DB) CountEscalations(ctx context.Context, f keep.EscalationFilter) (map[keep.EscalationKind]int, error) {
	if f == (keep.EscalationFilter{Workflow: f.Workflow, Open: true}) {
		return countOpen[keep.EscalationKind](ctx, db, `-- of the open questions
			SELECT kind, count(*) FROM escalation INDEXED BY escalation_open WHERE closed_at = 0 AND (?1 = '' OR workflow = ?1) GROUP BY kind`, f.Workflow)
	}
	return count(ctx, db, escalationLists, f)
}

// count counts the rows that a filter selects in one snapshot, by their state.
func count[F any, S ~string](ctx context.Context, db *DB, l lister[F, S], f F) (map[S]int, error) {
	counts := make(map[S]int)
	err := db.snapshot(ctx, func(v *view) error {
		c, err := l.within(ctx, v, f, everything)
		if err != nil {
			return err
		}
		filter := l.Filter(f)
		if filter.Counted() {
			c.limit = search.MaxCount + 1
		}
		switch text := l.search(f); {
		case text != nil:
			limits := db.limits
			limits.candidates = math.MaxInt
			c.limit = search.MaxCount + 1
			numbers, _, err := text.find(ctx, v, c, limits)
			if err != nil {
				return err
			}
			return l.countRows(ctx, v, numbers[:min(len(numbers), c.limit)], counts)
		case filter.Few || filter.Counted():
			streams, err := l.streams(ctx, v, f, c)
			if err != nil {
				return err
			}
			numbers, err := newest(ctx, v, streams, c)
			if err != nil {
				return err
			}
			return l.countRows(ctx, v, numbers, counts)
		}
		return l.countStates(ctx, v, f, counts)
	})
	only := l.Only(f)
	maps.DeleteFunc(counts, func(s S, n int) bool { return n == 0 || only != "" && s != only })
	if err != nil {
		return nil, fmt.Errorf("count: %w", err)
	}
	return counts, nil
}

// countRows counts rows by looking at each.
func (l lister[F, S]) countRows(ctx context.Context, v *view, numbers []int64, counts map[S]int) error {
	found, err := json.Marshal(numbers)
	if err != nil || len(numbers) == 0 {
		return err
	}
	states, err := rows(ctx, v, scanName, `
		SELECT `+l.State+` FROM (SELECT value FROM json_each(?)) CROSS JOIN `+l.Table+` ON `+numberOf(l.Table)+` = value`, string(found))
	for _, s := range states {
		counts[S(s)]++
	}
	return err
}

// countStates counts by indexes: the usual state is what the others leave of all rows.
func (l lister[F, S]) countStates(ctx context.Context, v *view, f F, counts map[S]int) error {
	only := l.Only(f)
	for _, s := range l.States {
		if s == l.Usual || only != "" && only != l.Usual && s != only {
			continue
		}
		n, err := l.countState(ctx, v, f, s)
		if err != nil {
			return err
		}
		counts[s] = n
	}
	if l.Usual == "" {
		return nil
	}
	left, err := one(ctx, v, "count", "", scanNumber, `
		SELECT ifnull(sum(rows), 0) FROM tally
		 WHERE noun = ?1 AND (?2 = '' OR workflow = ?2) AND (?3 = '' OR name = ?3)`, l.Table, l.Workflow(f), l.Value(f, l.Name))
	for _, n := range counts {
		left -= int64(n)
	}
	counts[l.Usual] = int(left)
	return err
}

// countState counts the rows in one state, by an index.
func (l lister[F, S]) countState(ctx context.Context, v *view, f F, s S) (n int, err error) {
	if l.state != nil {
		named := ` AND ?2 = ''`
		if l.Name != "" {
			named = ` AND (?2 = '' OR ` + l.Name + ` = ?2)`
		}
		found, err := one(ctx, v, "count", "", scanNumber, `
			SELECT count(*) FROM `+l.Table+` INDEXED BY `+l.state(s)+` AND (?1 = '' OR workflow = ?1)`+named, l.Workflow(f), l.Value(f, l.Name), s)
		return int(found), err
	}
	names, err := workflowsOf(ctx, v, l.Table, l.Workflow(f))
	if err != nil {
		return 0, err
	}
	for _, name := range names {
		found, err := one(ctx, v, "count", "", scanNumber, `
			SELECT count(*) FROM `+l.Table+` INDEXED BY `+l.Table+`_by_status WHERE workflow = ? AND status = ?`, name, s)
		if err != nil {
			return 0, err
		}
		n += int(found)
	}
	return n, nil
}

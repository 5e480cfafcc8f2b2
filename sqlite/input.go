package sqlite

import (
	"context"
	"database/sql"
	"fmt"
	"slices"

	"github.com/keep-run/keep"
)

// putInput adds an input. On a conflict the known one stays, and must be the same
// in all that names it: whoever made another id had not looked.
func (t *tx) putInput(in keep.Input) error {
	if err := t.mine("input", string(in.ID), in.Workflow); err != nil {
		return err
	}
	if in.ID == "" {
		return fmt.Errorf("input %q: id required", in.ExternalID)
	}
	n, err := t.exec(`
		INSERT INTO input (id, workflow, source, type, external_id, title, created_at)
		VALUES (?, ?, ?, ?, ?, ?, ?)
		ON CONFLICT DO NOTHING`,
		in.ID, in.Workflow, in.Source, in.Type, in.ExternalID, in.Title, in.CreatedAt)
	if err == nil && n == 0 {
		var same bool
		same, err = t.exists(`SELECT 1 FROM input WHERE id = ? AND workflow = ? AND source = ? AND type = ? AND external_id = ?`,
			in.ID, in.Workflow, in.Source, in.Type, in.ExternalID)
		if err == nil && !same {
			err = keep.ErrStale
		}
	}
	if err != nil {
		return fmt.Errorf("input %s: %w", in.ID, err)
	}
	t.countInput(in.ID, 0) // it is known from here on
	return nil
}

// skipInput marks an input. Its count of unfinished events goes on, so that Check
// can recount it; its status doesn't follow the count any more.
func (t *tx) skipInput(id keep.InputID) error {
	n, err := t.exec(`UPDATE input SET status = 'skipped' WHERE id = ? AND workflow = ?`, id, t.workflow)
	if err != nil {
		return fmt.Errorf("skip input %s: %w", id, err)
	}
	if n == 0 {
		return &keep.NotFoundError{What: "input", ID: string(id)}
	}
	return nil
}

// knowInput refuses an id that names no input of the workflow.
func (t *tx) knowInput(id keep.InputID) error {
	if _, known := t.inputs[id]; known {
		return nil
	}
	ok, err := t.exists(`SELECT 1 FROM input WHERE id = ? AND workflow = ?`, id, t.workflow)
	if err != nil {
		return fmt.Errorf("look up input %s: %w", id, err)
	}
	if !ok {
		return &keep.NotFoundError{What: "input", ID: string(id)}
	}
	t.countInput(id, 0)
	return nil
}

// countInput adds to what the commit changes in the unfinished events of an
// input that is known to exist.
func (t *tx) countInput(id keep.InputID, by int) {
	if t.inputs == nil {
		t.inputs = make(map[keep.InputID]int)
	}
	t.inputs[id] += by
}

// countCauses counts for all inputs of one event.
func (t *tx) countCauses(text string, by int) error {
	causes, err := decodeCauses(text)
	for _, id := range causes {
		t.countInput(id, by)
	}
	return err
}

// countInputs writes the counts that changed, and the statuses that follow.
func (t *tx) countInputs() error {
	for id, by := range t.inputs {
		if by == 0 {
			continue
		}
		_, err := t.exec(`
			UPDATE input
			   SET unfinished = unfinished + ?1,
			       status = CASE WHEN status = 'skipped' THEN 'skipped'
			                     WHEN unfinished + ?1 > 0 THEN 'pending' ELSE 'done' END
			 WHERE id = ?2`, by, id)
		if err != nil {
			return fmt.Errorf("count input %s: %w", id, err)
		}
	}
	return nil
}

// Input returns an input, or *keep.NotFoundError.
func (db *DB) Input(ctx context.Context, id keep.InputID) (keep.Input, error) {
	return one(ctx, db, "input", string(id), scanInput, `SELECT `+inputColumns+` FROM input WHERE id = ?`, id)
}

// InputByKey returns the input with that source, type and external id, or
// *keep.NotFoundError.
func (db *DB) InputByKey(ctx context.Context, w keep.WorkflowName, source, typ, externalID string) (keep.Input, error) {
	return one(ctx, db, "input", source+" "+typ+" "+externalID, scanInput, `
		SELECT `+inputColumns+` FROM input
		 WHERE workflow = ? AND source = ? AND type = ? AND external_id = ?`, w, source, typ, externalID)
}

// Causes returns the inputs of all events that the chain reserved, sorted.
func (db *DB) Causes(ctx context.Context, chain keep.RunID) ([]keep.InputID, error) {
	lists, err := rows(ctx, db, func(row *sql.Rows) ([]keep.InputID, error) {
		var text string
		if err := row.Scan(&text); err != nil {
			return nil, err
		}
		return decodeCauses(text)
	}, `SELECT caused_by FROM event WHERE reserved_by = ? AND reserved_by <> ''`, chain)
	if err != nil {
		return nil, fmt.Errorf("read causes of %s: %w", chain, err)
	}
	causes := slices.Concat(lists...)
	slices.Sort(causes)
	return slices.Compact(causes), nil
}

// inputColumns leave out the count, which is not of interest to anyone but Check.
const inputColumns = `id, workflow, source, type, external_id, title, status, created_at`

// scanInput reads inputColumns.
func scanInput(row *sql.Rows) (in keep.Input, err error) {
	var created int64
	err = row.Scan(&in.ID, &in.Workflow, &in.Source, &in.Type, &in.ExternalID, &in.Title, &in.Status, &created)
	in.CreatedAt = moment(created)
	return in, err
}

package sqlite

import (
	"context"
	"fmt"
	"slices"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/law/commit"
	"github.com/keep-run/keep/store/internal/stored"
)

// writeInput writes a row of a plan: an input that is new, or how one that was there
// changes. A count that comes to nothing costs no write.
func (t *tx) writeInput(in *commit.Input) error {
	if in.New {
		n, err := t.exec(`
			INSERT INTO input (id, workflow, source, type, external_id, title, status, unfinished, created_at)
			VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)`,
			in.ID, in.Workflow, in.Put.Source, in.Put.Type, in.Put.ExternalID, in.Put.Title, in.Status(), in.By, in.Put.CreatedAt)
		return written("input", in.ID, n, err)
	}
	if in.Skipped {
		n, err := t.exec(`UPDATE input SET status = ? WHERE id = ?`, keep.InputSkipped, in.ID)
		if err := written("input", in.ID, n, err); err != nil {
			return err
		}
	}
	if in.By == 0 && !in.Unskipped {
		return nil
	}
	n, err := t.exec(`
		UPDATE input
		   SET unfinished = unfinished + ?1,
		       status = CASE WHEN status = 'skipped' AND NOT ?4 THEN 'skipped'
		                     WHEN unfinished + ?1 > 0 THEN 'pending' ELSE 'done' END
		 WHERE id = ?2 AND workflow = ?3`, in.By, in.ID, in.Workflow, in.Unskipped)
	return written("input", in.ID, n, err)
}

// verifyInput refuses an input that the workflow has not.
func (t *tx) verifyInput(id keep.InputID) error {
	row, err := t.row(`SELECT 1 FROM input WHERE id = ? AND workflow = ?`, id, t.workflow)
	return written("input", id, int64(len(row)), err)
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

// Causes returns the inputs of all events that the chain reserved or tried, sorted.
func (db *DB) Causes(ctx context.Context, chain keep.RunID) ([]keep.InputID, error) {
	lists, err := rows(ctx, db, func(row scanner) ([]keep.InputID, error) {
		var text string
		if err := row.Scan(&text); err != nil {
			return nil, err
		}
		return decodeCauses(text)
	}, `SELECT caused_by FROM event WHERE reserved_by = ?1 AND reserved_by <> ''
		UNION ALL SELECT caused_by FROM event_tried INDEXED BY event_tried_by_chain CROSS JOIN event ON seq = event WHERE chain = ?1`, chain)
	if err != nil {
		return nil, fmt.Errorf("read causes of %s: %w", chain, err)
	}
	causes := slices.Concat(lists...)
	slices.Sort(causes)
	return slices.Compact(causes), nil
}

// inputColumns leave out the count, which is not of interest to anyone but Check.
var (
	inputColumns = stored.Inputs.Columns("")
	scanInput    = scanOf(stored.Inputs)
)

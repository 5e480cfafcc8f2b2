package postgres

import (
	"context"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/law/commit"
	"github.com/keep-run/keep/law/search"
	"github.com/keep-run/keep/store/internal/stored"
)

var (
	insertInput = insertInto("input", `workflow text, source text, type text, external_id text, id text, n bigint,
		title text, status text, unfinished bigint, created_at bigint, words words?`, "")
	skipInputs = updateOf("input", `id text`, `status text`)
	countInput = literal(`UPDATE input AS t
		   SET unfinished = t.unfinished + v.by,
		       status = CASE WHEN t.status = 'skipped' AND NOT v.unskipped THEN 'skipped' WHEN t.unfinished + v.by > 0 THEN 'pending' ELSE 'done' END
		  FROM unnest($1::text[], $2::bigint[], $3::boolean[]) AS v (id, by, unskipped) WHERE t.id = v.id`, "text", "bigint", "boolean")
)

// writeInput writes a row of a plan: an input that is new, or how one that was there
// changes. A count that comes to nothing costs no write.
func (t *tx) writeInput(in *commit.Input) error {
	if in.New {
		p := in.Put
		t.add(&insertInput, text(string(in.Workflow)), text(p.Source), text(p.Type), text(p.ExternalID),
			text(string(in.ID)), t.next(), text(p.Title), string(in.Status()), int64(in.By), millis(p.CreatedAt), words(search.OfInput(p)))
		t.tally("input", "")
		return nil
	}
	if in.Skipped {
		t.add(&skipInputs, text(string(in.ID)), string(keep.InputSkipped))
	}
	if in.By != 0 || in.Unskipped {
		t.add(&countInput, text(string(in.ID)), int64(in.By), in.Unskipped)
	}
	return nil
}

// Input returns an input, or *keep.NotFoundError.
func (db *DB) Input(ctx context.Context, id keep.InputID) (keep.Input, error) {
	return one(ctx, db, "input", string(id), scanInput, `SELECT `+inputColumns+` FROM input WHERE id = $1`, id)
}

// InputByKey returns the input with that source, type and external id, or
// *keep.NotFoundError.
func (db *DB) InputByKey(ctx context.Context, w keep.WorkflowName, source, typ, externalID string) (keep.Input, error) {
	return one(ctx, db, "input", source+" "+typ+" "+externalID, scanInput, `
		SELECT `+inputColumns+` FROM input
		 WHERE workflow = $1 AND source = $2 AND type = $3 AND external_id = $4`, w, source, typ, externalID)
}

// Causes returns the inputs of all events that the chain reserved or tried, sorted.
func (db *DB) Causes(ctx context.Context, chain keep.RunID) ([]keep.InputID, error) {
	lists, err := collect(ctx, db, func(row pgx.CollectableRow) ([]keep.InputID, error) {
		var stored string
		if err := row.Scan(&stored); err != nil {
			return nil, err
		}
		return decodeCauses(stored)
	}, `SELECT caused_by FROM event WHERE reserved_by = $1 AND reserved_by <> ''
		UNION ALL SELECT e.caused_by FROM event_tried l `+joinTried+` WHERE l.chain = $1`, chain)
	if err != nil {
		return nil, fmt.Errorf("read causes of %s: %w", chain, err)
	}
	causes := slices.Concat(lists...)
	slices.Sort(causes)
	return slices.Compact(causes), nil
}

// Outputs returns the mutations of the runs that reserved events caused by an
// input, oldest first.
func (db *DB) Outputs(ctx context.Context, id keep.InputID) ([]keep.MutationKey, error) {
	return collect(ctx, db, func(row pgx.CollectableRow) (key keep.MutationKey, err error) {
		err = row.Scan(into(&key))
		return key, err
	}, `SELECT mutation.key FROM mutation WHERE run IN (`+runsOfInput+`) ORDER BY n`, id)
}

// joinTried finds the event of a link l.
const joinTried = `JOIN event e ON e.workflow = l.workflow AND e.topic = l.topic AND e.n = l.event`

// runsOfInput finds the runs that reserved or tried what the input $1 caused: the first
// of each chain by its id, the retries by their chain.
const runsOfInput = `
	SELECT run.id FROM input
	  JOIN event_cause c ON c.workflow = input.workflow AND c.input = input.id
	  JOIN event e ON e.workflow = c.workflow AND e.topic = c.topic AND e.n = c.event
	  JOIN run ON run.id = e.reserved_by AND run.chain = e.reserved_by
	 WHERE input.id = $1 AND e.reserved_by <> ''
	UNION ALL
	SELECT run.id FROM input
	  JOIN event_cause c ON c.workflow = input.workflow AND c.input = input.id
	  JOIN event e ON e.workflow = c.workflow AND e.topic = c.topic AND e.n = c.event
	  JOIN run ON run.chain = e.reserved_by AND run.chain <> run.id
	 WHERE input.id = $1 AND e.reserved_by <> ''
	UNION ALL
	SELECT run.id FROM input
	  JOIN event_cause c ON c.workflow = input.workflow AND c.input = input.id
	  JOIN event_tried l ON l.workflow = c.workflow AND l.topic = c.topic AND l.event = c.event
	  JOIN run ON run.id = l.chain AND run.chain = l.chain
	 WHERE input.id = $1
	UNION ALL
	SELECT run.id FROM input
	  JOIN event_cause c ON c.workflow = input.workflow AND c.input = input.id
	  JOIN event_tried l ON l.workflow = c.workflow AND l.topic = c.topic AND l.event = c.event
	  JOIN run ON run.chain = l.chain AND run.chain <> run.id
	 WHERE input.id = $1`

// inputColumns leave out the count, which is not of interest to anyone but Check.
var (
	inputColumns = stored.Inputs.Columns("input.") + ", input.n"
	scanInputAt  = placedOf(stored.Inputs)
	scanInput    = unplaced(scanInputAt)
)

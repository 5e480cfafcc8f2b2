package postgres

import (
	"context"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/keep-run/keep"
)

// An inputFact is what must be known of an input, and what is to be written.
type inputFact struct {
	key     inputKey
	id      keep.InputID
	made    bool // by this commit
	dirty   bool
	skipped bool       // by this commit
	by      int64      // change in unfinished events
	put     keep.Input // if made
}

const inputFacts = `SELECT workflow, source, type, external_id, id FROM input WHERE id = ANY($1)`

var inputKeyFacts = `SELECT i.workflow, i.source, i.type, i.external_id, i.id
	  FROM ` + elements(`workflow text, source text, type text, external_id text`) + `
	  JOIN input i ON i.workflow = v.workflow AND i.source = v.source AND i.type = v.type AND i.external_id = v.external_id`

func (k *known) scanInput(row pgx.CollectableRow) error {
	in := new(inputFact)
	err := row.Scan(into(&in.key.workflow), into(&in.key.source), into(&in.key.typ), into(&in.key.externalID), into(&in.id))
	if k.inputs[in.id] == nil {
		k.inputs[in.id] = in
	}
	k.inputKeys[in.key] = in.id
	return err
}

// putInput adds an input. A known one stays, and must be the same in all that
// names it: whoever made another id had not looked.
func (t *tx) putInput(in keep.Input) error {
	if err := t.mine("input", string(in.ID), in.Workflow); err != nil {
		return err
	}
	if in.ID == "" {
		return fmt.Errorf("input %q: id required", in.ExternalID)
	}
	key := inputKey{in.Workflow, in.Source, in.Type, in.ExternalID}
	id, isKnown := t.inputKeys[key]
	old := t.inputs[in.ID]
	switch {
	case isKnown && id == in.ID:
		return nil
	case isKnown, old != nil:
		return fmt.Errorf("input %s: %w", in.ID, keep.ErrStale)
	}
	f := &inputFact{key: key, id: in.ID, made: true, put: in}
	t.inputs[in.ID], t.inputKeys[key] = f, in.ID
	changed(&t.inputWrites, f, &f.dirty)
	return nil
}

// skipInput marks an input. Its count of unfinished events goes on, so that Check
// can recount it; its status doesn't follow the count any more.
func (t *tx) skipInput(id keep.InputID) error {
	in := t.inputs[id]
	if in == nil || in.key.workflow != t.workflow {
		return &keep.NotFoundError{What: "input", ID: string(id)}
	}
	in.skipped = true
	changed(&t.inputWrites, in, &in.dirty)
	return nil
}

// countInput adds to what the commit changes in the unfinished events of an
// input. What cancels out costs no write.
func (t *tx) countInput(id keep.InputID, by int64) {
	in := t.inputs[id]
	if in == nil { // a cause of an event that ends: it exists
		in = &inputFact{key: inputKey{workflow: t.workflow}, id: id}
		t.inputs[id] = in
	}
	in.by += by
	changed(&t.inputWrites, in, &in.dirty)
}

var (
	insertInput = insertInto("input", `workflow text, source text, type text, external_id text, id text, n bigint,
		title text, status text, unfinished bigint, created_at bigint, words words?`, "")
	skipInputs = updateOf("input", `id text`, `status text`)
	countInput = statement{`UPDATE input AS t
		   SET unfinished = t.unfinished + v.by,
		       status = CASE WHEN t.status = 'skipped' THEN 'skipped' WHEN t.unfinished + v.by > 0 THEN 'pending' ELSE 'done' END
		  FROM unnest($1::text[], $2::bigint[]) AS v (id, by) WHERE t.id = v.id`, []string{"text", "bigint"}}
)

func (t *tx) writeInput(f *inputFact) {
	if f.made {
		status := keep.InputDone
		switch {
		case f.skipped:
			status = keep.InputSkipped
		case f.by > 0:
			status = keep.InputPending
		}
		t.add(&insertInput, text(string(f.key.workflow)), text(f.key.source), text(f.key.typ), text(f.key.externalID),
			text(string(f.id)), t.next(), text(f.put.Title), string(status), f.by, millis(f.put.CreatedAt), words(f.put.Title))
		t.tally("input", "")
		return
	}
	if f.skipped {
		t.add(&skipInputs, text(string(f.id)), string(keep.InputSkipped))
	}
	if f.by != 0 {
		t.add(&countInput, text(string(f.id)), f.by)
	}
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

// Causes returns the inputs of all events that the chain reserved, sorted.
func (db *DB) Causes(ctx context.Context, chain keep.RunID) ([]keep.InputID, error) {
	lists, err := collect(ctx, db, func(row pgx.CollectableRow) ([]keep.InputID, error) {
		var stored string
		if err := row.Scan(&stored); err != nil {
			return nil, err
		}
		return decodeCauses(stored)
	}, `SELECT caused_by FROM event WHERE reserved_by = $1 AND reserved_by <> ''`, chain)
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

// runsOfInput finds the runs that reserved what the input $1 caused: the first of
// each chain by its id, the retries by their chain.
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
	 WHERE input.id = $1 AND e.reserved_by <> ''`

// inputColumns leave out the count, which is not of interest to anyone but Check.
const inputColumns = `input.id, input.workflow, input.source, input.type, input.external_id, input.title, input.status,
	input.created_at, input.n`

// scanInput reads inputColumns.
func scanInput(row pgx.CollectableRow) (keep.Input, error) {
	p, err := scanInputAt(row)
	return p.what, err
}

// scanInputAt reads inputColumns, with the place of the input in lists.
func scanInputAt(row pgx.CollectableRow) (p placed[keep.Input], err error) {
	var created int64
	in := &p.what
	err = row.Scan(into(&in.ID), into(&in.Workflow), into(&in.Source), into(&in.Type), into(&in.ExternalID), into(&in.Title), into(&in.Status), &created, &p.n)
	in.CreatedAt, p.workflow = moment(created), in.Workflow
	return p, err
}

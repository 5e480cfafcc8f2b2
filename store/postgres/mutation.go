package postgres

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/law/commit"
	"github.com/keep-run/keep/law/search"
	"github.com/keep-run/keep/store/internal/stored"
)

var insertMove = insertInto("mutation_history",
	`workflow text, mutation bigint, n bigint, at bigint, who text, from_state text, to_state text, evidence text, detail text`, "")

// writeMove appends to the history of a record.
func (t *tx) writeMove(m commit.Move) error {
	t.add(&insertMove, text(string(t.workflow)), m.Mutation.N, t.next(), millis(m.At), text(m.By), text(string(m.From)), text(string(m.To)),
		text(m.Evidence), text(m.Detail))
	return nil
}

// mutationChanges are the columns of a record that change.
var mutationChanges = stored.Mutations.Without("key", "workflow", "tool", "item", "attempt")

var (
	insertMutation = insertInto("mutation", specOf(stored.Mutations)+`, n bigint, words words?`, "")
	updateMutation = updateOf("mutation", `workflow text, tool text, n bigint`, specOf(mutationChanges)+`, words words?`)
)

// writeMutation writes a row of a plan.
func (t *tx) writeMutation(f *commit.Mutation) error {
	if f.Summed {
		t.add(&lockSums, text(string(f.Put.Key)))
		t.add(&unfoldMutation, text(string(f.Put.Key)))
	}
	if !f.New {
		return update(&t.writes, &updateMutation, []any{text(string(f.Put.Workflow)), text(string(f.Put.Tool)), f.N}, mutationChanges, f.Put, words(search.OfMutation(*f.Put)))
	}
	f.N = t.next()
	t.tally("mutation", string(f.Put.Tool))
	return write(&t.writes, &insertMutation, stored.Mutations, f.Put, f.N, words(search.OfMutation(*f.Put)))
}

// Mutation returns the record of that key, or *keep.NotFoundError.
func (db *DB) Mutation(ctx context.Context, key keep.MutationKey) (keep.Mutation, error) {
	return one(ctx, db, "mutation", string(key), scanMutation, `SELECT `+mutationColumns+` FROM mutation WHERE key = $1`, key)
}

// ItemDoubts implements store.Doubts.
func (db *DB) ItemDoubts(ctx context.Context, w keep.WorkflowName) ([]keep.Mutation, error) {
	return collect(ctx, db, scanMutation, `
		SELECT `+mutationColumns+` FROM mutation
		 WHERE workflow = $1 AND item <> '' AND state IN ('needs_reconcile', 'indeterminate')
		 ORDER BY state DESC, n DESC`, w)
}

// ResultsAfter returns results of applied mutations of w that were made after that
// of key, oldest first. It looks at limit records, all of the same tool.
func (db *DB) ResultsAfter(ctx context.Context, w keep.WorkflowName, key keep.MutationKey, limit, size int) ([]keep.StoredResult, error) {
	return collect(ctx, db, scanResult, `
		SELECT key, payload_hash, result FROM (
			SELECT key, payload_hash, result, state, n FROM mutation
			 WHERE workflow = $1
			   AND tool = (SELECT tool FROM mutation WHERE key = $2 AND workflow = $1)
			   AND n > (SELECT n FROM mutation WHERE key = $2 AND workflow = $1)
			 ORDER BY n LIMIT $3) AS later
		 WHERE state = 'applied' AND coalesce(octet_length(result), 0) <= $4
		 ORDER BY n`, w, key, max(limit, 0), size)
}

func scanResult(row pgx.CollectableRow) (r keep.StoredResult, err error) {
	err = row.Scan(into(&r.Key), into(&r.PayloadHash), (*[]byte)(&r.Result))
	return r, err
}

// History returns every move of a mutation, oldest first.
func (db *DB) History(ctx context.Context, key keep.MutationKey) ([]keep.Move, error) {
	return collect(ctx, db, scanMove, `
		SELECT `+moveColumns+`
		  FROM mutation m JOIN mutation_history h ON h.workflow = m.workflow AND h.mutation = m.n
		 WHERE m.key = $1 ORDER BY h.n`, key)
}

var (
	moveColumns = stored.Moves.Columns("h.")
	scanMove    = scanOf(stored.Moves)
)

// Rival returns the oldest record that keeps a commit with u from being made, and whether
// there is one.
func (db *DB) Rival(ctx context.Context, u keep.Unlike) (keep.Mutation, bool, error) {
	list, err := collect(ctx, db, scanMutation, `SELECT `+mutationColumns+` FROM mutation
		 WHERE tool = ANY($1) AND sha256(identity) = $2 AND subkey = $3 AND `+mayRival+` ORDER BY n, workflow`,
		texts(u.Tools), identityHash(u.Identity), text(u.Subkey))
	for _, m := range list {
		if m.Key != u.Key && !slices.Contains(u.Except, m.Key) {
			return m, true, err
		}
	}
	return keep.Mutation{}, false, err
}

// Barring returns a record that keeps a commit with s at a time from being made, and whether there is one.
func (db *DB) Barring(ctx context.Context, s keep.Setting, at time.Time) (keep.Mutation, bool, error) {
	const of = ` FROM mutation WHERE tool = ANY($1) AND sha256(identity) = $2 AND `
	list, err := collect(ctx, db, scanMutation, `SELECT `+mutationColumns+of+isOpen, texts(s.Tools), identityHash(s.Identity))
	if err == nil {
		var failed []keep.Mutation
		failed, err = collect(ctx, db, scanMutation, `SELECT `+mutationColumns+of+fmt.Sprintf(isOfLater, "$3"), texts(s.Tools), identityHash(s.Identity), millis(at))
		list = append(list, failed...)
	}
	if err == nil && !s.Since.IsZero() {
		var later []keep.Mutation
		later, err = collect(ctx, db, scanMutation, `SELECT `+mutationColumns+of+fmt.Sprintf(madeSince, "$3"), texts(s.Tools), identityHash(s.Identity), millis(s.Since))
		list = append(list, later...)
	}
	if err != nil {
		return keep.Mutation{}, false, err
	}
	m, found := s.Barring(list, at)
	return m, found, nil
}

// mutationColumns end with the place of the record in lists.
var (
	mutationColumns = stored.Mutations.Columns("mutation.") + ", mutation.n"
	bareMutation    = stored.Mutations.Bare("mutation.", "NULL::bytea") + ", mutation.n"
	scanMutationAt  = placedOf(stored.Mutations)
	scanMutation    = unplaced(scanMutationAt)
)

package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/law/commit"
	"github.com/keep-run/keep/law/search"
)

const itemSpec = `title text, status text, attempt bigint, swept bigint, rev bigint, created_at bigint, updated_at bigint, words words?`

var (
	insertItem = insertInto("item", `workflow text, id text, n bigint, `+itemSpec, "")
	updateItem = updateOf("item", `workflow text, id text`, itemSpec)
)

// writeItem writes a row of a plan. What makes an item invalid is in the CHECKs of the
// table.
func (t *tx) writeItem(f *commit.Item) error {
	it := f.Put
	key := []any{text(string(it.Workflow)), text(it.ID)}
	row := []any{text(it.Title), text(string(it.Status)), int64(it.Attempt), int64(it.Swept), int64(it.Rev), millis(it.CreatedAt), millis(it.UpdatedAt), words(search.OfItem(it))}
	if f.New {
		t.tally("item", "")
		t.add(&insertItem, append(append(key, t.next()), row...)...)
	} else {
		t.add(&updateItem, append(key, row...)...)
	}
	return nil
}

// Item returns an item, or *keep.NotFoundError.
func (db *DB) Item(ctx context.Context, w keep.WorkflowName, id string) (keep.Item, error) {
	return one(ctx, db, "item", id, scanItem, `SELECT `+itemColumns+` FROM item WHERE workflow = $1 AND id = $2`, w, id)
}

// ItemsAfter returns up to limit of the items of w that were made after the item
// id, oldest first.
func (db *DB) ItemsAfter(ctx context.Context, w keep.WorkflowName, id string, limit int) ([]keep.Item, error) {
	return collect(ctx, db, scanItem, `
		SELECT `+itemColumns+` FROM item
		 WHERE workflow = $1 AND n > (SELECT n FROM item WHERE workflow = $1 AND id = $2)
		 ORDER BY n LIMIT $3`, w, id, max(limit, 0))
}

const itemColumns = `item.workflow, item.id, item.title, item.status, item.attempt, item.swept, item.rev, item.created_at, item.updated_at, item.n`

// scanItem reads itemColumns.
func scanItem(row pgx.CollectableRow) (keep.Item, error) {
	p, err := scanItemAt(row)
	return p.what, err
}

// scanItemAt reads itemColumns, with the place of the item in lists.
func scanItemAt(row pgx.CollectableRow) (p placed[keep.Item], err error) {
	var created, updated int64
	it := &p.what
	err = row.Scan(into(&it.Workflow), into(&it.ID), into(&it.Title), into(&it.Status), &it.Attempt, &it.Swept, &it.Rev, &created, &updated, &p.n)
	it.CreatedAt, it.UpdatedAt, p.workflow = moment(created), moment(updated), it.Workflow
	return p, err
}

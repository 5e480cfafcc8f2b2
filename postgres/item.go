package postgres

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/keep-run/keep"
)

// An itemFact is what must be known of an item, and what is to be written.
type itemFact struct {
	rev   int
	n     int64
	made  bool // by this commit
	dirty bool
	put   keep.Item // if dirty
}

var itemFacts = `SELECT i.workflow, i.id, i.rev, i.n FROM ` + elements(`workflow text, id text`) + `
	  JOIN item i ON i.workflow = v.workflow AND i.id = v.id`

func (k *known) scanItem(row pgx.CollectableRow) error {
	var key itemKey
	it := new(itemFact)
	err := row.Scan(into(&key.workflow), into(&key.id), &it.rev, &it.n)
	k.items[key] = it
	return err
}

// putItem writes an item if its stored revision is the one that was read. What
// makes an item unsound is in the CHECKs of the table.
func (t *tx) putItem(it keep.Item) error {
	if err := t.mine("item", it.ID, it.Workflow); err != nil {
		return err
	}
	key := itemKey{it.Workflow, it.ID}
	old := t.items[key]
	if (old != nil) != (it.Rev != 0) || old != nil && old.rev != it.Rev {
		return fmt.Errorf("item %q: %w", it.ID, keep.ErrStale)
	}
	if old == nil {
		old = &itemFact{n: t.next(), made: true}
		t.items[key] = old
	}
	old.rev++
	old.put = it
	changed(&t.itemWrites, old, &old.dirty)
	return nil
}

const itemSpec = `title text, status text, attempt bigint, rev bigint, created_at bigint, updated_at bigint, words words?`

var (
	insertItem = insertInto("item", `workflow text, id text, n bigint, `+itemSpec, "")
	updateItem = updateOf("item", `workflow text, id text`, itemSpec)
)

func (t *tx) writeItem(f *itemFact) {
	it := f.put
	key := []any{text(string(it.Workflow)), text(it.ID)}
	row := []any{text(it.Title), text(string(it.Status)), int64(it.Attempt), int64(f.rev), millis(it.CreatedAt), millis(it.UpdatedAt), words(it.Title)}
	if f.made {
		t.tally("item", "")
		t.add(&insertItem, append(append(key, f.n), row...)...)
	} else {
		t.add(&updateItem, append(key, row...)...)
	}
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

const itemColumns = `item.workflow, item.id, item.title, item.status, item.attempt, item.rev, item.created_at, item.updated_at, item.n`

// scanItem reads itemColumns.
func scanItem(row pgx.CollectableRow) (keep.Item, error) {
	p, err := scanItemAt(row)
	return p.what, err
}

// scanItemAt reads itemColumns, with the place of the item in lists.
func scanItemAt(row pgx.CollectableRow) (p placed[keep.Item], err error) {
	var created, updated int64
	it := &p.what
	err = row.Scan(into(&it.Workflow), into(&it.ID), into(&it.Title), into(&it.Status), &it.Attempt, &it.Rev, &created, &updated, &p.n)
	it.CreatedAt, it.UpdatedAt, p.workflow = moment(created), moment(updated), it.Workflow
	return p, err
}

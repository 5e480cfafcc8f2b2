package postgres

import (
	"context"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/law/commit"
	"github.com/keep-run/keep/law/search"
	"github.com/keep-run/keep/store/internal/stored"
)

// itemChanges are the columns of an item that change.
var itemChanges = stored.Items.Without("workflow", "id")

var (
	insertItem = insertInto("item", specOf(stored.Items)+`, n bigint, words words?`, "")
	updateItem = updateOf("item", `workflow text, id text`, specOf(itemChanges)+`, words words?`)
)

// writeItem writes a row of a plan. What makes an item invalid is in the CHECKs of the
// table.
func (t *tx) writeItem(f *commit.Item) error {
	it := &f.Put
	if !f.New {
		return update(&t.writes, &updateItem, []any{text(string(it.Workflow)), text(it.ID)}, itemChanges, it, words(search.OfItem(*it)))
	}
	t.tally("item", "")
	return write(&t.writes, &insertItem, stored.Items, it, t.next(), words(search.OfItem(*it)))
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

var (
	itemColumns = stored.Items.Columns("item.") + ", item.n"
	scanItemAt  = placedOf(stored.Items)
	scanItem    = unplaced(scanItemAt)
)

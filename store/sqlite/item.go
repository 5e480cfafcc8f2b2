package sqlite

import (
	"context"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/law/commit"
	"github.com/keep-run/keep/store/internal/stored"
)

// itemChanges are the columns of an item that change; see runChanges.
var itemChanges = stored.Items.Without("workflow", "id")

var (
	insertItem = stored.Items.Insert("item", "?")
	updateItem = `UPDATE item` + set(itemChanges) + ` WHERE workflow = ? AND id = ? AND rev = ?`
)

// writeItem writes a row of a plan. What makes an item invalid is in the CHECKs of the
// table.
func (t *tx) writeItem(put *commit.Item) (err error) {
	it := &put.Put
	var n int64
	if put.New {
		n, _, err = write(t.conn, insertItem, stored.Items, it)
	} else {
		n, _, err = write(t.conn, updateItem, itemChanges, it, it.Workflow, it.ID, put.Was)
	}
	return written("item", it.ID, n, err)
}

// Item returns an item, or *keep.NotFoundError.
func (db *DB) Item(ctx context.Context, w keep.WorkflowName, id string) (keep.Item, error) {
	return one(ctx, db, "item", id, scanItem, `SELECT `+itemColumns+` FROM item WHERE workflow = ? AND id = ?`, w, id)
}

// ItemsAfter returns up to limit of the items of w that were made after the item
// id, oldest first. It looks at limit rows, of whatever workflow.
func (db *DB) ItemsAfter(ctx context.Context, w keep.WorkflowName, id string, limit int) ([]keep.Item, error) {
	return rows(ctx, db, scanItem, `
		SELECT `+itemColumns+` FROM item
		 WHERE n > (SELECT n FROM item WHERE workflow = ?1 AND id = ?2)
		   AND n <= (SELECT n FROM item WHERE workflow = ?1 AND id = ?2) + ?3 AND +workflow = ?1
		 ORDER BY n`, w, id, limit)
}

var (
	itemColumns = stored.Items.Columns("")
	scanItem    = scanOf(stored.Items)
)

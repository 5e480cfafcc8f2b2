package sqlite

import (
	"context"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/law/commit"
)

// writeItem writes a row of a plan. What makes an item invalid is in the CHECKs of the
// table.
func (t *tx) writeItem(put *commit.Item) error {
	it := put.Put
	if put.New {
		n, err := t.exec(`
			INSERT INTO item (workflow, id, title, status, attempt, swept, rev, created_at, updated_at)
			VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)`,
			it.Workflow, it.ID, it.Title, it.Status, it.Attempt, it.Swept, it.Rev, it.CreatedAt, it.UpdatedAt)
		return written("item", it.ID, n, err)
	}
	n, err := t.exec(`
		UPDATE item SET title = ?, status = ?, attempt = ?, swept = ?, rev = ?, created_at = ?, updated_at = ?
		 WHERE workflow = ? AND id = ? AND rev = ?`,
		it.Title, it.Status, it.Attempt, it.Swept, it.Rev, it.CreatedAt, it.UpdatedAt, it.Workflow, it.ID, put.Was)
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

// itemColumns are those of the table.
const itemColumns = `workflow, id, title, status, attempt, swept, rev, created_at, updated_at`

// scanItem reads itemColumns.
func scanItem(row scanner) (it keep.Item, err error) {
	var created, updated int64
	err = row.Scan(&it.Workflow, &it.ID, &it.Title, &it.Status, &it.Attempt, &it.Swept, &it.Rev, &created, &updated)
	it.CreatedAt, it.UpdatedAt = moment(created), moment(updated)
	return it, err
}

package sqlite

import (
	"context"
	"database/sql"
	"fmt"
	"strconv"
	"time"

	"github.com/keep-run/keep"
)

// members are the runs of the chain r.
const members = `(SELECT r.id AS id UNION ALL SELECT o.id FROM run o INDEXED BY run_by_chain WHERE o.chain = r.id AND o.chain <> o.id) member`

// itemOver says of a row with an item that it needs no more.
const itemOver = `(i.attempt > x.attempt OR i.status IN ('done', 'skipped'))`

// over says whether keep.Sweep takes the chain that begins with the run r, at ?1.
const over = `
	r.chain = r.id AND r.closed = 1 AND r.updated_at < ?1 AND r.n < (SELECT max(n) FROM run)
	AND NOT EXISTS (SELECT 1 FROM run x INDEXED BY run_by_chain WHERE x.chain = r.id AND x.chain <> x.id
	     AND (x.closed = 0 OR x.updated_at >= ?1 OR x.n >= (SELECT max(n) FROM run)))
	AND NOT EXISTS (SELECT 1 FROM ` + members + ` CROSS JOIN mutation x ON x.run = member.id
	     LEFT JOIN item i ON i.workflow = x.workflow AND i.id = x.item
	     WHERE x.state NOT IN ('applied', 'skipped', 'failed') OR x.updated_at >= ?1 OR x.n >= (SELECT max(n) FROM mutation)
	        OR x.item <> '' AND ` + itemOver + ` IS NOT 1
	        OR EXISTS (SELECT 1 FROM escalation e WHERE e.mutation = x.key AND e.mutation <> '' AND e.closed_at = 0))
	AND NOT EXISTS (SELECT 1 FROM ` + members + ` CROSS JOIN escalation x ON x.run = member.id
	     LEFT JOIN item i ON i.workflow = x.workflow AND i.id = x.item
	     WHERE x.closed_at = 0 OR x.closed_at >= ?1 OR x.n >= (SELECT max(n) FROM escalation)
	        OR x.item <> '' AND (i.status IN ('done', 'skipped')) IS NOT 1)
	AND NOT EXISTS (SELECT 1 FROM event x INDEXED BY event_by_chain WHERE x.reserved_by = r.id AND x.reserved_by <> ''
	     AND (x.status = 'pending' OR x.updated_at >= ?1 OR EXISTS (
	          SELECT 1 FROM json_each(x.caused_by) CROSS JOIN input ON input.id = json_each.value AND input.status = 'pending')))
	AND NOT EXISTS (SELECT 1 FROM ` + members + ` CROSS JOIN run x INDEXED BY run_by_retry ON x.retry_of = member.id AND x.retry_of <> '' AND x.chain <> r.id)
	AND NOT EXISTS (SELECT 1 FROM handler h CROSS JOIN ` + members + ` ON member.id = h.last_run WHERE h.workflow = r.workflow)`

// sweep forgets a chain.
func (t *tx) sweep(c keep.Sweep) error {
	row, err := t.row(`SELECT r.workflow, `+over+` FROM run r WHERE r.id = ?2 AND r.chain = ?2`, millis(c.Before), c.Chain)
	switch {
	case err != nil:
	case row == nil || row[0].(string) != string(t.workflow):
		err = &keep.NotFoundError{What: "chain", ID: string(c.Chain)}
	case row[1].(int64) != 1:
		err = keep.ErrStale
	default:
		err = t.forget(c.Chain)
	}
	if err != nil {
		return fmt.Errorf("sweep %s: %w", c.Chain, err)
	}
	return nil
}

// forget deletes a chain and what belongs to it, what refers first. The payloads of
// its events go with it; a NULL takes no room.
func (t *tx) forget(chain keep.RunID) error {
	const runs = `SELECT id FROM run WHERE id = ?1 UNION ALL SELECT id FROM run INDEXED BY run_by_chain WHERE chain = ?1 AND chain <> id`
	for _, text := range []string{
		`UPDATE event INDEXED BY event_by_chain SET payload = NULL, reserved_by = '` + string(keep.Swept) + `' WHERE reserved_by = ?1 AND reserved_by <> ''`,
		`DELETE FROM notice WHERE escalation IN (SELECT n FROM escalation WHERE run IN (` + runs + `))`,
		`DELETE FROM escalation WHERE run IN (` + runs + `)`,
		`DELETE FROM mutation_history WHERE mutation IN (SELECT n FROM mutation WHERE run IN (` + runs + `))`,
		`DELETE FROM mutation WHERE run IN (` + runs + `)`,
		`DELETE FROM run_log WHERE run IN (` + runs + `)`,
		`DELETE FROM run INDEXED BY run_by_chain WHERE chain = ?1 AND chain <> id`,
		`DELETE FROM run WHERE id = ?1`,
	} {
		if _, err := t.exec(text, chain); err != nil {
			return err
		}
	}
	return nil
}

// Over returns the old chains among the next runs; see engine.Sweeper.
func (db *DB) Over(ctx context.Context, before time.Time, after string, limit int) ([]keep.OldChain, string, error) {
	from := int64(0)
	if after != "" {
		var err error
		if from, err = strconv.ParseInt(after, 10, 64); err != nil {
			return nil, "", fmt.Errorf("cursor %q: %w", after, keep.ErrBadCursor)
		}
	}
	var last int64
	seen, end := 0, false
	list, err := rows(ctx, db, func(row *sql.Rows) (c keep.OldChain, err error) {
		var made, at int64
		var take bool
		err = row.Scan(&last, &made, &c.Workflow, &c.Chain, &take, &at, &c.Runs, &c.Mutations)
		end = end || made >= millis(before) // later rows are newer
		if seen++; !take {
			c = keep.OldChain{}
		}
		c.At = moment(at)
		return c, err
	}, `SELECT r.n, r.created_at, r.workflow, r.id, `+over+`,
		       (SELECT max(x.updated_at) FROM `+members+` CROSS JOIN run x ON x.id = member.id),
		       (SELECT count(*) FROM `+members+`),
		       (SELECT count(*) FROM `+members+` CROSS JOIN mutation x ON x.run = member.id)
		  FROM run r NOT INDEXED WHERE r.n > ?2 ORDER BY r.n LIMIT ?3`, millis(before), from, limit)
	if err != nil {
		return nil, "", fmt.Errorf("look for what is over: %w", err)
	}
	var old []keep.OldChain
	for _, c := range list {
		if c.Chain != "" {
			old = append(old, c)
		}
	}
	if seen < limit || end {
		return old, "", nil
	}
	return old, strconv.FormatInt(last, 10), nil
}

// Shrink gives free pages back to the file system; see [Keys.Shrink].
func (db *DB) Shrink(ctx context.Context) (bytes int64, err error) {
	return (&Keys{db: db}).Shrink(ctx)
}

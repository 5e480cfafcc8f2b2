package sqlite

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strconv"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/store/internal/stored"
)

// members are the runs of the chain r.
const members = `(SELECT r.id AS id UNION ALL SELECT o.id FROM run o INDEXED BY run_by_chain WHERE o.chain = r.id AND o.chain <> o.id) member`

// itemOver says of a row with an item that it needs no more.
const itemOver = `(i.attempt > x.attempt OR i.status IN ('done', 'skipped'))`

// over says whether keep.Sweep takes the chain that begins with the run r, at ?1.
var over = `
	r.chain = r.id AND r.closed = 1 AND r.updated_at < ?1 AND r.n < (SELECT max(n) FROM run)
	AND NOT EXISTS (SELECT 1 FROM run x INDEXED BY run_by_chain WHERE x.chain = r.id AND x.chain <> x.id
	     AND (x.closed = 0 OR x.updated_at >= ?1 OR x.n >= (SELECT max(n) FROM run)))
	AND NOT EXISTS (SELECT 1 FROM ` + members + ` CROSS JOIN mutation x ON x.run = member.id
	     LEFT JOIN item i ON i.workflow = x.workflow AND i.id = x.item
	     WHERE x.state NOT IN (` + stored.Known() + `) OR x.updated_at >= ?1 OR x.n >= (SELECT max(n) FROM mutation)
	        OR x.item <> '' AND ` + itemOver + ` IS NOT 1
	        OR EXISTS (SELECT 1 FROM escalation e WHERE e.mutation = x.key AND e.mutation <> '' AND e.closed_at = 0)
	        OR EXISTS (SELECT 1 FROM run o INDEXED BY run_open WHERE o.workflow = x.workflow AND o.closed = 0 AND o.mutation = x.key))
	AND NOT EXISTS (SELECT 1 FROM ` + members + ` CROSS JOIN escalation x ON x.run = member.id
	     LEFT JOIN item i ON i.workflow = x.workflow AND i.id = x.item
	     WHERE x.closed_at = 0 OR x.closed_at >= ?1 OR x.n >= (SELECT max(n) FROM escalation)
	        OR x.item <> '' AND (i.status IN ('done', 'skipped')) IS NOT 1)
	AND NOT EXISTS (SELECT 1 FROM event x INDEXED BY event_by_chain WHERE x.reserved_by = r.id AND x.reserved_by <> ''
	     AND (x.status = 'pending' OR x.updated_at >= ?1 OR EXISTS (
	          SELECT 1 FROM json_each(x.caused_by) CROSS JOIN input ON input.id = json_each.value AND input.status = 'pending')))
	AND NOT EXISTS (SELECT 1 FROM event_tried l INDEXED BY event_tried_by_chain CROSS JOIN event x ON x.seq = l.event WHERE l.chain = r.id
	     AND (x.status = 'pending' OR x.updated_at >= ?1 OR EXISTS (
	          SELECT 1 FROM json_each(x.caused_by) CROSS JOIN input ON input.id = json_each.value AND input.status = 'pending')))
	AND NOT EXISTS (SELECT 1 FROM ` + members + ` CROSS JOIN run x INDEXED BY run_by_retry ON x.retry_of = member.id AND x.retry_of <> '' AND x.chain <> r.id)
	AND NOT EXISTS (SELECT 1 FROM handler h CROSS JOIN ` + members + ` ON member.id = h.last_run WHERE h.workflow = r.workflow)`

// forget deletes a chain and what belongs to it, what refers first. The payloads of
// its events go with it; a NULL takes no room.
func (t *tx) forget(chain keep.RunID) error {
	const runs = `SELECT id FROM run WHERE id = ?1 UNION ALL SELECT id FROM run INDEXED BY run_by_chain WHERE chain = ?1 AND chain <> id`
	if _, err := t.unfold(`run IN (`+runs+`)`, chain); err != nil {
		return err
	}
	for _, text := range []string{
		`UPDATE event INDEXED BY event_by_chain SET payload = NULL, reserved_by = '` + string(keep.Swept) + `' WHERE reserved_by = ?1 AND reserved_by <> ''`,
		`DELETE FROM event_tried WHERE event IN (SELECT event FROM event_tried INDEXED BY event_tried_by_chain WHERE chain = ?1) AND chain = ?1`,
		`DELETE FROM notice WHERE escalation IN (SELECT n FROM escalation WHERE run IN (` + runs + `))`,
		`DELETE FROM escalation WHERE run IN (` + runs + `)`,
		`DELETE FROM mutation_history WHERE mutation IN (SELECT n FROM mutation WHERE run IN (` + runs + `))`,
		`UPDATE item SET swept = max(swept, (SELECT max(m.attempt) FROM mutation m WHERE m.run IN (` + runs + `) AND m.workflow = item.workflow AND m.item = item.id))
		  WHERE (workflow, id) IN (SELECT workflow, item FROM mutation WHERE run IN (` + runs + `) AND item <> '')`,
		`DELETE FROM mutation WHERE run IN (` + runs + `)`,
		`DELETE FROM run_log WHERE run IN (` + runs + `)`,
		`DELETE FROM run_trace WHERE run IN (SELECT n FROM run WHERE id IN (` + runs + `))`,
		`DELETE FROM run INDEXED BY run_by_chain WHERE chain = ?1 AND chain <> id`,
		`DELETE FROM run WHERE id = ?1`,
	} {
		if _, err := t.exec(text, chain); err != nil {
			return err
		}
	}
	return nil
}

// Over returns the old chains among the next runs of a workflow; see store.Sweeper. It
// looks for the workflow in one bucket after the other, and reads those that have it. Empty
// runs have an index.
func (db *DB) Over(ctx context.Context, r keep.OldRuns, after string, limit int) (old []keep.OldChain, next string, err error) {
	from := int64(0)
	if after != "" {
		if from, err = strconv.ParseInt(after, 10, 64); err != nil {
			return nil, "", fmt.Errorf("cursor %q: %w", after, keep.ErrBadCursor)
		}
	}
	if r.Empty {
		part, err := db.overIn(ctx, r, `INDEXED BY run_empty WHERE r.idle = 1 AND r.chain = r.id AND`, from, math.MaxInt64, limit)
		if err != nil || part.young || part.read < limit {
			return part.old, "", err
		}
		return part.old, strconv.FormatInt(part.last, 10), nil
	}
	for left := limit; left > 0; {
		bucket, some, err := db.bucketOf(ctx, r.Workflow, (from+1)/bucketSize)
		if err != nil || !some {
			return old, "", err
		}
		end := (bucket + 1) * bucketSize
		part, err := db.overIn(ctx, r, `NOT INDEXED WHERE`, max(from, bucket*bucketSize-1), end, left)
		if err != nil {
			return nil, "", err
		}
		if old = append(old, part.old...); part.young {
			return old, "", nil
		}
		if from = part.last; part.read < left {
			from = end - 1
		}
		left -= part.read
	}
	return old, strconv.FormatInt(from, 10), nil
}

// A partOver is what was found among some runs.
type partOver struct {
	old   []keep.OldChain
	read  int   // runs
	last  int64 // of them
	young bool  // one of them is too new: so are all later ones
}

// overIn looks for old chains among the runs with a number between two.
func (db *DB) overIn(ctx context.Context, r keep.OldRuns, from string, after, end int64, limit int) (p partOver, err error) {
	before := millis(r.Before)
	list, err := rows(ctx, db, func(row scanner) (c keep.OldChain, err error) {
		var made, at int64
		var take bool
		err = row.Scan(&p.last, &made, &c.Chain, &take, &at, &c.Runs, &c.Mutations)
		c.Workflow, c.At = r.Workflow, moment(at)
		p.young = p.young || made >= before
		if p.read++; !take || made >= before {
			c = keep.OldChain{}
		}
		return c, err
	}, `SELECT r.n, r.created_at, r.id, `+over+`,
		       (SELECT max(x.updated_at) FROM `+members+` CROSS JOIN run x ON x.id = member.id),
		       (SELECT count(*) FROM `+members+`),
		       (SELECT count(*) FROM `+members+` CROSS JOIN mutation x ON x.run = member.id)
		  FROM run r `+from+` r.n > ?2 AND r.n < ?3 AND r.workflow = ?4 ORDER BY r.n LIMIT ?5`,
		before, after, end, r.Workflow, limit)
	if err != nil {
		return p, fmt.Errorf("look for what is over: %w", err)
	}
	p.old = slices.DeleteFunc(list, func(c keep.OldChain) bool { return c.Chain == "" })
	return p, nil
}

// bucketOf returns the first bucket from one on that has a run of a workflow.
func (db *DB) bucketOf(ctx context.Context, w keep.WorkflowName, from int64) (bucket int64, some bool, err error) {
	list, err := rows(ctx, db, scanNumber, `
		WITH RECURSIVE bucket (b) AS (SELECT ?1 UNION ALL SELECT b + 1 FROM bucket WHERE b < (SELECT max(n) >> 9 FROM run))
		SELECT b FROM bucket CROSS JOIN run INDEXED BY run_by_handler WHERE n >> 9 = b AND workflow = ?2 LIMIT 1`, from, w)
	if err != nil || len(list) == 0 {
		return 0, false, err
	}
	return list[0], true, nil
}

// Shrink gives free pages back to the file system; see [Keys.Shrink].
func (db *DB) Shrink(ctx context.Context) (bytes int64, err error) {
	return (&Keys{db: db}).Shrink(ctx)
}

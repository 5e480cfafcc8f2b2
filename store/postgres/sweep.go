package postgres

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/store/internal/stored"
)

// members are the runs of the chain r.
const members = `(SELECT r.id AS id UNION ALL SELECT o.id FROM run o WHERE o.chain = r.id AND o.chain <> o.id) member`

// newestRow is the place of the newest row of a table, which stays.
func newestRow(table string) string {
	return `(SELECT n, workflow FROM ` + table + ` ORDER BY n DESC, workflow DESC LIMIT 1)`
}

// isOver says whether keep.Sweep takes the chain that begins with the run r; before is
// an expression for its time.
func isOver(before string) string {
	return strings.ReplaceAll(`
	r.chain = r.id AND r.closed AND r.updated_at < {before} AND (r.n, r.workflow) <> `+newestRow("run")+`
	AND NOT EXISTS (SELECT 1 FROM run x WHERE x.chain = r.id AND x.chain <> x.id
	     AND (NOT x.closed OR x.updated_at >= {before} OR (x.n, x.workflow) = `+newestRow("run")+`))
	AND NOT EXISTS (SELECT 1 FROM `+members+` JOIN mutation x ON x.run = member.id
	     LEFT JOIN item i ON i.workflow = x.workflow AND i.id = x.item
	     WHERE x.state NOT IN (`+stored.Known()+`) OR x.updated_at >= {before} OR (x.n, x.workflow) = `+newestRow("mutation")+`
	        OR x.item <> '' AND (i.attempt > x.attempt OR i.status IN ('done', 'skipped')) IS NOT TRUE
	        OR EXISTS (SELECT 1 FROM escalation e WHERE e.mutation = x.key AND e.mutation <> '' AND e.closed_at = 0)
	        OR EXISTS (SELECT 1 FROM run o WHERE o.workflow = x.workflow AND NOT o.closed AND o.mutation = x.key))
	AND NOT EXISTS (SELECT 1 FROM `+members+` JOIN escalation x ON x.run = member.id
	     LEFT JOIN item i ON i.workflow = x.workflow AND i.id = x.item
	     WHERE x.closed_at = 0 OR x.closed_at >= {before} OR (x.n, x.workflow) = `+newestRow("escalation")+`
	        OR x.item <> '' AND (i.status IN ('done', 'skipped')) IS NOT TRUE)
	AND NOT EXISTS (SELECT 1 FROM event x WHERE x.reserved_by = r.id AND x.reserved_by <> ''
	     AND (x.status = 'pending' OR x.updated_at >= {before}))
	AND NOT EXISTS (SELECT 1 FROM event x, json_array_elements_text(x.caused_by::json) AS j (id), input
	     WHERE x.reserved_by = r.id AND x.reserved_by <> '' AND input.id = j.id AND input.status = 'pending')
	AND NOT EXISTS (SELECT 1 FROM event_tried l `+joinTried+` WHERE l.chain = r.id AND (e.status = 'pending' OR e.updated_at >= {before}))
	AND NOT EXISTS (SELECT 1 FROM event_tried l `+joinTried+`, json_array_elements_text(e.caused_by::json) AS j (id), input
	     WHERE l.chain = r.id AND input.id = j.id AND input.status = 'pending')
	AND NOT EXISTS (SELECT 1 FROM `+members+`, LATERAL (SELECT 1 FROM run x WHERE x.retry_of = member.id AND x.retry_of <> '' AND x.chain <> r.id LIMIT 1) y)
	AND NOT EXISTS (SELECT 1 FROM handler h JOIN `+members+` ON member.id = h.last_run WHERE h.workflow = r.workflow)`, "{before}", before)
}

// forget deletes a chain.
func (t *tx) forget(chain keep.RunID) error {
	for _, s := range []*statement{&lockSums, &sweepEvents, &sweepTried, &sweepNotices, &sweepEscalations, &sweepMoves, &sweepMutationTally, &sweepItems, &sweepSums, &sweepMutations, &sweepLogs, &sweepTraces, &sweepRunTally, &sweepRuns, &sweepEmptySums} {
		t.add(s, text(string(chain)))
	}
	return nil
}

// ofChains are the runs of the chains $1.
const ofChains = `(SELECT id, workflow FROM unnest($1::text[]) AS v (chain) JOIN run ON run.id = v.chain
	UNION ALL SELECT id, workflow FROM unnest($1::text[]) AS v (chain) JOIN run ON run.chain = v.chain AND run.chain <> run.id) o`

// What refers goes before what it refers to.
var (
	sweepEvents = literal(`UPDATE event AS t SET payload = NULL, reserved_by = '`+string(keep.Swept)+`'
		FROM unnest($1::text[]) AS v (chain) WHERE t.reserved_by = v.chain AND t.reserved_by <> ''`, "text")
	sweepTried   = literal(`DELETE FROM event_tried AS t USING unnest($1::text[]) AS v (chain) WHERE t.chain = v.chain`, "text")
	sweepNotices = literal(`DELETE FROM notice AS t USING `+ofChains+` JOIN escalation e ON e.run = o.id
		WHERE t.workflow = e.workflow AND t.escalation = e.n`, "text")
	sweepEscalations = literal(`DELETE FROM escalation AS t USING `+ofChains+` WHERE t.run = o.id`, "text")
	sweepMoves       = literal(`DELETE FROM mutation_history AS t USING `+ofChains+` JOIN mutation m ON m.run = o.id
		WHERE t.workflow = m.workflow AND t.mutation = m.n`, "text")
	sweepMutationTally = literal(`UPDATE tally AS t SET rows = t.rows - v.gone
		FROM (SELECT m.workflow, m.tool, count(*) AS gone FROM `+ofChains+` JOIN mutation m ON m.run = o.id GROUP BY m.workflow, m.tool) v
		WHERE t.workflow = v.workflow AND t.noun = 'mutation' AND t.name = v.tool`, "text")
	sweepItems = literal(`UPDATE item AS t SET swept = greatest(t.swept, v.attempt)
		FROM (SELECT m.workflow, m.item, max(m.attempt) AS attempt FROM `+ofChains+` JOIN mutation m ON m.run = o.id WHERE m.item <> '' GROUP BY m.workflow, m.item) v
		WHERE t.workflow = v.workflow AND t.id = v.item`, "text")
	sweepMutations = literal(`DELETE FROM mutation AS t USING `+ofChains+` WHERE t.run = o.id`, "text")
	sweepLogs      = literal(`DELETE FROM run_log AS t USING `+ofChains+` WHERE t.workflow = o.workflow AND t.run = o.id`, "text")
	sweepTraces    = literal(`DELETE FROM run_trace AS t USING `+ofChains+` WHERE t.workflow = o.workflow AND t.run = o.id`, "text")
	sweepRunTally  = literal(`UPDATE tally AS t SET rows = t.rows - v.gone
		FROM (SELECT r.workflow, r.handler, count(*) AS gone FROM `+ofChains+` JOIN run r ON r.id = o.id GROUP BY r.workflow, r.handler) v
		WHERE t.workflow = v.workflow AND t.noun = 'run' AND t.name = v.handler`, "text")
	sweepRuns = literal(`DELETE FROM run AS t USING `+ofChains+` WHERE t.id = o.id`, "text")
)

// Over returns the old chains among the next runs of a workflow; see store.Sweeper. It
// merges the runs of its handlers, each in the order of its primary key.
func (db *DB) Over(ctx context.Context, r keep.OldRuns, after string, limit int) (old []keep.OldChain, next string, err error) {
	var from int64
	if after != "" {
		if from, err = strconv.ParseInt(after, 10, 64); err != nil {
			return nil, "", fmt.Errorf("cursor %q: %w", after, keep.ErrBadCursor)
		}
	}
	runs := `(SELECT run.* FROM tally, LATERAL (
				SELECT * FROM run WHERE run.workflow = $2 AND run.handler = tally.name AND run.n > $3 ORDER BY run.n LIMIT $4) run
			 WHERE tally.workflow = $2 AND tally.noun = 'run' ORDER BY run.n LIMIT $4)`
	if r.Empty {
		runs = `(SELECT * FROM run WHERE workflow = $2 AND idle AND chain = id AND n > $3 ORDER BY n LIMIT $4)`
	}
	w, before := r.Workflow, millis(r.Before)
	read, young := 0, false
	list, err := collect(ctx, db, func(row pgx.CollectableRow) (c keep.OldChain, err error) {
		var made, at int64
		var take bool
		err = row.Scan(&from, &made, into(&c.Chain), &take, &at, &c.Runs, &c.Mutations)
		young = young || made >= before // later rows are newer
		c.Workflow, c.At = w, moment(at)
		if read++; !take || made >= before {
			c = keep.OldChain{}
		}
		return c, err
	}, `SELECT r.n, r.created_at, r.id, `+isOver("$1")+`,
		       (SELECT max(x.updated_at) FROM `+members+` JOIN run x ON x.id = member.id),
		       (SELECT count(*) FROM `+members+`),
		       (SELECT count(*) FROM `+members+` JOIN mutation x ON x.run = member.id)
		  FROM `+runs+` r
		 ORDER BY r.n`, before, w, from, limit)
	if err != nil {
		return nil, "", fmt.Errorf("look for what is over: %w", err)
	}
	old = slices.DeleteFunc(list, func(c keep.OldChain) bool { return c.Chain == "" })
	if read < limit || young {
		return old, "", nil
	}
	return old, strconv.FormatInt(from, 10), nil
}

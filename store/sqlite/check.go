package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"iter"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/store/internal/stored"
)

// Check reports every record that breaks a law, as *keep.Violation. A healthy
// store yields nothing. Stopping early is fine. It reads one snapshot of the
// whole file, with plain SQL that shares nothing with the code it checks, and
// may take a while on a large one.
//
// An error that is not a violation means that the file could not be read. Of a file with an older schema only damage is
// reported (Config.Older): this version does not know what its records should be.
func (db *DB) Check(ctx context.Context) iter.Seq[error] {
	return func(yield func(error) bool) {
		stopped := errors.New("the caller has seen enough")
		err := db.snapshot(ctx, func(v *view) error {
			if err := v.refreshSearch(ctx); err != nil {
				return err
			}
			for _, c := range db.checks() {
				err := v.check(ctx, c, func(found error) error {
					if !yield(found) {
						return stopped
					}
					return nil
				})
				if err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil && !errors.Is(err, stopped) {
			yield(fmt.Errorf("check %s: %w", db.path, err))
		}
	}
}

// refreshSearch asks each full-text index something. FTS5 checks an index by what its
// connection remembers of it, and only a search makes it look whether that has changed:
// without one, a sound index can be called corrupt. An older schema may lack one.
func (v *view) refreshSearch(ctx context.Context) error {
	for _, noun := range searchedNouns {
		if err := v.searchOnce(ctx, noun.table+"_search"); err != nil && v.db.older == nil {
			return err
		}
	}
	return nil
}

// searchOnce asks one full-text index.
func (v *view) searchOnce(ctx context.Context, index string) error {
	rows, err := v.tx.QueryContext(ctx, `SELECT rowid FROM `+index+` WHERE `+index+` MATCH '"0"' LIMIT 1`)
	if err != nil {
		return err
	}
	for rows.Next() { // to its end
	}
	return errors.Join(rows.Err(), rows.Close())
}

// A check is a law and a query for the records that break it, and why.
type check struct{ law, text string }

// check runs one query and calls found with each violation.
func (v *view) check(ctx context.Context, c check, found func(error) error) error {
	// Not prepared once and kept: a check is rare, and reads the whole file.
	rows, err := v.tx.QueryContext(ctx, c.text)
	if err != nil {
		return fmt.Errorf("law %s: %w", c.law, err)
	}
	defer rows.Close()
	for rows.Next() {
		violation, err := scanViolation(rows, c.law)
		if err != nil {
			return fmt.Errorf("law %s: %w", c.law, err)
		}
		if err := found(violation); err != nil {
			return err
		}
	}
	return rows.Err()
}

// scanViolation reads a record and why it breaks the law.
func scanViolation(row scanner, law string) (*keep.Violation, error) {
	var record, why sql.NullString
	err := row.Scan(&record, &why)
	return &keep.Violation{Law: law, Record: record.String, Why: why.String}, err
}

// isRead is whether a consumer of the version in force subscribes to the topic t.
const isRead = `EXISTS (SELECT 1 FROM workflow w JOIN deployment d ON d.workflow = w.name AND d.major = w.major AND d.minor = w.minor,
	       json_each(d.definition, '$.handlers') h, json_each(h.value, '$.subscribe') s
	 WHERE w.name = t.workflow AND s.value = t.name)`

// attemptOf is at which attempt an event e is.
const attemptOf = `(1 + json_array_length(ifnull(e.redone, '[]')))`

// reservedByRuns are the events that runs list, each with its attempt. What is joined with them is a CROSS JOIN, which SQLite
// takes in this order: it does not know that a run has few events, and would go through all of a workflow for each run.
const reservedByRuns = `SELECT run.id, run.chain, run.workflow, run.mutation, json_extract(v.value, '$.topic') AS topic, m.value AS message_id,
	       ifnull(json_extract(v.value, '$.attempts[' || m.key || ']'), 1) AS attempt
	  FROM run, json_each(run.reservations) v, json_each(v.value, '$.ids') m WHERE m.type = 'text'`

// checks returns those that a file of its schema can be given.
func (db *DB) checks() []check {
	if db.older != nil {
		return []check{damage}
	}
	return checks
}

// damage is the check that needs no table of ours.
var damage = check{"nothing-lost", `SELECT 'file', integrity_check FROM pragma_integrity_check WHERE integrity_check <> 'ok'`}

// checks are in the order of reading a damaged file: the file itself, then what
// counts and refers, then the laws of runs, events and mutations.
var checks = []check{
	damage,
	{"nothing-lost", `SELECT 'table ' || "table" || ' row ' || ifnull(rowid, '?'), 'it refers to a missing ' || parent FROM pragma_foreign_key_check`},
	{"nothing-lost", `SELECT 'table run_trace row ' || p.n, 'it refers to a missing run' FROM run_trace p WHERE NOT EXISTS (SELECT 1 FROM run r WHERE r.n = p.run)`},

	// What is kept beside the rows that it is derived from.
	{"nothing-lost", `
		SELECT 'input ' || id, unfinished || ' unfinished events are counted, there are ' || actual
		  FROM (SELECT id, unfinished, (SELECT count(*) FROM event_cause JOIN event ON seq = event
		          WHERE input = id AND event.status = 'pending' AND (reserved_by <> '' OR NOT EXISTS (
		                SELECT 1 FROM topic t WHERE t.workflow = event.workflow AND t.name = event.topic AND t.unread = 1))) AS actual FROM input)
		 WHERE unfinished <> actual`},
	{"nothing-lost", `
		SELECT 'topic ' || workflow || '/' || name, 'it says that ' || CASE unread WHEN 1 THEN 'nobody reads it' ELSE 'a consumer reads it' END
		  FROM topic t WHERE EXISTS (SELECT 1 FROM workflow w WHERE w.name = t.workflow)
		   AND unread = ` + isRead},
	{"nothing-lost", `
		SELECT 'topic ' || workflow || '/' || topic, kind || ' ' || kept || ' are counted, there are ' || actual
		  FROM (SELECT c.workflow, c.topic, c.kind, c.actual, CASE c.kind
		               WHEN 'pending' THEN t.pending WHEN 'consumed' THEN t.consumed ELSE t.skipped END AS kept
		          FROM (SELECT workflow, topic, status AS kind, count(*) AS actual
		                  FROM event GROUP BY workflow, topic, status) c
		          LEFT JOIN topic t ON t.workflow = c.workflow AND t.name = c.topic)
		 WHERE kept IS NOT actual`},
	{"nothing-lost", `
		SELECT 'topic ' || t.workflow || '/' || t.name, 'more events are counted than there are'
		  FROM topic t
		 WHERE t.pending + t.consumed + t.skipped <>
		       (SELECT count(*) FROM event e WHERE e.workflow = t.workflow AND e.topic = t.name)`},
	{"nothing-lost", `
		SELECT noun || 's of workflow ' || workflow, sum(kept) || ' are counted, there are ' || sum(actual)
		  FROM (SELECT noun, workflow, name, rows AS kept, 0 AS actual FROM tally
		        UNION ALL SELECT 'run', workflow, handler, 0, count(*) FROM run GROUP BY workflow, handler
		        UNION ALL SELECT 'mutation', workflow, tool, 0, count(*) FROM mutation GROUP BY workflow, tool
		        UNION ALL SELECT 'input', workflow, '', 0, count(*) FROM input GROUP BY workflow
		        UNION ALL SELECT 'item', workflow, '', 0, count(*) FROM item GROUP BY workflow)
		 GROUP BY noun, workflow, name HAVING sum(kept) <> sum(actual)`},
	{"nothing-lost", `
		SELECT 'event ' || workflow || '/' || topic || '/' || message_id, 'its causes are not those that inputs know'
		  FROM event e
		 WHERE caused_by <> '[]'
		   AND (EXISTS (SELECT 1 FROM json_each(e.caused_by) j
		                 WHERE NOT EXISTS (SELECT 1 FROM event_cause c WHERE c.input = j.value AND c.event = e.seq)))
		UNION ALL
		SELECT 'event ' || c.event, 'input ' || c.input || ' knows it, but did not cause it'
		  FROM event_cause c LEFT JOIN event e ON e.seq = c.event
		 WHERE e.seq IS NULL OR NOT EXISTS (SELECT 1 FROM json_each(e.caused_by) j WHERE j.value = c.input)`},

	// What refers to something else.
	{"nothing-lost", `
		SELECT 'event ' || e.workflow || '/' || e.topic || '/' || e.message_id, 'input ' || j.value || ' does not exist'
		  FROM event e, json_each(e.caused_by) j
		 WHERE NOT EXISTS (SELECT 1 FROM input i WHERE i.id = j.value AND i.workflow = e.workflow)`},
	{"nothing-lost", `
		SELECT 'mutation ' || key, 'run ' || run || ' does not exist'
		  FROM mutation m WHERE NOT EXISTS (SELECT 1 FROM run r WHERE r.id = m.run AND r.workflow = m.workflow)`},
	{"nothing-lost", `
		SELECT 'run ' || id, 'mutation ' || mutation || ' does not exist'
		  FROM run r
		 WHERE mutation <> '' AND phase IN ('mutating', 'mutated', 'emitting', 'committed') AND status <> 'paused:approval'
		   AND (kind = 'consumer' OR closed = 0) -- that of a job run may be of an earlier one, which was swept
		   AND NOT EXISTS (SELECT 1 FROM mutation m WHERE m.key = r.mutation AND m.workflow = r.workflow)`},
	{"nothing-lost", `
		SELECT 'mutation ' || m.key, CASE WHEN i.id IS NULL THEN 'item ' || m.item || ' does not exist'
		       ELSE 'it belongs to attempt ' || m.attempt || ' of item ' || m.item || ', which is at ' || i.attempt END
		  FROM mutation m LEFT JOIN item i ON i.workflow = m.workflow AND i.id = m.item
		 WHERE m.item <> '' AND (i.id IS NULL OR i.attempt < m.attempt)`},
	{"nothing-lost", `
		SELECT 'escalation ' || id, 'run ' || run || ' does not exist'
		  FROM escalation e
		 WHERE run <> '' AND NOT EXISTS (SELECT 1 FROM run r WHERE r.id = e.run AND r.workflow = e.workflow)`},
	{"permitted", `
		SELECT 'workflow ' || name, 'grant ' || granted || ' holds, and it was given ' || count(g.n)
		  FROM workflow LEFT JOIN granted g ON g.workflow = name GROUP BY name, granted
		HAVING granted <> count(g.n) OR granted <> coalesce(max(g.n), 0)`},
	{"permitted", `
		SELECT 'proposal ' || p.workflow || ' ' || p.major || '.' || p.minor, 'it is ' || p.state || ', and its question is ' ||
		       CASE WHEN e.id IS NULL THEN 'missing' WHEN e.closed_at = 0 THEN 'open' ELSE 'closed' END
		  FROM proposal p LEFT JOIN escalation e ON e.id = p.question
		 WHERE (p.state = 'waiting') <> (e.id IS NOT NULL AND e.closed_at = 0)`},
	{"permitted", `
		SELECT 'proposal ' || workflow || ' ' || major || '.' || minor, 'it is ' || state || ', and only what is approved is deployed'
		  FROM proposal p WHERE (state = 'approved') <> EXISTS (
		       SELECT 1 FROM deployment d WHERE d.workflow = p.workflow AND d.major = p.major AND d.minor = p.minor)`},
	{"nothing-lost", `
		SELECT 'workflow ' || name, 'its version ' || w.major || '.' || w.minor || ' is not the latest that was deployed'
		  FROM workflow w
		 WHERE (w.major, w.minor) IS NOT (SELECT d.major, d.minor FROM deployment d
		        WHERE d.workflow = w.name ORDER BY d.major DESC, d.minor DESC LIMIT 1)`},
	{"nothing-lost", `
		SELECT 'workflow ' || workflow, 'version ' || major || '.' || minor || ' was deployed after a later one'
		  FROM (SELECT workflow, major, minor, lag(major) OVER w AS m, lag(minor) OVER w AS n
		          FROM deployment WINDOW w AS (PARTITION BY workflow ORDER BY n))
		 WHERE (major, minor) <= (m, n)`},
	{"bounded", `
		SELECT 'checkpoint ' || workflow || '/' || producer, 'key ' || key || ' has ' || octet_length(value) || ' bytes'
		  FROM kv WHERE octet_length(value) > 65536`},
	{"bounded", `
		SELECT 'checkpoint ' || workflow || '/' || producer, 'it has ' || sum(octet_length(key) + octet_length(value)) || ' bytes'
		  FROM kv GROUP BY workflow, producer HAVING sum(octet_length(key) + octet_length(value)) > 1048576`},

	// Runs.
	{"one-at-a-time", `
		SELECT 'workflow ' || workflow, count(*) || ' runs of lane "' || lane || '" are not closed'
		  FROM run WHERE closed = 0 GROUP BY workflow, lane HAVING count(*) > 1`},
	{"pinned", `
		SELECT 'run ' || r.id, 'its chain ' || r.chain || ' does not begin with a run'
		  FROM run r LEFT JOIN run c ON c.id = r.chain
		 WHERE c.id IS NULL OR c.chain <> c.id OR c.workflow <> r.workflow`},
	{"pinned", `
		SELECT 'run ' || r.id, 'it retries ' || r.retry_of || ', which is not a closed run of its workflow'
		  FROM run r LEFT JOIN run p ON p.id = r.retry_of
		 WHERE r.retry_of <> '' AND (p.id IS NULL OR p.closed = 0 OR p.workflow <> r.workflow)`},
	{"all-or-nothing", `
		SELECT 'run ' || r.id, 'it is ' || r.phase || ', its mutation ' || m.key || ' is ' || m.state
		  FROM run r JOIN mutation m ON m.key = r.mutation
		 WHERE r.kind = 'consumer' AND r.phase IN ('mutated', 'emitting', 'committed')
		   AND m.state NOT IN ('applied', 'skipped')`},
	{"explained", `
		SELECT 'run ' || id, 'it waits to be tried again, and no time is set'
		  FROM run WHERE closed = 0 AND status = 'paused:transient' AND retry_at = 0`},
	{"explained", `
		SELECT 'run ' || id, 'it waits for a person, and nothing is asked'
		  FROM run r
		 WHERE closed = 0 AND status IN ('paused:person', 'paused:approval') AND retry_at = 0
		   AND coalesce(json_extract(r.error, '$.code'), '') NOT IN ('reconnect', 'budget', 'breaker') -- the question is about the account, the budget or the tool
		   AND NOT EXISTS (SELECT 1 FROM escalation e WHERE e.run = r.id AND e.closed_at = 0)`},

	// Events. A logic failure releases the events of a run that stays open.
	{"pinned", `
		SELECT 'run ' || r.id, 'event ' || json_extract(v.value, '$.topic') || '/' || m.value || ' is not reserved by its chain'
		  FROM run r, json_each(r.reservations) v, json_each(v.value, '$.ids') m
		 WHERE r.closed = 0 AND r.status NOT LIKE 'failed:%' AND m.type = 'text'
		   AND NOT EXISTS (SELECT 1 FROM event e
		        WHERE e.workflow = r.workflow AND e.topic = json_extract(v.value, '$.topic') AND e.message_id = m.value
		          AND e.status = 'pending' AND e.reserved_by = r.chain)`},
	{"pinned", `
		SELECT 'event ' || workflow || '/' || topic || '/' || message_id, 'it is reserved by ' || reserved_by || ', which has no open run'
		  FROM event e
		 WHERE status = 'pending' AND reserved_by <> ''
		   AND NOT EXISTS (SELECT 1 FROM run r WHERE r.workflow = e.workflow AND r.closed = 0 AND r.chain = e.reserved_by)`},
	{"pinned", `
		SELECT 'event ' || e.workflow || '/' || e.topic || '/' || e.message_id, 'it is reserved by ' || e.reserved_by || ', whose run does not list it'
		  FROM event e JOIN run r ON r.workflow = e.workflow AND r.closed = 0 AND r.chain = e.reserved_by
		 WHERE e.status = 'pending' AND e.reserved_by <> ''
		   AND NOT EXISTS (SELECT 1 FROM json_each(r.reservations) v, json_each(v.value, '$.ids') m
		        WHERE json_extract(v.value, '$.topic') = e.topic AND m.value = e.message_id)`},
	{"all-or-nothing", `
		SELECT 'event ' || workflow || '/' || topic || '/' || message_id, 'it was consumed by ' || reserved_by || ', which did not commit'
		  FROM event e
		 WHERE status = 'consumed' AND reserved_by <> 'swept'
		   AND NOT EXISTS (SELECT 1 FROM run r WHERE r.id = e.reserved_by AND r.chain = r.id AND r.status = 'committed')
		   AND NOT EXISTS (SELECT 1 FROM run r WHERE r.chain = e.reserved_by AND r.chain <> r.id AND r.status = 'committed')`},

	// Attempts at events.
	{"pinned", `
		SELECT 'run ' || r.id, 'it has event ' || r.topic || '/' || r.message_id || ' at attempt ' || r.attempt || ', which is at ' || ` + attemptOf + `
		  FROM (` + reservedByRuns + `) r CROSS JOIN event e ON e.workflow = r.workflow AND e.topic = r.topic AND e.message_id = r.message_id
		 WHERE r.attempt < 1 OR r.attempt > ` + attemptOf},
	{"pinned", `
		SELECT DISTINCT 'event ' || e.workflow || '/' || e.topic || '/' || e.message_id, 'it is at attempt ' || ` + attemptOf + ` || ', and chain ' || r.chain || ' had it at ' || r.attempt
		  FROM (` + reservedByRuns + `) r CROSS JOIN event e ON e.workflow = r.workflow AND e.topic = r.topic AND e.message_id = r.message_id
		 WHERE e.reserved_by = r.chain AND r.attempt <> ` + attemptOf},
	{"once", `
		SELECT 'mutation ' || r.mutation, 'attempts ' || min(r.attempt) || ' and ' || max(r.attempt) || ' of event ' || r.workflow || '/' || r.topic || '/' || r.message_id || ' share it'
		  FROM (` + reservedByRuns + `) r WHERE r.mutation <> ''
		 GROUP BY r.mutation, r.workflow, r.topic, r.message_id HAVING min(r.attempt) <> max(r.attempt)`},
	{"nothing-lost", `
		SELECT DISTINCT 'event ' || e.workflow || '/' || e.topic || '/' || e.message_id, 'chain ' || json_extract(d.value, '$.chain') || ' finished an attempt at it, and is not linked with it'
		  FROM event e, json_each(e.redone) d
		 WHERE EXISTS (SELECT 1 FROM run r WHERE r.id = json_extract(d.value, '$.chain') AND r.workflow = e.workflow)
		   AND NOT EXISTS (SELECT 1 FROM event_tried l WHERE l.event = e.seq AND l.chain = json_extract(d.value, '$.chain'))`},

	// Mutations. Their moves are those of package ledger; memory has a list of its own.
	{"once", `
		SELECT 'chain ' || r.chain, 'it has ' || count(*) || ' mutations'
		  FROM mutation m JOIN run r ON r.id = m.run
		 WHERE r.kind = 'consumer' GROUP BY r.chain HAVING count(*) > 1`},
	{"nothing-lost", `
		SELECT 'mutation ' || key, 'move ' || move || ' leaves "' || from_state || '", the state was "' || was || '"'
		  FROM (SELECT m.key, h.move, h.from_state,
		               lag(h.to_state, 1, '') OVER (PARTITION BY h.mutation ORDER BY h.move) AS was
		          FROM mutation_history h JOIN mutation m ON m.n = h.mutation)
		 WHERE from_state <> was`},
	{"doubt-is-not-failure", `
		SELECT 'mutation ' || m.key, 'move ' || h.move || ' goes from "' || h.from_state || '" to "' || h.to_state || '"'
		  FROM mutation_history h JOIN mutation m ON m.n = h.mutation
		 WHERE (h.from_state, h.to_state) NOT IN (VALUES ` + stored.Allowed() + `)`},
	{"nothing-lost", `
		SELECT 'mutation ' || key, 'its history ends in "' || ifnull(last, '') || '", its state is "' || state || '"'
		  FROM (SELECT key, state, (SELECT to_state FROM mutation_history WHERE mutation = n ORDER BY move DESC LIMIT 1) AS last
		          FROM mutation)
		 WHERE last IS NOT state`},
	{"recorded-before-sent", `
		SELECT 'mutation ' || key, attempts || ' calls are counted, its history has ' || calls
		  FROM (SELECT key, attempts, (SELECT count(*) FROM mutation_history WHERE mutation = n AND to_state = 'in_flight') AS calls
		          FROM mutation)
		 WHERE attempts <> calls`},
	{"explained", `
		SELECT 'mutation ' || key, 'nobody can tell whether it happened, and nobody is asked'
		  FROM mutation m
		 WHERE state = 'indeterminate'
		   AND NOT EXISTS (SELECT 1 FROM escalation e WHERE e.mutation = m.key AND e.mutation <> '' AND e.closed_at = 0)`},

	// Of a window in which a person allowed something, or of which the length was another one
	// for some calls, nothing is known. What was said not to have happened, and was found later,
	// gave its room back in between.
	//
	// To add up each window by itself would take hours where a budget has many calls. So sums over all that came before
	// tell those that have more than the call's own limit, and only these are added up.
	{"within-budget", `
		WITH s AS MATERIALIZED (SELECT m.n, m.key, m.spent_at AS at, json_extract(e.value, '$.budget') AS budget, json_extract(e.value, '$.amount') AS amount,
		                  json_extract(e.value, '$.limit') AS most, json_extract(e.value, '$.per') AS per, ifnull(json_extract(e.value, '$.allowed'), 0) AS allowed,
		                  NOT EXISTS (SELECT 1 FROM mutation_history h WHERE h.mutation = m.n AND h.from_state = 'failed' AND h.to_state = 'applied') AS counts
		             FROM mutation m, json_each(m.spent) e WHERE m.spent_at <> 0 AND m.state <> 'failed'),
		ends AS (SELECT n, budget, at, 0 AS before, per, counts * ` + stored.High("amount") + ` AS high, counts * ` + stored.Low("amount") + ` AS low, counts, counts * allowed AS allowed FROM s
		          UNION ALL SELECT n, budget, at - per / 1000000, 1, per, 0, 0, 0, 0 FROM s),
		sums AS (SELECT n, budget, CASE before WHEN 0 THEN 1 ELSE -1 END AS sign, sum(high) OVER w AS high, sum(low) OVER w AS low, sum(counts) OVER w AS calls, sum(allowed) OVER w AS allowed,
		                sum(counts) OVER (PARTITION BY budget, per ORDER BY at, before) AS alike
		           FROM ends WINDOW w AS (PARTITION BY budget ORDER BY at, before)),
		more AS MATERIALIZED (SELECT s.n, s.budget
		           FROM (SELECT n, budget, sum(sign * high) AS high, sum(sign * low) AS low, sum(sign * calls) AS calls, sum(sign * allowed) AS allowed, sum(sign * alike) AS alike
		                   FROM sums GROUP BY n, budget) t JOIN s ON s.n = t.n AND s.budget = t.budget
		          WHERE t.allowed = 0 AND t.calls = t.alike
		            AND (t.high + (1 - counts) * ` + stored.High("amount") + ` + ` + stored.High("(t.low + (1 - counts) * "+stored.Low("amount")+")") + `, ` + stored.Low("(t.low + (1 - counts) * "+stored.Low("amount")+")") + `)
		              > (` + stored.High("most") + `, ` + stored.Low("most") + `))
		SELECT 'mutation ' || r.key, 'budget ' || r.budget || ': ' || printf('%.0f', total(o.amount)) || ' of ' || max(o.most) || ' millionths are spent in its window'
		  FROM more CROSS JOIN s r ON r.n = more.n AND r.budget = more.budget
		  CROSS JOIN s o ON o.budget = r.budget AND o.at <= r.at AND o.at > r.at - r.per / 1000000 AND (o.key = r.key OR o.counts)
		 GROUP BY r.key, r.budget, r.at, r.per
		HAVING (sum(` + stored.High("o.amount") + `) + ` + stored.High("sum("+stored.Low("o.amount")+")") + `, ` + stored.Low("sum("+stored.Low("o.amount")+")") + `)
		     > (` + stored.High("max(o.most)") + `, ` + stored.Low("max(o.most)") + `) AND max(o.allowed) = 0 AND count(DISTINCT o.per) = 1`},
	{"within-budget", `
		WITH said AS (SELECT ` + entryName + ` AS budget, level.value AS level, spent_at >> level.value AS piece, ` + high + ` AS high, ` + low + ` AS low
		                FROM mutation, ` + entries + `, json_each('[` + stored.Levels(", ") + `]') level WHERE ` + stored.InSums + ` AND state <> 'failed'
		              UNION ALL SELECT budget, level, piece, -high, -low FROM spent_sum)
		SELECT 'budget ' || budget, 'its sum of the piece ' || piece || ' of level ' || level || ' is less than its calls count'
		  FROM said GROUP BY budget, level, piece HAVING sum(high) * 1073741824.0 + sum(low) > 0`},
}

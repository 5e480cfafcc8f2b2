package postgres

import (
	"context"
	"errors"
	"fmt"
	"iter"

	"github.com/jackc/pgx/v5"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/store/internal/stored"
)

// Check reports every record that breaks a law, as *keep.Violation. A healthy
// store yields nothing. Stopping early is fine. It reads one snapshot of the
// whole database, with plain SQL that shares nothing with the code it checks, and
// may take a while on a large one.
//
// An error that is not a violation means that the database could not be read.
func (db *DB) Check(ctx context.Context) iter.Seq[error] {
	return func(yield func(error) bool) {
		err := db.check(ctx, yield)
		if err != nil && !errors.Is(err, errStopped) {
			yield(fmt.Errorf("check %s: %w", db.Name(), err))
		}
	}
}

// errStopped ends a check whose caller has seen enough.
var errStopped = errors.New("the caller has seen enough")

func (db *DB) check(ctx context.Context, yield func(error) bool) error {
	if db.pool == nil || db.over.Load() {
		return ErrClosed
	}
	opts := pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}
	return pgx.BeginTxFunc(ctx, db.pool, opts, func(tx pgx.Tx) error {
		// Whole tables are read here, in whatever way is best, for as long as it takes.
		_, err := tx.Exec(ctx, `SELECT set_config(name, CASE WHEN name LIKE 'enable%' THEN 'on' ELSE '0' END, true)
			FROM unnest(ARRAY['enable_seqscan', 'enable_bitmapscan', 'enable_hashjoin', 'enable_mergejoin', 'statement_timeout']) AS name`)
		for _, c := range checks {
			if err == nil {
				err = c.run(ctx, tx, yield)
			}
		}
		return err
	})
}

// A check is a law and a query for the records that break it, and why.
type check struct{ law, text string }

// run makes one query and yields each violation.
func (c check) run(ctx context.Context, tx pgx.Tx, yield func(error) bool) error {
	rows, err := tx.Query(ctx, c.text, pgx.QueryExecModeExec)
	if err != nil {
		return fmt.Errorf("law %s: %w", c.law, err)
	}
	defer rows.Close()
	for rows.Next() {
		v := &keep.Violation{Law: c.law}
		if err := rows.Scan(into(&v.Record), into(&v.Why)); err != nil {
			return fmt.Errorf("law %s: %w", c.law, err)
		}
		if !yield(v) {
			return errStopped
		}
	}
	if err := rows.Err(); err != nil {
		return fmt.Errorf("law %s: %w", c.law, err)
	}
	return nil
}

// checks are in this order: what counts and refers, then the laws of runs, events
// and mutations.
var checks = []check{
	// What is kept beside the rows that it is derived from.
	{"nothing-lost", `
		SELECT 'input ' || id, unfinished || ' unfinished events are counted, there are ' || actual
		  FROM (SELECT i.id, i.unfinished, count(e.n) AS actual
		          FROM input i
		          LEFT JOIN event_cause c ON c.workflow = i.workflow AND c.input = i.id
		          LEFT JOIN event e ON e.workflow = c.workflow AND e.topic = c.topic AND e.n = c.event AND e.status = 'pending'
		           AND (e.reserved_by <> '' OR NOT EXISTS (SELECT 1 FROM topic t WHERE t.workflow = e.workflow AND t.name = e.topic AND t.unread))
		         GROUP BY i.id, i.unfinished) counted
		 WHERE unfinished <> actual`},
	{"nothing-lost", `
		SELECT 'topic ' || workflow || '/' || name, 'it says that ' || CASE WHEN unread THEN 'nobody reads it' ELSE 'a consumer reads it' END
		  FROM topic t WHERE EXISTS (SELECT 1 FROM workflow w WHERE w.name = t.workflow) AND unread = ` + isRead},
	{"nothing-lost", `
		SELECT 'topic ' || workflow || '/' || topic, kind || ' ' || coalesce(kept::text, 'none') || ' are counted, there are ' || actual
		  FROM (SELECT c.workflow, c.topic, c.kind, c.actual, CASE c.kind
		               WHEN 'pending' THEN t.pending WHEN 'consumed' THEN t.consumed ELSE t.skipped END AS kept
		          FROM (SELECT workflow, topic, status AS kind, count(*) AS actual
		                  FROM event GROUP BY workflow, topic, status) c
		          LEFT JOIN topic t ON t.workflow = c.workflow AND t.name = c.topic) counted
		 WHERE kept IS DISTINCT FROM actual`},
	{"nothing-lost", `
		SELECT 'topic ' || t.workflow || '/' || t.name, 'more events are counted than there are'
		  FROM topic t LEFT JOIN (SELECT workflow, topic, count(*) AS actual FROM event GROUP BY workflow, topic) c
		    ON c.workflow = t.workflow AND c.topic = t.name
		 WHERE t.pending + t.consumed + t.skipped <> coalesce(c.actual, 0)`},
	{"nothing-lost", `
		SELECT 'event ' || e.workflow || '/' || e.topic || '/' || e.message_id, 'its causes are not those that inputs know'
		  FROM event e, json_array_elements_text(e.caused_by::json) AS j (id)
		 WHERE e.caused_by <> '[]'
		   AND NOT EXISTS (SELECT 1 FROM event_cause c WHERE c.workflow = e.workflow AND c.input = j.id AND c.event = e.n)
		UNION ALL
		SELECT 'event ' || c.event, 'input ' || c.input || ' knows it, but did not cause it'
		  FROM event_cause c LEFT JOIN event e ON e.workflow = c.workflow AND e.topic = c.topic AND e.n = c.event
		 WHERE e.n IS NULL OR NOT EXISTS (SELECT 1 FROM json_array_elements_text(e.caused_by::json) AS j (id) WHERE j.id = c.input)`},
	{"nothing-lost", `
		SELECT 'workflow ' || c.workflow, 'its last number is ' || c.n || ', a row has ' || max(r.n)
		  FROM lease c JOIN (
			SELECT workflow, n FROM run UNION ALL SELECT workflow, n FROM event UNION ALL SELECT workflow, n FROM mutation_history
			UNION ALL SELECT workflow, n FROM input UNION ALL SELECT workflow, n FROM item UNION ALL SELECT workflow, n FROM run_log UNION ALL SELECT workflow, n FROM run_trace
			UNION ALL SELECT workflow, n FROM escalation UNION ALL SELECT workflow, n FROM deployment) r ON r.workflow = c.workflow
		 WHERE r.n > c.n GROUP BY c.workflow, c.n`},

	{"one-at-a-time", `
		SELECT 'host ' || coalesce(h.id, l.host), coalesce(h.held, 0) || ' leases are counted, there are ' || coalesce(l.actual, 0)
		  FROM host h FULL JOIN (SELECT host, count(*) AS actual FROM lease WHERE host <> '' GROUP BY host) l ON l.host = h.id
		 WHERE coalesce(h.held, 0) <> coalesce(l.actual, 0)`},
	{"nothing-lost", `
		SELECT 'workflow ' || coalesce(w.name, l.workflow), CASE WHEN w.name IS NULL THEN 'it has a lease, and was not deployed' ELSE 'it has no lease' END
		  FROM workflow w FULL JOIN (SELECT workflow FROM lease WHERE deployed) l ON l.workflow = w.name
		 WHERE w.name IS NULL OR l.workflow IS NULL
		UNION ALL
		SELECT 'database', value || ' workflows are counted, there are ' || actual
		  FROM meta, (SELECT count(*) AS actual FROM workflow) w WHERE name = 'workflows' AND value <> actual::text`},

	{"nothing-lost", `
		SELECT noun || 's of workflow ' || workflow, coalesce(t.rows, 0) || ' are counted, there are ' || coalesce(r.actual, 0)
		  FROM tally t FULL JOIN (
			SELECT workflow, 'run' AS noun, handler AS name, count(*) AS actual FROM run GROUP BY workflow, handler
			UNION ALL SELECT workflow, 'mutation', tool, count(*) FROM mutation GROUP BY workflow, tool
			UNION ALL SELECT workflow, 'input', '', count(*) FROM input GROUP BY workflow
			UNION ALL SELECT workflow, 'item', '', count(*) FROM item GROUP BY workflow) r USING (workflow, noun, name)
		 WHERE coalesce(t.rows, 0) <> coalesce(r.actual, 0)`},

	// What refers to something else.
	{"nothing-lost", `
		SELECT 'event ' || e.workflow || '/' || e.topic || '/' || e.message_id, 'input ' || j.id || ' does not exist'
		  FROM event e, json_array_elements_text(e.caused_by::json) AS j (id)
		 WHERE e.caused_by <> '[]' AND NOT EXISTS (SELECT 1 FROM input i WHERE i.id = j.id AND i.workflow = e.workflow)`},
	{"nothing-lost", `
		SELECT 'mutation ' || key, 'run ' || run || ' does not exist'
		  FROM mutation m WHERE NOT EXISTS (SELECT 1 FROM run r WHERE r.id = m.run AND r.workflow = m.workflow)`},
	{"nothing-lost", `
		SELECT 'run ' || id, 'mutation ' || mutation || ' does not exist'
		  FROM run r
		 WHERE mutation <> '' AND phase IN ('mutating', 'mutated', 'emitting', 'committed') AND status <> 'paused:approval'
		   AND (kind = 'consumer' OR NOT closed) -- that of a job run may be of an earlier one, which was swept
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
	{"nothing-lost", `
		SELECT 'line of run ' || run, 'the run does not exist'
		  FROM run_log l WHERE NOT EXISTS (SELECT 1 FROM run r WHERE r.id = l.run AND r.workflow = l.workflow)`},
	{"nothing-lost", `
		SELECT 'move of mutation ' || mutation, 'workflow ' || workflow || ' has no such mutation'
		  FROM mutation_history h WHERE NOT EXISTS (SELECT 1 FROM mutation m WHERE m.workflow = h.workflow AND m.n = h.mutation)`},
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
		 WHERE NOT EXISTS (SELECT 1 FROM deployment d WHERE d.workflow = w.name AND d.major = w.major AND d.minor = w.minor)
		    OR EXISTS (SELECT 1 FROM deployment d WHERE d.workflow = w.name AND (d.major, d.minor) > (w.major, w.minor))`},
	{"nothing-lost", `
		SELECT 'workflow ' || workflow, 'version ' || major || '.' || minor || ' was deployed after a later one'
		  FROM (SELECT workflow, major, minor, lag(major) OVER w AS m, lag(minor) OVER w AS n
		          FROM deployment WINDOW w AS (PARTITION BY workflow ORDER BY n)) d
		 WHERE (major, minor) <= (m, n)`},
	{"bounded", `
		SELECT 'checkpoint ' || workflow || '/' || producer, 'key ' || key || ' has ' || octet_length(value) || ' bytes'
		  FROM kv WHERE octet_length(value) > 65536`},
	{"bounded", `
		SELECT 'checkpoint ' || workflow || '/' || producer, 'it has ' || sum(` + sizeOf("key") + ` + octet_length(value)) || ' bytes'
		  FROM kv GROUP BY workflow, producer HAVING sum(` + sizeOf("key") + ` + octet_length(value)) > 1048576`},

	// Runs.
	{"one-at-a-time", `
		SELECT 'workflow ' || workflow, count(*) || ' runs of lane "' || lane || '" are not closed'
		  FROM run WHERE NOT closed GROUP BY workflow, lane HAVING count(*) > 1`},
	{"pinned", `
		SELECT 'run ' || r.id, 'its chain ' || r.chain || ' does not begin with a run'
		  FROM run r LEFT JOIN run c ON c.id = r.chain
		 WHERE c.id IS NULL OR c.chain <> c.id OR c.workflow <> r.workflow`},
	{"pinned", `
		SELECT 'run ' || r.id, 'it retries ' || r.retry_of || ', which is not a closed run of its workflow'
		  FROM run r LEFT JOIN run p ON p.id = r.retry_of
		 WHERE r.retry_of <> '' AND (p.id IS NULL OR NOT p.closed OR p.workflow <> r.workflow)`},
	{"all-or-nothing", `
		SELECT 'run ' || r.id, 'it is ' || r.phase || ', its mutation ' || m.key || ' is ' || m.state
		  FROM run r JOIN mutation m ON m.key = r.mutation
		 WHERE r.kind = 'consumer' AND r.phase IN ('mutated', 'emitting', 'committed')
		   AND m.state NOT IN ('applied', 'skipped')`},
	{"explained", `
		SELECT 'run ' || id, 'it waits to be tried again, and no time is set'
		  FROM run WHERE NOT closed AND status = 'paused:transient' AND retry_at = 0`},
	{"explained", `
		SELECT 'run ' || id, 'it waits for a person, and nothing is asked'
		  FROM run r
		 WHERE NOT closed AND status IN ('paused:person', 'paused:approval') AND retry_at = 0
		   AND coalesce(split_part(r.error, '"', 8), '') NOT IN ('reconnect', 'budget', 'breaker') -- the question is about the account, the budget or the tool
		   AND NOT EXISTS (SELECT 1 FROM escalation e WHERE e.run = r.id AND e.closed_at = 0)`},

	// Events. A logic failure releases the events of a run that stays open.
	{"pinned", `
		SELECT 'run ' || r.id, 'event ' || r.topic || '/' || r.message_id || ' is not reserved by its chain'
		  FROM (` + reservedByRuns + `) r
		 WHERE r.status NOT LIKE 'failed:%'
		   AND NOT EXISTS (SELECT 1 FROM event e
		        WHERE e.workflow = r.workflow AND e.topic = r.topic AND e.message_id = r.message_id
		          AND e.status = 'pending' AND e.reserved_by = r.chain)`},
	{"pinned", `
		SELECT 'event ' || workflow || '/' || topic || '/' || message_id, 'it is reserved by ' || reserved_by || ', which has no open run'
		  FROM event e
		 WHERE status = 'pending' AND reserved_by <> ''
		   AND NOT EXISTS (SELECT 1 FROM run r WHERE r.workflow = e.workflow AND NOT r.closed AND r.chain = e.reserved_by)`},
	{"pinned", `
		SELECT 'event ' || e.workflow || '/' || e.topic || '/' || e.message_id, 'it is reserved by ' || e.reserved_by || ', whose run does not list it'
		  FROM event e JOIN run r ON r.workflow = e.workflow AND NOT r.closed AND r.chain = e.reserved_by
		 WHERE e.status = 'pending' AND e.reserved_by <> ''
		   AND NOT EXISTS (SELECT 1 FROM (` + reservedByRuns + `) l
		        WHERE l.id = r.id AND l.topic = e.topic AND l.message_id = e.message_id)`},
	{"all-or-nothing", `
		SELECT 'event ' || workflow || '/' || topic || '/' || message_id, 'it was consumed by ' || reserved_by || ', which did not commit'
		  FROM event e
		 WHERE status = 'consumed' AND reserved_by <> 'swept'
		   AND NOT EXISTS (SELECT 1 FROM run r WHERE r.chain = e.reserved_by AND r.status = 'committed')`},

	// Attempts at events.
	{"pinned", `
		SELECT 'run ' || r.id, 'it has event ' || r.topic || '/' || r.message_id || ' at attempt ' || r.attempt || ', which is at ' || ` + attemptOf + `
		  FROM (` + attempted + `) r JOIN event e ON e.workflow = r.workflow AND e.topic = r.topic AND e.message_id = r.message_id
		 WHERE r.attempt < 1 OR r.attempt > ` + attemptOf},
	{"pinned", `
		SELECT DISTINCT 'event ' || e.workflow || '/' || e.topic || '/' || e.message_id, 'it is at attempt ' || ` + attemptOf + ` || ', and chain ' || r.chain || ' had it at ' || r.attempt
		  FROM (` + attempted + `) r JOIN event e ON e.workflow = r.workflow AND e.topic = r.topic AND e.message_id = r.message_id
		 WHERE e.reserved_by = r.chain AND r.attempt <> ` + attemptOf},
	{"once", `
		SELECT 'mutation ' || r.mutation, 'attempts ' || min(r.attempt) || ' and ' || max(r.attempt) || ' of event ' || r.workflow || '/' || r.topic || '/' || r.message_id || ' share it'
		  FROM (` + attempted + `) r WHERE r.mutation <> ''
		 GROUP BY r.mutation, r.workflow, r.topic, r.message_id HAVING min(r.attempt) <> max(r.attempt)`},
	{"nothing-lost", `
		SELECT DISTINCT 'event ' || e.workflow || '/' || e.topic || '/' || e.message_id, 'chain ' || d.chain || ' finished an attempt at it, and is not linked with it'
		  FROM event e, json_to_recordset(e.redone::json) AS d (chain TEXT)
		 WHERE EXISTS (SELECT 1 FROM run r WHERE r.id = d.chain AND r.workflow = e.workflow)
		   AND NOT EXISTS (SELECT 1 FROM event_tried l WHERE l.workflow = e.workflow AND l.topic = e.topic AND l.event = e.n AND l.chain = d.chain)`},

	// Mutations. Their moves are those of package ledger; memory has a list of its own.
	{"once", `
		SELECT 'chain ' || r.chain, 'it has ' || count(*) || ' mutations'
		  FROM mutation m JOIN run r ON r.id = m.run
		 WHERE r.kind = 'consumer' GROUP BY r.chain HAVING count(*) > 1`},
	{"nothing-lost", `
		SELECT 'mutation ' || key, 'move ' || move || ' leaves "' || from_state || '", the state was "' || was || '"'
		  FROM (SELECT m.key, h.from_state, row_number() OVER w AS move, lag(h.to_state, 1, '') OVER w AS was
		          FROM mutation_history h JOIN mutation m ON m.workflow = h.workflow AND m.n = h.mutation
		        WINDOW w AS (PARTITION BY h.workflow, h.mutation ORDER BY h.n)) moves
		 WHERE from_state <> was`},
	{"doubt-is-not-failure", `
		SELECT 'mutation ' || key, 'move ' || move || ' goes from "' || from_state || '" to "' || to_state || '"'
		  FROM (SELECT m.key, h.from_state, h.to_state, row_number() OVER (PARTITION BY h.workflow, h.mutation ORDER BY h.n) AS move
		          FROM mutation_history h JOIN mutation m ON m.workflow = h.workflow AND m.n = h.mutation) moves
		 WHERE (from_state, to_state) NOT IN (VALUES ` + stored.Allowed() + `)`},
	{"nothing-lost", `
		SELECT 'mutation ' || key, 'its history ends in "' || coalesce(last, '') || '", its state is "' || state || '"'
		  FROM (SELECT key, state, (SELECT to_state FROM mutation_history h
		                WHERE h.workflow = m.workflow AND h.mutation = m.n ORDER BY h.n DESC LIMIT 1) AS last
		          FROM mutation m) ends
		 WHERE last IS DISTINCT FROM state`},
	{"recorded-before-sent", `
		SELECT 'mutation ' || key, attempts || ' calls are counted, its history has ' || calls
		  FROM (SELECT key, attempts, (SELECT count(*) FROM mutation_history h
		                WHERE h.workflow = m.workflow AND h.mutation = m.n AND h.to_state = 'in_flight') AS calls
		          FROM mutation m) counted
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
		WITH s AS MATERIALIZED (SELECT m.key, m.spent_at AS at, e.budget, e.amount, e."limit", e.per, coalesce(e.allowed, false) AS allowed,
		                  NOT EXISTS (SELECT 1 FROM mutation_history h WHERE h.workflow = m.workflow AND h.mutation = m.n AND h.from_state = 'failed' AND h.to_state = 'applied') AS counts
		             FROM mutation m, json_to_recordset(m.spent::json) AS e (budget TEXT, amount BIGINT, "limit" BIGINT, per BIGINT, allowed BOOLEAN)
		            WHERE m.spent_at <> 0 AND m.state <> 'failed'),
		ends AS (SELECT key, budget, at, 0 AS before, per, CASE WHEN counts THEN amount ELSE 0 END AS amount, counts::int AS counts, (counts AND allowed)::int AS allowed FROM s
		          UNION ALL SELECT key, budget, at - per / 1000000, 1, per, 0, 0, 0 FROM s),
		sums AS (SELECT key, budget, 1 - 2 * before AS sign, sum(amount) OVER w AS amount, sum(counts) OVER w AS calls, sum(allowed) OVER w AS allowed,
		                sum(counts) OVER (PARTITION BY budget, per ORDER BY at, before) AS alike
		           FROM ends WINDOW w AS (PARTITION BY budget ORDER BY at, before)),
		more AS MATERIALIZED (SELECT s.*
		           FROM (SELECT key, budget, sum(sign * amount) AS amount, sum(sign * calls) AS calls, sum(sign * allowed) AS allowed, sum(sign * alike) AS alike
		                   FROM sums GROUP BY key, budget) t JOIN s ON s.key = t.key AND s.budget = t.budget
		          WHERE t.allowed = 0 AND t.calls = t.alike AND t.amount + CASE WHEN s.counts THEN 0 ELSE s.amount END > s."limit")
		SELECT 'mutation ' || r.key, 'budget ' || r.budget || ': ' || sum(o.amount) || ' of ' || max(o."limit") || ' millionths are spent in its window'
		  FROM more r JOIN s o ON o.budget = r.budget AND o.at <= r.at AND o.at > r.at - r.per / 1000000 AND (o.key = r.key OR o.counts)
		 GROUP BY r.key, r.budget, r.at, r.per
		HAVING sum(o.amount) > max(o."limit") AND NOT bool_or(coalesce(o.allowed, false)) AND count(DISTINCT o.per) = 1`},
	{"within-budget", `
		WITH said AS (SELECT e.budget, l.level, spent_at >> l.level AS piece, ` + high + ` AS high, ` + low + ` AS low
		                FROM mutation, ` + entries + `, unnest(ARRAY[` + stored.Levels(", ") + `]) l (level) WHERE ` + stored.InSums + ` AND state <> 'failed'
		              UNION ALL SELECT budget, level, piece, -high, -low FROM spent_sum)
		SELECT 'budget ' || budget, 'its sum of the piece ' || piece || ' of level ' || level || ' is less than its calls count'
		  FROM said GROUP BY budget, level, piece HAVING sum(high) * 1073741824 + sum(low) > 0`},
}

// isRead is whether a consumer of the version in force subscribes to the topic t. Postgres
// reads no JSON that has a NUL, so names are given the form in which texts are stored.
const isRead = `EXISTS (SELECT 1 FROM workflow w JOIN deployment d ON d.workflow = w.name AND d.major = w.major AND d.minor = w.minor
	       CROSS JOIN LATERAL (SELECT replace(replace(d.definition, '\u001a', '\u001a1a'), '\u0000', '\u001a00')::json AS value) v,
	       json_array_elements(CASE json_typeof(v.value -> 'handlers') WHEN 'array' THEN v.value -> 'handlers' ELSE '[]' END) h,
	       json_array_elements_text(CASE json_typeof(h.value -> 'subscribe') WHEN 'array' THEN h.value -> 'subscribe' ELSE '[]' END) s
	 WHERE w.name = t.workflow AND s.value = t.name)`

// attempted lists what all runs say that they reserved, each event with its attempt. OFFSET 0 has Postgres list it before it looks
// for events: it does not know that a run has few, and would go through all of a workflow for each run while it has not counted them.
const attempted = `
	SELECT r.workflow, r.id, r.chain, r.mutation, l.topic, m.message_id, coalesce((l.attempts ->> (m.n - 1)::int)::int, 1) AS attempt
	  FROM run r, json_to_recordset(r.reservations::json) AS l (topic TEXT, ids JSON, attempts JSON),
	       json_array_elements_text(CASE json_typeof(l.ids) WHEN 'array' THEN l.ids ELSE '[]' END) WITH ORDINALITY AS m (message_id, n)
	 WHERE r.reservations IS NOT NULL OFFSET 0`

// attemptOf is at which attempt an event e is.
const attemptOf = `(1 + json_array_length(coalesce(e.redone, '[]')::json))`

// reservedByRuns lists what open runs say that they reserved.
const reservedByRuns = `
	SELECT r.workflow, r.id, r.chain, r.status, l.topic, m.message_id
	  FROM run r, json_to_recordset(r.reservations::json) AS l (topic TEXT, ids JSON),
	       json_array_elements_text(CASE json_typeof(l.ids) WHEN 'array' THEN l.ids ELSE '[]' END) AS m (message_id)
	 WHERE NOT r.closed AND r.reservations IS NOT NULL`

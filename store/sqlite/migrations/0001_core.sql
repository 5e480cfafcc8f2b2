-- Workflows, topics, runs and the ledger.
--
-- Conventions. Times are milliseconds since 1970 UTC; 0 means not set. A text
-- that names nothing is ''. JSON is text as it was given; NULL means nil. Rows
-- that lists show have an integer key n (event: seq) in the order of making:
-- every index ends in it, so each one reads newest first without a sort, and new
-- rows append. CHECKs repeat what DESIGN calls law; the code decides before them.
-- They are chains of OR because SQLite builds a table for each IN of more than two
-- values, every time it checks a row: a fifth of the cost of a run.
--
-- The big tables are listed by workflow through buckets of 512 rows: an index that
-- starts with n >> 9 grows in one place. One that started with the workflow would
-- grow in as many places as there are workflows, and each costs a page per commit.
-- A list seeks its workflow in one bucket after the other: 2,000 seeks, a few
-- milliseconds, to find that a million rows have none.

CREATE TABLE meta (
	name  TEXT PRIMARY KEY,
	value TEXT NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE workflow (
	name       TEXT    PRIMARY KEY CHECK (name <> ''),
	major      INTEGER NOT NULL CHECK (major >= 0), -- version that is current
	minor      INTEGER NOT NULL CHECK (minor >= 0),
	paused     INTEGER NOT NULL DEFAULT 0 CHECK (paused IN (0, 1)),
	created_at INTEGER NOT NULL,
	updated_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE deployment (
	n          INTEGER PRIMARY KEY,
	workflow   TEXT    NOT NULL REFERENCES workflow (name),
	major      INTEGER NOT NULL CHECK (major >= 0),
	minor      INTEGER NOT NULL CHECK (minor >= 0),
	hash       TEXT    NOT NULL,
	entry      TEXT    NOT NULL,
	definition TEXT    NOT NULL, -- JSON of keep.Definition
	created_at INTEGER NOT NULL,
	code       BLOB,
	map        BLOB,
	UNIQUE (workflow, major, minor)
) STRICT;

CREATE TABLE handler (
	workflow     TEXT    NOT NULL,
	name         TEXT    NOT NULL CHECK (name <> ''),
	kind         TEXT    NOT NULL CHECK (kind = 'consumer' OR kind = 'producer' OR kind = 'job'),
	idle_seq     INTEGER NOT NULL,
	wake_at      INTEGER NOT NULL,
	next_at      INTEGER NOT NULL,
	requested_at INTEGER NOT NULL DEFAULT 0,
	last_run     TEXT    NOT NULL,
	last_at      INTEGER NOT NULL,
	PRIMARY KEY (workflow, name)
) STRICT, WITHOUT ROWID;

-- The checkpoint of a producer.
CREATE TABLE kv (
	workflow TEXT NOT NULL,
	producer TEXT NOT NULL,
	key      TEXT NOT NULL,
	value    TEXT NOT NULL, -- JSON
	PRIMARY KEY (workflow, producer, key)
) STRICT, WITHOUT ROWID;

CREATE TABLE run (
	n               INTEGER PRIMARY KEY,
	id              TEXT    NOT NULL UNIQUE CHECK (id <> ''),
	chain           TEXT    NOT NULL CHECK (chain <> ''),
	retry_of        TEXT    NOT NULL,
	workflow        TEXT    NOT NULL,
	major           INTEGER NOT NULL,
	minor           INTEGER NOT NULL,
	handler         TEXT    NOT NULL CHECK (handler <> ''),
	kind            TEXT    NOT NULL CHECK (kind = 'consumer' OR kind = 'producer' OR kind = 'job'),
	phase           TEXT    NOT NULL,
	status          TEXT    NOT NULL CHECK (
		status = 'committed' OR status = 'active' OR status = 'paused:transient' OR
		status = 'paused:approval' OR status = 'paused:reconciliation' OR
		status = 'paused:person' OR status = 'failed:logic' OR status = 'failed:internal' OR
		status = 'crashed' OR status = 'aborted'),
	closed          INTEGER NOT NULL CHECK (closed IN (0, 1)),
	rev             INTEGER NOT NULL CHECK (rev > 0),
	trigger_topic   TEXT    NOT NULL,
	trigger_message TEXT    NOT NULL,
	mutation        TEXT    NOT NULL,
	title           TEXT    NOT NULL,
	wake_at         INTEGER NOT NULL,
	seen_seq        INTEGER NOT NULL,
	retry_at        INTEGER NOT NULL,
	retries         INTEGER NOT NULL CHECK (retries >= 0),
	crashes         INTEGER NOT NULL CHECK (crashes >= 0),
	created_at      INTEGER NOT NULL,
	updated_at      INTEGER NOT NULL,
	error           TEXT, -- JSON; NULL: none
	reservations    TEXT, -- JSON
	prepared        TEXT, -- JSON
	CONSTRAINT run_phase_of_kind CHECK (phase = 'committed' OR CASE kind
		WHEN 'consumer' THEN phase = 'mutating' OR phase = 'preparing' OR phase = 'prepared' OR phase = 'mutated' OR phase = 'emitting'
		ELSE phase = 'running' END),
	CONSTRAINT run_committed_is_a_phase_and_a_status CHECK ((status = 'committed') = (phase = 'committed')),
	CONSTRAINT run_closed_when_over CHECK (closed = 1 OR status NOT IN ('committed', 'aborted')),
	CONSTRAINT run_open_when_active CHECK (closed = 0 OR status <> 'active')
) STRICT;

-- Law one-at-a-time: one run of a workflow is not closed.
CREATE UNIQUE INDEX run_open ON run (workflow) WHERE closed = 0;
CREATE INDEX run_by_handler ON run (n >> 9, workflow, handler);
CREATE INDEX run_by_chain ON run (chain) WHERE chain <> id; -- retries; the first run is found by its id
-- An active run is open, a committed one the rule: neither needs this index.
CREATE INDEX run_by_status ON run (status) WHERE status NOT IN ('active', 'committed');

CREATE TABLE run_log (
	run   TEXT    NOT NULL REFERENCES run (id),
	line  INTEGER NOT NULL, -- from 1
	at    INTEGER NOT NULL,
	level TEXT    NOT NULL,
	text  TEXT    NOT NULL,
	place TEXT    NOT NULL, -- file:line:column
	PRIMARY KEY (run, line)
) STRICT, WITHOUT ROWID;

-- Counts are kept, not counted: a topic may hold millions of events. Those that
-- are reserved are few, so they are among the pending here and counted when asked.
CREATE TABLE topic (
	workflow TEXT    NOT NULL,
	name     TEXT    NOT NULL CHECK (name <> ''),
	pending  INTEGER NOT NULL DEFAULT 0 CHECK (pending >= 0),
	consumed INTEGER NOT NULL DEFAULT 0 CHECK (consumed >= 0),
	skipped  INTEGER NOT NULL DEFAULT 0 CHECK (skipped >= 0),
	PRIMARY KEY (workflow, name)
) STRICT, WITHOUT ROWID;

-- AUTOINCREMENT: a seq never repeats, also after retention deleted the newest.
CREATE TABLE event (
	seq         INTEGER PRIMARY KEY AUTOINCREMENT,
	workflow    TEXT    NOT NULL,
	topic       TEXT    NOT NULL,
	message_id  TEXT    NOT NULL CHECK (message_id <> ''),
	status      TEXT    NOT NULL CHECK (status = 'pending' OR status = 'consumed' OR status = 'skipped'),
	reserved_by TEXT    NOT NULL DEFAULT '', -- chain
	created_by  TEXT    NOT NULL,
	created_at  INTEGER NOT NULL,
	updated_at  INTEGER NOT NULL,
	caused_by   TEXT    NOT NULL, -- JSON array of input ids, sorted; event_cause has them by input
	payload     TEXT,             -- JSON
	UNIQUE (workflow, topic, message_id),
	CONSTRAINT event_consumed_by_a_chain CHECK (status <> 'consumed' OR reserved_by <> '')
) STRICT;

CREATE INDEX event_by_topic ON event (seq >> 9, workflow, topic);
-- What a workflow has before it: free events are those with reserved_by = ''.
CREATE INDEX event_pending ON event (workflow, topic, reserved_by) WHERE status = 'pending';
CREATE INDEX event_skipped ON event (workflow, topic) WHERE status = 'skipped';
CREATE INDEX event_by_chain ON event (reserved_by) WHERE reserved_by <> '';

CREATE TABLE event_cause (
	input TEXT    NOT NULL,
	event INTEGER NOT NULL,
	PRIMARY KEY (input, event)
) STRICT, WITHOUT ROWID;

CREATE TABLE input (
	n           INTEGER PRIMARY KEY,
	id          TEXT    NOT NULL UNIQUE CHECK (id <> ''),
	workflow    TEXT    NOT NULL,
	source      TEXT    NOT NULL,
	type        TEXT    NOT NULL,
	external_id TEXT    NOT NULL,
	title       TEXT    NOT NULL,
	status      TEXT    NOT NULL DEFAULT 'done' CHECK (status = 'pending' OR status = 'done' OR status = 'skipped'),
	unfinished  INTEGER NOT NULL DEFAULT 0 CHECK (unfinished >= 0), -- pending events that it caused
	created_at  INTEGER NOT NULL,
	UNIQUE (workflow, source, type, external_id),
	CONSTRAINT input_pending_while_an_event_is CHECK (status = 'skipped' OR (status = 'pending') = (unfinished > 0))
) STRICT;

CREATE INDEX input_by_status ON input (workflow, status);

CREATE TABLE item (
	n          INTEGER PRIMARY KEY,
	workflow   TEXT    NOT NULL,
	id         TEXT    NOT NULL CHECK (id <> ''),
	title      TEXT    NOT NULL,
	status     TEXT    NOT NULL CHECK (
		status = 'processing' OR status = 'done' OR status = 'failed' OR status = 'skipped' OR
		status = 'needs_attention'),
	attempt    INTEGER NOT NULL CHECK (attempt >= 1),
	rev        INTEGER NOT NULL CHECK (rev > 0),
	created_at INTEGER NOT NULL,
	updated_at INTEGER NOT NULL,
	UNIQUE (workflow, id)
) STRICT;

CREATE INDEX item_by_status ON item (workflow, status);

CREATE TABLE mutation (
	n                  INTEGER PRIMARY KEY,
	key                TEXT    NOT NULL UNIQUE CHECK (key <> ''), -- law once: one record of a key
	workflow           TEXT    NOT NULL CHECK (workflow <> ''),
	run                TEXT    NOT NULL CHECK (run <> ''),
	item               TEXT    NOT NULL,
	attempt            INTEGER NOT NULL CHECK (attempt >= 0), -- of the item
	tool               TEXT    NOT NULL CHECK (tool <> ''),
	connector          TEXT    NOT NULL,
	level              TEXT    NOT NULL CHECK (level = 'A' OR level = 'B' OR level = 'C' OR level = 'D'),
	target             TEXT    NOT NULL,
	subkey             TEXT    NOT NULL,
	payload_hash       TEXT    NOT NULL,
	token              TEXT    NOT NULL CHECK (token <> ''),
	title              TEXT    NOT NULL,
	state              TEXT    NOT NULL CHECK (
		state = 'applied' OR state = 'in_flight' OR state = 'needs_reconcile' OR
		state = 'failed' OR state = 'indeterminate' OR state = 'skipped'),
	warning            TEXT    NOT NULL,
	attempts           INTEGER NOT NULL CHECK (attempts >= 1), -- calls made
	reconcile_attempts INTEGER NOT NULL CHECK (reconcile_attempts >= 0),
	next_reconcile_at  INTEGER NOT NULL,
	call_deadline      INTEGER NOT NULL CHECK (call_deadline <> 0),
	settle_after       INTEGER NOT NULL, -- nanoseconds
	can_reconcile      INTEGER NOT NULL CHECK (can_reconcile IN (0, 1)),
	resolved_by        TEXT    NOT NULL,
	rev                INTEGER NOT NULL CHECK (rev > 0),
	created_at         INTEGER NOT NULL,
	updated_at         INTEGER NOT NULL,
	error              TEXT, -- JSON; NULL: none
	identity           TEXT, -- JSON
	payload            TEXT, -- JSON
	result             TEXT, -- JSON
	CONSTRAINT mutation_result_only_when_applied CHECK (result IS NULL OR state = 'applied'),
	CONSTRAINT mutation_applied_by_someone CHECK (state <> 'applied' OR resolved_by <> ''),
	CONSTRAINT mutation_attempt_of_an_item CHECK ((item = '') = (attempt = 0))
) STRICT;

CREATE INDEX mutation_by_run ON mutation (run);
CREATE INDEX mutation_by_tool ON mutation (n >> 9, workflow, tool);
CREATE INDEX mutation_by_item ON mutation (workflow, item) WHERE item <> '';
CREATE INDEX mutation_by_state ON mutation (state) WHERE state <> 'applied';

-- Only appended (law nothing-lost).
CREATE TABLE mutation_history (
	mutation   INTEGER NOT NULL REFERENCES mutation (n),
	move       INTEGER NOT NULL, -- from 1
	at         INTEGER NOT NULL,
	who        TEXT    NOT NULL,
	from_state TEXT    NOT NULL, -- '': the record was made
	to_state   TEXT    NOT NULL,
	evidence   TEXT    NOT NULL,
	detail     TEXT    NOT NULL,
	PRIMARY KEY (mutation, move)
) STRICT, WITHOUT ROWID;

CREATE TABLE escalation (
	n               INTEGER PRIMARY KEY,
	id              TEXT    NOT NULL UNIQUE CHECK (id <> ''),
	kind            TEXT    NOT NULL CHECK (
		kind = 'unknown_outcome' OR kind = 'permission' OR kind = 'precondition' OR
		kind = 'retries_exhausted' OR kind = 'logic' OR kind = 'internal' OR kind = 'approval' OR
		kind = 'item_attention'),
	workflow        TEXT    NOT NULL,
	run             TEXT    NOT NULL,
	mutation        TEXT    NOT NULL,
	item            TEXT    NOT NULL,
	title           TEXT    NOT NULL,
	question        TEXT    NOT NULL,
	attempted       TEXT    NOT NULL,
	why             TEXT    NOT NULL,
	can_verify      INTEGER NOT NULL CHECK (can_verify IN (0, 1)),
	verify_by_hand  TEXT    NOT NULL,
	choices         TEXT,    -- JSON
	payload_hash    TEXT    NOT NULL,
	created_at      INTEGER NOT NULL,
	closed_at       INTEGER NOT NULL DEFAULT 0, -- 0: open
	decision        TEXT    NOT NULL DEFAULT '', -- action; '': the host closed it
	decided_by      TEXT    NOT NULL DEFAULT '',
	decided_from    TEXT    NOT NULL DEFAULT '',
	decision_note   TEXT    NOT NULL DEFAULT '',
	decided_at      INTEGER NOT NULL DEFAULT 0,
	CONSTRAINT escalation_decided_when_closed CHECK (decision = '' OR closed_at <> 0)
) STRICT;

CREATE INDEX escalation_open ON escalation (closed_at) WHERE closed_at = 0;
CREATE INDEX escalation_by_workflow ON escalation (workflow);
CREATE INDEX escalation_by_run ON escalation (run);
CREATE INDEX escalation_by_mutation ON escalation (mutation) WHERE mutation <> '';

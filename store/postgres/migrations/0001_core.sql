-- Workflows, topics, runs and the ledger.
--
-- Conventions. Times are milliseconds since 1970 UTC; 0 means not set. A text
-- that names nothing is ''. JSON that came from outside is BYTEA, since it must
-- come back to the byte; JSON that Keep makes is TEXT; NULL means nil. CHECKs
-- repeat what DESIGN calls law; the code decides before them. Keys have the collation
-- "C": they are names, not words, and an index must not depend on a locale.
--
-- Everything belongs to a workflow, and keys begin with it. No two workflows share
-- a row that a run writes, and no sequence: what lists show has a number n that
-- comes from the workflow's own row of lease. It is the time of the commit in
-- milliseconds times 1024, or one more than the last, so it rises in a workflow and
-- orders workflows by their times. (n, workflow) is unique and serves lists of
-- everything; an index that begins with a workflow serves its own.
--
-- Ids are unique in the whole database. They are drawn by the host with 80 bits of
-- chance, so on a database that is sharded by workflow, where a unique index must
-- have the workflow in it, the indexes on ids can be plain ones.

CREATE TABLE meta (
	name  TEXT COLLATE "C" PRIMARY KEY,
	value TEXT NOT NULL
);

INSERT INTO meta (name, value) VALUES ('workflows', '0'); -- how many were deployed

-- Where a commit begins: it locks the row of its workflow, so that the commits of
-- one workflow come one after the other, takes its numbers here, and asks whether the
-- host may still commit (docs/design/0005-leases.md). A claim locks the same row, so
-- the two cannot pass each other. A workflow that was never deployed has a row, too,
-- if anything was committed to it, and no lease.
CREATE TABLE lease (
	workflow TEXT    COLLATE "C" PRIMARY KEY,
	n        BIGINT  NOT NULL CHECK (n >= 0), -- the last number that was given
	deployed BOOLEAN NOT NULL DEFAULT FALSE,
	host     TEXT    COLLATE "C" NOT NULL DEFAULT '', -- '': nobody
	epoch    BIGINT  NOT NULL DEFAULT 0 CHECK (epoch >= 0),
	since    BIGINT  NOT NULL DEFAULT 0,
	touched  BOOLEAN NOT NULL DEFAULT FALSE, -- somebody else committed, and the host does not know yet
	CONSTRAINT lease_of_a_deployed_workflow CHECK (deployed OR host = ''),
	CONSTRAINT lease_touched_for_a_host CHECK (host <> '' OR NOT touched)
) WITH (fillfactor = 50);

CREATE INDEX lease_of_host ON lease (host, workflow) WHERE host <> '';
CREATE INDEX lease_free ON lease (workflow) WHERE deployed AND host = '';
CREATE INDEX lease_touched ON lease (host) WHERE touched;

-- Processes that work on workflows, a row for each. Times are of this server's clock.
CREATE TABLE host (
	id         TEXT    COLLATE "C" PRIMARY KEY CHECK (id <> ''),
	name       TEXT    NOT NULL,
	version    TEXT    NOT NULL,
	started_at BIGINT  NOT NULL,
	until      BIGINT  NOT NULL, -- its leases end then
	draining   BOOLEAN NOT NULL DEFAULT FALSE,
	partial    BOOLEAN NOT NULL,
	held       BIGINT  NOT NULL DEFAULT 0 CHECK (held >= 0) -- leases that it has: kept, not counted
) WITH (fillfactor = 50);

CREATE TABLE workflow (
	name       TEXT COLLATE "C"    PRIMARY KEY CHECK (name <> ''),
	major      INTEGER NOT NULL CHECK (major >= 0), -- version that is current
	minor      INTEGER NOT NULL CHECK (minor >= 0),
	paused     BOOLEAN NOT NULL DEFAULT FALSE,
	created_at BIGINT  NOT NULL,
	updated_at BIGINT  NOT NULL
);

CREATE TABLE deployment (
	workflow   TEXT COLLATE "C"    NOT NULL REFERENCES workflow (name),
	major      INTEGER NOT NULL CHECK (major >= 0),
	minor      INTEGER NOT NULL CHECK (minor >= 0),
	n          BIGINT  NOT NULL,
	hash       TEXT    NOT NULL,
	entry      TEXT    NOT NULL,
	definition TEXT    NOT NULL, -- JSON of keep.Definition
	created_at BIGINT  NOT NULL,
	code       BYTEA,
	map        BYTEA,
	PRIMARY KEY (workflow, major, minor)
);

CREATE TABLE handler (
	workflow     TEXT COLLATE "C"   NOT NULL,
	name         TEXT COLLATE "C"   NOT NULL CHECK (name <> ''),
	kind         TEXT   NOT NULL CHECK (kind IN ('consumer', 'producer', 'job')),
	idle_seq     BIGINT NOT NULL,
	wake_at      BIGINT NOT NULL,
	next_at      BIGINT NOT NULL,
	requested_at BIGINT NOT NULL DEFAULT 0,
	last_run     TEXT   NOT NULL,
	last_at      BIGINT NOT NULL,
	PRIMARY KEY (workflow, name)
) WITH (fillfactor = 50);

-- The checkpoint of a producer.
CREATE TABLE kv (
	workflow TEXT COLLATE "C"  NOT NULL,
	producer TEXT COLLATE "C"  NOT NULL,
	key      TEXT COLLATE "C"  NOT NULL,
	value    BYTEA NOT NULL, -- JSON
	PRIMARY KEY (workflow, producer, key)
);

CREATE TABLE run (
	workflow        TEXT COLLATE "C"    NOT NULL,
	id              TEXT COLLATE "C"    NOT NULL CHECK (id <> ''),
	n               BIGINT  NOT NULL,
	chain           TEXT COLLATE "C"    NOT NULL CHECK (chain <> ''),
	retry_of        TEXT    NOT NULL,
	major           INTEGER NOT NULL,
	minor           INTEGER NOT NULL,
	handler         TEXT COLLATE "C"    NOT NULL CHECK (handler <> ''),
	kind            TEXT    NOT NULL CHECK (kind IN ('consumer', 'producer', 'job')),
	phase           TEXT    NOT NULL,
	status          TEXT COLLATE "C"    NOT NULL CHECK (status IN (
		'committed', 'active', 'paused:transient', 'paused:approval', 'paused:reconciliation',
		'paused:person', 'failed:logic', 'failed:internal', 'crashed', 'aborted')),
	closed          BOOLEAN NOT NULL,
	rev             BIGINT  NOT NULL CHECK (rev > 0),
	trigger_topic   TEXT    NOT NULL,
	trigger_message TEXT    NOT NULL,
	mutation        TEXT COLLATE "C"    NOT NULL,
	title           TEXT    NOT NULL,
	wake_at         BIGINT  NOT NULL,
	seen_seq        BIGINT  NOT NULL,
	retry_at        BIGINT  NOT NULL,
	retries         INTEGER NOT NULL CHECK (retries >= 0),
	crashes         INTEGER NOT NULL CHECK (crashes >= 0),
	created_at      BIGINT  NOT NULL,
	updated_at      BIGINT  NOT NULL,
	error           TEXT,  -- JSON; NULL: none
	reservations    TEXT,  -- JSON
	prepared        BYTEA, -- JSON
	PRIMARY KEY (workflow, handler, n),
	CONSTRAINT run_phase_of_kind CHECK (phase = 'committed' OR CASE kind
		WHEN 'consumer' THEN phase IN ('preparing', 'prepared', 'mutating', 'mutated', 'emitting')
		ELSE phase = 'running' END),
	CONSTRAINT run_committed_is_a_phase_and_a_status CHECK ((status = 'committed') = (phase = 'committed')),
	CONSTRAINT run_closed_when_over CHECK (closed OR status NOT IN ('committed', 'aborted')),
	CONSTRAINT run_open_when_active CHECK (NOT closed OR status <> 'active')
);

CREATE UNIQUE INDEX run_by_id ON run (id);
CREATE INDEX run_by_n ON run (n, workflow);
-- Law one-at-a-time: one run of a workflow is not closed.
CREATE UNIQUE INDEX run_open ON run (workflow) WHERE NOT closed;
CREATE INDEX run_by_chain ON run (chain) WHERE chain <> id; -- retries; the first run is found by its id
-- An active run is open, a committed one the rule: neither needs this index.
CREATE INDEX run_by_status ON run (status, n, workflow) WHERE status NOT IN ('active', 'committed');

CREATE TABLE run_log (
	workflow TEXT COLLATE "C"   NOT NULL,
	run      TEXT COLLATE "C"   NOT NULL,
	n        BIGINT NOT NULL,
	at       BIGINT NOT NULL,
	level    TEXT   NOT NULL,
	text     TEXT   NOT NULL,
	place    TEXT   NOT NULL, -- file:line:column
	PRIMARY KEY (workflow, run, n)
);

-- Counts are kept, not counted: a topic may hold millions of events. Those that
-- are reserved are few, so they are among the pending here and counted when asked.
CREATE TABLE topic (
	workflow TEXT COLLATE "C"   NOT NULL,
	name     TEXT COLLATE "C"   NOT NULL CHECK (name <> ''),
	pending  BIGINT NOT NULL DEFAULT 0 CHECK (pending >= 0),
	consumed BIGINT NOT NULL DEFAULT 0 CHECK (consumed >= 0),
	skipped  BIGINT NOT NULL DEFAULT 0 CHECK (skipped >= 0),
	PRIMARY KEY (workflow, name)
) WITH (fillfactor = 50);

CREATE TABLE event (
	workflow    TEXT COLLATE "C"   NOT NULL,
	topic       TEXT COLLATE "C"   NOT NULL,
	n           BIGINT NOT NULL CHECK (n > 0), -- its Seq
	message_id  TEXT COLLATE "C"   NOT NULL CHECK (message_id <> ''),
	status      TEXT COLLATE "C"   NOT NULL CHECK (status IN ('pending', 'consumed', 'skipped')),
	reserved_by TEXT COLLATE "C"   NOT NULL DEFAULT '', -- chain
	created_by  TEXT   NOT NULL,
	created_at  BIGINT NOT NULL,
	updated_at  BIGINT NOT NULL,
	caused_by   TEXT   NOT NULL, -- JSON array of input ids, sorted; event_cause has them by input
	payload     BYTEA,           -- JSON
	PRIMARY KEY (workflow, topic, n),
	UNIQUE (workflow, topic, message_id),
	CONSTRAINT event_consumed_by_a_chain CHECK (status <> 'consumed' OR reserved_by <> '')
);

CREATE INDEX event_by_n ON event (n, workflow);
-- What a workflow has before it: free events are those with reserved_by = ''.
CREATE INDEX event_pending ON event (workflow, topic, reserved_by, n) WHERE status = 'pending';
CREATE INDEX event_skipped ON event (workflow, topic, n) WHERE status = 'skipped';
CREATE INDEX event_by_chain ON event (reserved_by) WHERE reserved_by <> '';

CREATE TABLE event_cause (
	workflow TEXT COLLATE "C"   NOT NULL,
	input    TEXT COLLATE "C"   NOT NULL,
	event    BIGINT NOT NULL, -- its n
	topic    TEXT COLLATE "C"   NOT NULL,
	PRIMARY KEY (workflow, input, event)
);

CREATE TABLE input (
	workflow    TEXT COLLATE "C"   NOT NULL,
	source      TEXT COLLATE "C"   NOT NULL,
	type        TEXT COLLATE "C"   NOT NULL,
	external_id TEXT COLLATE "C"   NOT NULL,
	id          TEXT COLLATE "C"   NOT NULL CHECK (id <> ''),
	n           BIGINT NOT NULL,
	title       TEXT   NOT NULL,
	status      TEXT COLLATE "C"   NOT NULL DEFAULT 'done' CHECK (status IN ('pending', 'done', 'skipped')),
	unfinished  BIGINT NOT NULL DEFAULT 0 CHECK (unfinished >= 0), -- pending events that it caused
	created_at  BIGINT NOT NULL,
	PRIMARY KEY (workflow, source, type, external_id),
	CONSTRAINT input_pending_while_an_event_is CHECK (status = 'skipped' OR (status = 'pending') = (unfinished > 0))
);

CREATE UNIQUE INDEX input_by_id ON input (id);
CREATE INDEX input_by_n ON input (n, workflow);
CREATE INDEX input_by_status ON input (workflow, status, n);

CREATE TABLE item (
	workflow   TEXT COLLATE "C"    NOT NULL,
	id         TEXT COLLATE "C"    NOT NULL CHECK (id <> ''),
	n          BIGINT  NOT NULL,
	title      TEXT    NOT NULL,
	status     TEXT COLLATE "C"    NOT NULL CHECK (status IN ('processing', 'done', 'failed', 'skipped', 'needs_attention')),
	attempt    INTEGER NOT NULL CHECK (attempt >= 1),
	rev        BIGINT  NOT NULL CHECK (rev > 0),
	created_at BIGINT  NOT NULL,
	updated_at BIGINT  NOT NULL,
	PRIMARY KEY (workflow, id)
);

CREATE INDEX item_by_n ON item (n, workflow);
CREATE INDEX item_of_workflow ON item (workflow, n);
CREATE INDEX item_by_status ON item (workflow, status, n);

CREATE TABLE mutation (
	workflow           TEXT COLLATE "C"    NOT NULL CHECK (workflow <> ''),
	tool               TEXT COLLATE "C"    NOT NULL CHECK (tool <> ''),
	n                  BIGINT  NOT NULL,
	key                TEXT COLLATE "C"    NOT NULL CHECK (key <> ''),
	run                TEXT COLLATE "C"    NOT NULL CHECK (run <> ''),
	item               TEXT COLLATE "C"    NOT NULL,
	attempt            INTEGER NOT NULL CHECK (attempt >= 0), -- of the item
	connector          TEXT    NOT NULL,
	level              TEXT    NOT NULL CHECK (level IN ('A', 'B', 'C', 'D')),
	target             TEXT    NOT NULL,
	subkey             TEXT    NOT NULL,
	payload_hash       TEXT    NOT NULL,
	token              TEXT    NOT NULL CHECK (token <> ''),
	title              TEXT    NOT NULL,
	state              TEXT COLLATE "C"    NOT NULL CHECK (state IN (
		'applied', 'in_flight', 'needs_reconcile', 'failed', 'indeterminate', 'skipped')),
	warning            TEXT    NOT NULL,
	attempts           INTEGER NOT NULL CHECK (attempts >= 1), -- calls made
	reconcile_attempts INTEGER NOT NULL CHECK (reconcile_attempts >= 0),
	next_reconcile_at  BIGINT  NOT NULL,
	call_deadline      BIGINT  NOT NULL CHECK (call_deadline <> 0),
	settle_after       BIGINT  NOT NULL, -- nanoseconds
	can_reconcile      BOOLEAN NOT NULL,
	resolved_by        TEXT    NOT NULL,
	rev                BIGINT  NOT NULL CHECK (rev > 0),
	created_at         BIGINT  NOT NULL,
	updated_at         BIGINT  NOT NULL,
	error              TEXT,  -- JSON; NULL: none
	identity           BYTEA, -- JSON
	payload            BYTEA, -- JSON
	result             BYTEA, -- JSON
	PRIMARY KEY (workflow, tool, n),
	CONSTRAINT mutation_result_only_when_applied CHECK (result IS NULL OR state = 'applied'),
	CONSTRAINT mutation_applied_by_someone CHECK (state <> 'applied' OR resolved_by <> ''),
	CONSTRAINT mutation_attempt_of_an_item CHECK ((item = '') = (attempt = 0))
);

CREATE UNIQUE INDEX mutation_by_key ON mutation (key); -- law once: one record of a key
CREATE INDEX mutation_by_n ON mutation (n, workflow);
CREATE INDEX mutation_by_run ON mutation (run);
CREATE INDEX mutation_by_item ON mutation (workflow, item, n) WHERE item <> '';
CREATE INDEX mutation_by_state ON mutation (state, n, workflow) WHERE state <> 'applied';

-- Only appended (law nothing-lost).
CREATE TABLE mutation_history (
	workflow   TEXT COLLATE "C"   NOT NULL,
	mutation   BIGINT NOT NULL, -- its n
	n          BIGINT NOT NULL,
	at         BIGINT NOT NULL,
	who        TEXT   NOT NULL,
	from_state TEXT   NOT NULL, -- '': the record was made
	to_state   TEXT   NOT NULL,
	evidence   TEXT   NOT NULL,
	detail     TEXT   NOT NULL,
	PRIMARY KEY (workflow, mutation, n)
);

CREATE TABLE escalation (
	workflow        TEXT COLLATE "C"    NOT NULL,
	id              TEXT COLLATE "C"    NOT NULL CHECK (id <> ''),
	n               BIGINT  NOT NULL,
	kind            TEXT    NOT NULL CHECK (kind IN (
		'unknown_outcome', 'permission', 'precondition', 'retries_exhausted', 'logic', 'internal', 'approval',
		'item_attention')),
	run             TEXT COLLATE "C"    NOT NULL,
	mutation        TEXT COLLATE "C"    NOT NULL,
	item            TEXT COLLATE "C"    NOT NULL,
	title           TEXT    NOT NULL,
	question        TEXT    NOT NULL,
	attempted       TEXT    NOT NULL,
	why             TEXT    NOT NULL,
	can_verify      BOOLEAN NOT NULL,
	verify_by_hand  TEXT    NOT NULL,
	choices         TEXT,   -- JSON
	payload_hash    TEXT    NOT NULL,
	created_at      BIGINT  NOT NULL,
	closed_at       BIGINT  NOT NULL DEFAULT 0, -- 0: open
	decision        TEXT    NOT NULL DEFAULT '', -- action; '': the host closed it
	decided_by      TEXT    NOT NULL DEFAULT '',
	decided_from    TEXT    NOT NULL DEFAULT '',
	decision_note   TEXT    NOT NULL DEFAULT '',
	decided_at      BIGINT  NOT NULL DEFAULT 0,
	PRIMARY KEY (workflow, n),
	CONSTRAINT escalation_decided_when_closed CHECK (decision = '' OR closed_at <> 0)
);

CREATE UNIQUE INDEX escalation_by_id ON escalation (id);
CREATE INDEX escalation_by_n ON escalation (n, workflow);
CREATE INDEX escalation_open ON escalation (n, workflow) WHERE closed_at = 0;
CREATE INDEX escalation_by_run ON escalation (run, n);
CREATE INDEX escalation_by_mutation ON escalation (mutation) WHERE mutation <> '';

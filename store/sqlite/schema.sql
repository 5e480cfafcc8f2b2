-- Written by go test ./store/sqlite -run TestSchema -update from the migrations. A new file is
-- made by it; an older one has the migrations that it lacks.

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
, granted INTEGER NOT NULL DEFAULT 0 CHECK (granted >= 0), pause_note TEXT NOT NULL DEFAULT '') STRICT, WITHOUT ROWID;

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
	prepared        TEXT, lane TEXT NOT NULL DEFAULT '', idle INTEGER NOT NULL DEFAULT 0 CHECK (idle = 0 OR idle = 1 AND status = 'committed'), -- JSON
	CONSTRAINT run_phase_of_kind CHECK (phase = 'committed' OR CASE kind
		WHEN 'consumer' THEN phase = 'mutating' OR phase = 'preparing' OR phase = 'prepared' OR phase = 'mutated' OR phase = 'emitting'
		ELSE phase = 'running' END),
	CONSTRAINT run_committed_is_a_phase_and_a_status CHECK ((status = 'committed') = (phase = 'committed')),
	CONSTRAINT run_closed_when_over CHECK (closed = 1 OR status NOT IN ('committed', 'aborted')),
	CONSTRAINT run_open_when_active CHECK (closed = 0 OR status <> 'active')
) STRICT;

CREATE INDEX run_by_handler ON run (n >> 9, workflow, handler);

CREATE INDEX run_by_chain ON run (chain) WHERE chain <> id;

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

CREATE TABLE topic (
	workflow TEXT    NOT NULL,
	name     TEXT    NOT NULL CHECK (name <> ''),
	pending  INTEGER NOT NULL DEFAULT 0 CHECK (pending >= 0),
	consumed INTEGER NOT NULL DEFAULT 0 CHECK (consumed >= 0),
	skipped  INTEGER NOT NULL DEFAULT 0 CHECK (skipped >= 0), unread INTEGER NOT NULL DEFAULT 0 CHECK (unread IN (0, 1)),
	PRIMARY KEY (workflow, name)
) STRICT, WITHOUT ROWID;

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
	payload     TEXT, redone TEXT,             -- JSON
	UNIQUE (workflow, topic, message_id),
	CONSTRAINT event_consumed_by_a_chain CHECK (status <> 'consumed' OR reserved_by <> '')
) STRICT;

CREATE INDEX event_by_topic ON event (seq >> 9, workflow, topic);

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
	updated_at INTEGER NOT NULL, swept INTEGER NOT NULL DEFAULT 0,
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
	result             TEXT, pin_hash TEXT NOT NULL DEFAULT '', doubted INTEGER NOT NULL DEFAULT 0 CHECK (doubted IN (0, 1)), sent_as TEXT, spent_at INTEGER NOT NULL DEFAULT 0, spent TEXT, summed_at INTEGER NOT NULL DEFAULT 0, -- JSON
	CONSTRAINT mutation_result_only_when_applied CHECK (result IS NULL OR state = 'applied'),
	CONSTRAINT mutation_applied_by_someone CHECK (state <> 'applied' OR resolved_by <> ''),
	CONSTRAINT mutation_attempt_of_an_item CHECK ((item = '') = (attempt = 0))
) STRICT;

CREATE INDEX mutation_by_run ON mutation (run);

CREATE INDEX mutation_by_tool ON mutation (n >> 9, workflow, tool);

CREATE INDEX mutation_by_item ON mutation (workflow, item) WHERE item <> '';

CREATE INDEX mutation_by_state ON mutation (state) WHERE state <> 'applied';

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

CREATE TABLE idempotency_key (
	n           INTEGER PRIMARY KEY,
	id          BLOB    NOT NULL UNIQUE CHECK (length(id) = 16),
	key         TEXT    NOT NULL CHECK (length(key) BETWEEN 1 AND 255),
	caller      TEXT    NOT NULL, -- hash; '': anonymous
	method      TEXT    NOT NULL,
	path        TEXT    NOT NULL,
	fingerprint BLOB    NOT NULL CHECK (length(fingerprint) = 32),
	state       TEXT    NOT NULL CHECK (state IN (
		'in_progress', 'done', 'done_without_body', 'unknown', 'released')),
	atomic      INTEGER NOT NULL CHECK (atomic IN (0, 1)),
	token       INTEGER NOT NULL CHECK (token <> 0),
	doubts      INTEGER NOT NULL CHECK (doubts >= 0),
	lease_until INTEGER NOT NULL,
	doubt_at    INTEGER NOT NULL, -- 0: the outcome never was unknown
	status      INTEGER NOT NULL, -- 0: there is no answer
	resolved_by TEXT    NOT NULL,
	created_at  INTEGER NOT NULL CHECK (created_at > 0),
	updated_at  INTEGER NOT NULL,
	expires_at  INTEGER NOT NULL CHECK (expires_at > 0),
	rev         INTEGER NOT NULL CHECK (rev > 0),
	header      BLOB,
	body        BLOB, version INTEGER NOT NULL DEFAULT 1 CHECK (version > 0), host TEXT NOT NULL DEFAULT '', alias BLOB CHECK (length(alias) = 16),    -- last, since it can be large
	CONSTRAINT idempotency_key_answer_when_done CHECK (
		(state IN ('done', 'done_without_body')) = (status <> 0)),
	CONSTRAINT idempotency_key_body_when_done CHECK (
		state = 'done' OR (header IS NULL AND body IS NULL)),
	CONSTRAINT idempotency_key_lease_when_in_progress CHECK (
		state <> 'in_progress' OR lease_until > 0),
	CONSTRAINT idempotency_key_doubt_when_unknown CHECK (
		state <> 'unknown' OR doubt_at > 0)
) STRICT;

CREATE INDEX idempotency_key_open ON idempotency_key (state) WHERE state IN ('in_progress', 'unknown');

CREATE INDEX idempotency_key_over ON idempotency_key (expires_at)
	WHERE state IN ('done', 'done_without_body', 'released');

CREATE TABLE tally (
	noun     TEXT    NOT NULL,
	workflow TEXT    NOT NULL,
	name     TEXT    NOT NULL, -- handler of a run, tool of a mutation; else ''
	rows     INTEGER NOT NULL CHECK (rows >= 0),
	PRIMARY KEY (noun, workflow, name)
) STRICT, WITHOUT ROWID;

CREATE TRIGGER run_tally AFTER INSERT ON run BEGIN
	INSERT INTO tally VALUES ('run', NEW.workflow, NEW.handler, 1) ON CONFLICT DO UPDATE SET rows = rows + 1;
END;

CREATE TRIGGER mutation_tally AFTER INSERT ON mutation BEGIN
	INSERT INTO tally VALUES ('mutation', NEW.workflow, NEW.tool, 1) ON CONFLICT DO UPDATE SET rows = rows + 1;
END;

CREATE TRIGGER input_tally AFTER INSERT ON input BEGIN
	INSERT INTO tally VALUES ('input', NEW.workflow, '', 1) ON CONFLICT DO UPDATE SET rows = rows + 1;
END;

CREATE TRIGGER item_tally AFTER INSERT ON item BEGIN
	INSERT INTO tally VALUES ('item', NEW.workflow, '', 1) ON CONFLICT DO UPDATE SET rows = rows + 1;
END;

CREATE INDEX run_unusual ON run (status, workflow, handler) WHERE status NOT IN ('active', 'committed');

CREATE INDEX mutation_unusual ON mutation (state, workflow, tool) WHERE state NOT IN ('applied', 'in_flight');

CREATE TABLE notice (
	escalation INTEGER NOT NULL REFERENCES escalation (n),
	sink       TEXT    NOT NULL CHECK (sink <> ''),
	status     TEXT    NOT NULL CHECK (
		status = 'delivered' OR status = 'pending' OR status = 'given_up' OR status = 'moot'),
	attempts   INTEGER NOT NULL CHECK (attempts >= 1), -- begun so far
	next_at    INTEGER NOT NULL,
	error      TEXT    NOT NULL,
	updated_at INTEGER NOT NULL,
	rev        INTEGER NOT NULL CHECK (rev > 0),
	PRIMARY KEY (escalation, sink),
	CONSTRAINT notice_pending_until CHECK ((status = 'pending') = (next_at <> 0))
) STRICT, WITHOUT ROWID;

CREATE INDEX notice_pending ON notice (sink, next_at) WHERE status = 'pending';

CREATE TABLE credential (
	n          INTEGER PRIMARY KEY,
	id         TEXT    NOT NULL UNIQUE CHECK (id <> ''),
	kind       TEXT    NOT NULL CHECK (kind = 'token' OR kind = 'session' OR kind = 'login'),
	hash       BLOB    NOT NULL CHECK (length(hash) = 32),
	name       TEXT    NOT NULL,
	role       TEXT    NOT NULL,
	parent     TEXT    NOT NULL, -- id; '': none
	created_at INTEGER NOT NULL,
	expires_at INTEGER NOT NULL, -- 0: never
	used_at    INTEGER NOT NULL
) STRICT;

CREATE INDEX credential_by_kind ON credential (kind);

CREATE INDEX credential_by_parent ON credential (parent) WHERE parent <> '';

CREATE INDEX credential_by_end ON credential (expires_at) WHERE expires_at <> 0;

CREATE INDEX run_by_retry ON run (retry_of) WHERE retry_of <> '';

CREATE VIRTUAL TABLE run_search USING fts5 (words, content = '', contentless_delete = 1, detail = none, tokenize = 'ascii');

CREATE VIRTUAL TABLE mutation_search USING fts5 (words, content = '', contentless_delete = 1, detail = none, tokenize = 'ascii');

CREATE VIRTUAL TABLE input_search USING fts5 (words, content = '', contentless_delete = 1, detail = none, tokenize = 'ascii');

CREATE VIRTUAL TABLE item_search USING fts5 (words, content = '', contentless_delete = 1, detail = none, tokenize = 'ascii');

CREATE VIRTUAL TABLE event_search USING fts5 (words, content = '', contentless_delete = 1, detail = none, tokenize = 'ascii');

CREATE TABLE search_index (
	noun TEXT    PRIMARY KEY,
	upto INTEGER NOT NULL -- rows up to this n (event: seq) are in the index
) STRICT, WITHOUT ROWID;

CREATE TABLE search_changed (
	noun TEXT    NOT NULL,
	n    INTEGER NOT NULL,
	PRIMARY KEY (noun, n)
) STRICT, WITHOUT ROWID;

CREATE TRIGGER run_searched AFTER UPDATE OF title, trigger_message, reservations ON run
	WHEN (OLD.title <> NEW.title OR OLD.trigger_message <> NEW.trigger_message OR OLD.reservations IS NOT NEW.reservations)
		AND OLD.n <= (SELECT upto FROM search_index WHERE noun = 'run')
BEGIN
	INSERT INTO search_changed VALUES ('run', OLD.n) ON CONFLICT DO NOTHING;
END;

CREATE TRIGGER mutation_searched AFTER UPDATE OF title, target, identity ON mutation
	WHEN (OLD.title <> NEW.title OR OLD.target <> NEW.target OR OLD.identity IS NOT NEW.identity)
		AND OLD.n <= (SELECT upto FROM search_index WHERE noun = 'mutation')
BEGIN
	INSERT INTO search_changed VALUES ('mutation', OLD.n) ON CONFLICT DO NOTHING;
END;

CREATE TRIGGER item_searched AFTER UPDATE OF title ON item
	WHEN OLD.title <> NEW.title AND OLD.n <= (SELECT upto FROM search_index WHERE noun = 'item')
BEGIN
	INSERT INTO search_changed VALUES ('item', OLD.n) ON CONFLICT DO NOTHING;
END;

CREATE TRIGGER run_swept AFTER DELETE ON run BEGIN
	UPDATE tally SET rows = rows - 1 WHERE noun = 'run' AND workflow = OLD.workflow AND name = OLD.handler;
	DELETE FROM run_search WHERE rowid = OLD.n;
	DELETE FROM search_changed WHERE noun = 'run' AND n = OLD.n;
END;

CREATE TRIGGER mutation_swept AFTER DELETE ON mutation BEGIN
	UPDATE tally SET rows = rows - 1 WHERE noun = 'mutation' AND workflow = OLD.workflow AND name = OLD.tool;
	DELETE FROM mutation_search WHERE rowid = OLD.n;
	DELETE FROM search_changed WHERE noun = 'mutation' AND n = OLD.n;
END;

CREATE UNIQUE INDEX idempotency_key_alias ON idempotency_key (alias) WHERE alias IS NOT NULL;

CREATE TABLE event_tried (
	event INTEGER NOT NULL,
	chain TEXT    NOT NULL CHECK (chain <> ''),
	PRIMARY KEY (event, chain)
) STRICT, WITHOUT ROWID;

CREATE INDEX event_tried_by_chain ON event_tried (chain);

CREATE TABLE hook (
	name            TEXT    NOT NULL PRIMARY KEY CHECK (name <> ''),
	accepted        INTEGER NOT NULL CHECK (accepted >= 0),
	repeated        INTEGER NOT NULL CHECK (repeated >= 0),
	refused         INTEGER NOT NULL CHECK (refused >= 0),
	last_at         INTEGER NOT NULL, -- 0: never
	last_refused_at INTEGER NOT NULL, -- 0: never
	last_refusal    TEXT    NOT NULL
) STRICT, WITHOUT ROWID;

CREATE UNIQUE INDEX run_open ON run (workflow, lane) WHERE closed = 0;

CREATE INDEX mutation_by_identity ON mutation (tool, substr(identity, 1, 64));

CREATE TABLE account (
	kind            TEXT NOT NULL CHECK (kind IN ('account', 'secret')),
	name            TEXT NOT NULL CHECK (name <> ''),
	pack            TEXT    NOT NULL,
	style           TEXT    NOT NULL,
	subject         TEXT    NOT NULL,
	scopes          TEXT,   -- JSON
	generation      INTEGER NOT NULL CHECK (generation >= 1),
	renews          INTEGER NOT NULL CHECK (renews IN (0, 1)),
	status          TEXT    NOT NULL CHECK (status IN ('ok', 'needs_reconnect', 'revoked')),
	expires_at      INTEGER NOT NULL, -- 0: it is not known to expire
	lifetime        INTEGER NOT NULL,
	error           TEXT    NOT NULL,
	connected_by    TEXT    NOT NULL,
	connected_at    INTEGER NOT NULL,
	last_refresh_at INTEGER NOT NULL, -- 0: never
	last_used_at    INTEGER NOT NULL, -- 0: never
	sealed          BLOB,
	refreshes       TEXT,   -- JSON, newest last
	lease_host      TEXT    NOT NULL,
	lease_until     INTEGER NOT NULL,
	rev             INTEGER NOT NULL CHECK (rev >= 1),
	PRIMARY KEY (kind, name),
	CONSTRAINT account_sealed_unless_revoked CHECK ((status = 'revoked') = (sealed IS NULL))
) STRICT, WITHOUT ROWID;

CREATE TABLE gate (
	connection TEXT    NOT NULL PRIMARY KEY CHECK (connection <> ''),
	state      TEXT    NOT NULL, -- JSON
	rev        INTEGER NOT NULL CHECK (rev > 0)
) STRICT, WITHOUT ROWID;

CREATE TABLE granted (
	workflow   TEXT    NOT NULL REFERENCES workflow (name),
	n          INTEGER NOT NULL CHECK (n >= 1),
	major      INTEGER NOT NULL, -- of the version that was current
	minor      INTEGER NOT NULL,
	tools      TEXT,   -- JSON
	given_by   TEXT    NOT NULL,
	given_from TEXT    NOT NULL,
	given_at   INTEGER NOT NULL,
	taken_by   TEXT    NOT NULL,
	taken_at   INTEGER NOT NULL, -- 0: nobody took it
	PRIMARY KEY (workflow, n),
	CONSTRAINT granted_nothing_when_taken CHECK ((taken_at = 0) = (taken_by = '') AND (taken_at = 0 OR tools IS NULL))
) STRICT, WITHOUT ROWID;

CREATE TABLE proposal (
	workflow      TEXT    NOT NULL CHECK (workflow <> ''), -- which may not exist yet
	major         INTEGER NOT NULL,
	minor         INTEGER NOT NULL,
	over_major    INTEGER NOT NULL, -- of the version that was current; 0.0: none
	over_minor    INTEGER NOT NULL,
	tools         TEXT,             -- JSON: what it calls and was not granted
	proposed_by   TEXT    NOT NULL,
	proposed_from TEXT    NOT NULL,
	question      TEXT    NOT NULL CHECK (question <> ''),
	state         TEXT    NOT NULL CHECK (state IN ('waiting', 'approved', 'rejected', 'replaced')),
	ended_at      INTEGER NOT NULL, -- 0: it waits
	hash          TEXT    NOT NULL,
	entry         TEXT    NOT NULL,
	definition    TEXT    NOT NULL, -- JSON
	created_at    INTEGER NOT NULL,
	code          BLOB,
	map           BLOB,
	PRIMARY KEY (workflow, major, minor),
	CONSTRAINT proposal_ended CHECK ((state = 'waiting') = (ended_at = 0))
) STRICT;

CREATE UNIQUE INDEX proposal_waiting ON proposal (workflow) WHERE state = 'waiting';

CREATE INDEX mutation_spent ON mutation (spent_at) WHERE spent_at <> 0;

CREATE TABLE repair (
	id         TEXT    NOT NULL PRIMARY KEY CHECK (id <> ''),
	workflow   TEXT    NOT NULL CHECK (workflow <> ''),
	created_at INTEGER NOT NULL,
	rev        INTEGER NOT NULL CHECK (rev > 0),
	state      TEXT    NOT NULL -- JSON
) STRICT;

CREATE INDEX repair_by_workflow ON repair (workflow, created_at, id);

CREATE INDEX repair_by_time ON repair (created_at, id);

CREATE TABLE counter (
	step      TEXT    NOT NULL CHECK (step = 'minute' OR step = 'hour' OR step = 'day'),
	at        INTEGER NOT NULL,
	workflow  TEXT    NOT NULL,
	committed INTEGER NOT NULL,
	idle      INTEGER NOT NULL,
	failed    INTEGER NOT NULL,
	waiting   INTEGER NOT NULL,
	asked     INTEGER NOT NULL,
	took      TEXT, -- JSON
	PRIMARY KEY (step, at, workflow)
) STRICT, WITHOUT ROWID;

CREATE TABLE "escalation" (
	n               INTEGER PRIMARY KEY,
	id              TEXT    NOT NULL UNIQUE CHECK (id <> ''),
	kind            TEXT    NOT NULL CHECK (
		kind = 'unknown_outcome' OR kind = 'permission' OR kind = 'precondition' OR
		kind = 'retries_exhausted' OR kind = 'logic' OR kind = 'internal' OR kind = 'approval' OR
		kind = 'item_attention' OR kind = 'already_done' OR kind = 'reconnect' OR kind = 'connection' OR
		kind = 'grant' OR kind = 'budget' OR kind = 'breaker' OR kind = 'proposal' OR kind = 'tool_changed'),
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
	connection      TEXT    NOT NULL DEFAULT '', -- '': not about one
	approval        TEXT,    -- JSON; NULL: another kind, or asked by an older version
	expires_at      INTEGER NOT NULL DEFAULT 0, -- 0: never
	budget          TEXT    NOT NULL DEFAULT '', decided_result TEXT, -- '': not about one
	CONSTRAINT escalation_decided_when_closed CHECK (decision = '' OR closed_at <> 0)
) STRICT;

CREATE INDEX escalation_open ON escalation (closed_at) WHERE closed_at = 0;

CREATE INDEX escalation_by_workflow ON escalation (workflow);

CREATE INDEX escalation_by_run ON escalation (run);

CREATE INDEX escalation_by_mutation ON escalation (mutation) WHERE mutation <> '';

CREATE INDEX escalation_by_kind ON escalation (kind, workflow);

CREATE VIRTUAL TABLE run_words USING fts5vocab('run_search', 'instance');

CREATE VIRTUAL TABLE mutation_words USING fts5vocab('mutation_search', 'instance');

CREATE VIRTUAL TABLE input_words USING fts5vocab('input_search', 'instance');

CREATE VIRTUAL TABLE item_words USING fts5vocab('item_search', 'instance');

CREATE VIRTUAL TABLE event_words USING fts5vocab('event_search', 'instance');

CREATE INDEX run_empty ON run (workflow) WHERE idle = 1 AND chain = id;

CREATE INDEX event_free ON event (workflow, topic) WHERE status = 'pending' AND reserved_by = '';

CREATE INDEX event_reserved ON event (workflow, topic) WHERE status = 'pending' AND reserved_by <> '';

CREATE TABLE "run_trace" (
	n    INTEGER PRIMARY KEY,
	run  INTEGER NOT NULL, -- its n
	at   INTEGER NOT NULL,
	data BLOB    NOT NULL
) STRICT;

CREATE INDEX run_trace_by_run ON run_trace (run);

CREATE INDEX mutation_unsummed ON mutation (spent_at) WHERE spent_at <> 0 AND summed_at <> spent_at AND state <> 'failed';

CREATE TABLE spent_sum (
	budget TEXT    NOT NULL,
	level  INTEGER NOT NULL, -- a piece has 1<<level milliseconds
	piece  INTEGER NOT NULL, -- spent_at >> level
	high   INTEGER NOT NULL, -- of amount >> 30
	low    INTEGER NOT NULL, -- of the rest
	PRIMARY KEY (budget, level, piece)
) STRICT, WITHOUT ROWID;

CREATE INDEX spent_sum_empty ON spent_sum (high) WHERE high = 0 AND low = 0;

CREATE INDEX escalation_said_done ON escalation (workflow, item) WHERE decision IN ('treat-as-done', 'do-again') AND kind IN ('approval', 'already_done');

CREATE INDEX mutation_failed_after_doubt ON mutation (max(created_at, updated_at)) WHERE state = 'failed' AND doubted = 1;

CREATE INDEX run_by_end ON run (updated_at, workflow, created_at, idle) WHERE closed = 1 AND status = 'committed';

CREATE INDEX run_failed ON run (updated_at) WHERE closed = 1 AND (status IN ('failed:logic', 'failed:internal', 'crashed') OR status = 'aborted' AND phase = 'mutating' AND mutation <> '');

CREATE INDEX escalation_by_item ON escalation (workflow, item) WHERE item <> '';

CREATE TABLE "decision" (
	n        INTEGER PRIMARY KEY,
	workflow TEXT    NOT NULL,
	kind     TEXT    NOT NULL CHECK (kind <> ''),
	topic    TEXT    NOT NULL,
	id       TEXT    NOT NULL CHECK (id <> ''),
	at       INTEGER NOT NULL,
	action   TEXT    NOT NULL CHECK (action <> ''),
	who      TEXT    NOT NULL,
	source   TEXT    NOT NULL,
	note     TEXT    NOT NULL
) STRICT;

CREATE INDEX decision_by_subject ON decision (workflow, id, kind, topic);

CREATE INDEX mutation_item_doubt ON mutation (workflow, state) WHERE item <> '' AND state IN ('needs_reconcile', 'indeterminate');

CREATE INDEX decision_of_workflow ON decision (workflow);

INSERT INTO search_index VALUES ('event', 0);
INSERT INTO search_index VALUES ('input', 0);
INSERT INTO search_index VALUES ('item', 0);
INSERT INTO search_index VALUES ('mutation', 0);
INSERT INTO search_index VALUES ('run', 0);

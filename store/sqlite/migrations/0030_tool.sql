-- A new kind of question, about a tool that its server changed. SQLite changes no CHECK, so the table is made anew. Meanwhile
-- the notices, which refer to it, are elsewhere.
CREATE TABLE notice_kept AS SELECT * FROM notice;
DELETE FROM notice;

CREATE TABLE escalation_new (
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
	budget          TEXT    NOT NULL DEFAULT '', -- '': not about one
	CONSTRAINT escalation_decided_when_closed CHECK (decision = '' OR closed_at <> 0)
) STRICT;

INSERT INTO escalation_new SELECT * FROM escalation;
DROP TABLE escalation;
ALTER TABLE escalation_new RENAME TO escalation;

INSERT INTO notice SELECT * FROM notice_kept;
DROP TABLE notice_kept;

CREATE INDEX escalation_open ON escalation (closed_at) WHERE closed_at = 0;
CREATE INDEX escalation_by_workflow ON escalation (workflow);
CREATE INDEX escalation_by_run ON escalation (run);
CREATE INDEX escalation_by_mutation ON escalation (mutation) WHERE mutation <> '';
CREATE INDEX escalation_by_kind ON escalation (kind, workflow);

-- What workflows may do. Each grant replaces the one before, and none is ever changed.
ALTER TABLE workflow ADD COLUMN granted INTEGER NOT NULL DEFAULT 0 CHECK (granted >= 0); -- 0: never given one

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

-- Versions that call more than is granted. They wait for a person, and nobody executes them.
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

-- A new kind of question. SQLite changes no CHECK, so the table is made anew. Meanwhile
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
		kind = 'grant'),
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

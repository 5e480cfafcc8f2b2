-- oldest: 22
-- What workflows may do. Each grant replaces the one before, and none is ever changed. A
-- host of an older version would make calls that no grant allows.
ALTER TABLE workflow ADD COLUMN granted BIGINT NOT NULL DEFAULT 0 CHECK (granted >= 0); -- 0: never given one

CREATE TABLE granted (
	workflow   TEXT COLLATE "C" NOT NULL REFERENCES workflow (name),
	n          BIGINT NOT NULL CHECK (n >= 1),
	major      BIGINT NOT NULL, -- of the version that was current
	minor      BIGINT NOT NULL,
	tools      TEXT,   -- JSON
	given_by   TEXT   NOT NULL,
	given_from TEXT   NOT NULL,
	given_at   BIGINT NOT NULL,
	taken_by   TEXT   NOT NULL,
	taken_at   BIGINT NOT NULL, -- 0: nobody took it
	PRIMARY KEY (workflow, n),
	CONSTRAINT granted_nothing_when_taken CHECK ((taken_at = 0) = (taken_by = '') AND (taken_at = 0 OR tools IS NULL))
);

-- Versions that call more than is granted. They wait for a person, and nobody executes them.
CREATE TABLE proposal (
	workflow      TEXT COLLATE "C"    NOT NULL CHECK (workflow <> ''), -- which may not exist yet
	major         BIGINT  NOT NULL,
	minor         BIGINT  NOT NULL,
	over_major    BIGINT  NOT NULL, -- of the version that was current; 0.0: none
	over_minor    BIGINT  NOT NULL,
	tools         TEXT,             -- JSON: what it calls and was not granted
	proposed_by   TEXT    NOT NULL,
	proposed_from TEXT    NOT NULL,
	question      TEXT    NOT NULL CHECK (question <> ''),
	state         TEXT    NOT NULL CHECK (state IN ('waiting', 'approved', 'rejected', 'replaced')),
	ended_at      BIGINT  NOT NULL, -- 0: it waits
	hash          TEXT    NOT NULL,
	entry         TEXT    NOT NULL,
	definition    TEXT    NOT NULL, -- JSON
	created_at    BIGINT  NOT NULL,
	code          BYTEA,
	map           BYTEA,
	PRIMARY KEY (workflow, major, minor),
	CONSTRAINT proposal_ended CHECK ((state = 'waiting') = (ended_at = 0))
);
CREATE UNIQUE INDEX proposal_waiting ON proposal (workflow) WHERE state = 'waiting';

-- A new kind of question.
ALTER TABLE escalation DROP CONSTRAINT escalation_kind_check;
ALTER TABLE escalation ADD CONSTRAINT escalation_kind_check CHECK (kind IN (
	'unknown_outcome', 'permission', 'precondition', 'retries_exhausted', 'logic', 'internal', 'approval',
	'item_attention', 'already_done', 'reconnect', 'connection', 'grant'));

-- What was done about failures of scripts; law/repair says what is in it.
CREATE TABLE repair (
	id         TEXT    NOT NULL PRIMARY KEY CHECK (id <> ''),
	workflow   TEXT    NOT NULL CHECK (workflow <> ''),
	created_at INTEGER NOT NULL,
	rev        INTEGER NOT NULL CHECK (rev > 0),
	state      TEXT    NOT NULL -- JSON
) STRICT;
CREATE INDEX repair_by_workflow ON repair (workflow, created_at, id);
CREATE INDEX repair_by_time ON repair (created_at, id);

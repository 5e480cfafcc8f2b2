-- oldest: 26
-- What was done about failures of scripts; law/repair says what is in it. A host of version 26
-- repairs nothing.
CREATE TABLE repair (
	id         TEXT   COLLATE "C" PRIMARY KEY CHECK (id <> ''),
	workflow   TEXT   COLLATE "C" NOT NULL CHECK (workflow <> ''),
	created_at BIGINT NOT NULL,
	rev        BIGINT NOT NULL CHECK (rev > 0),
	state      TEXT   NOT NULL -- JSON
);
CREATE INDEX repair_by_workflow ON repair (workflow, created_at, id);
CREATE INDEX repair_by_time ON repair (created_at, id);

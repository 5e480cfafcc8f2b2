-- oldest: 12
-- What came to hooks. Counts only: what was accepted is an event.

CREATE TABLE hook (
	name            TEXT   COLLATE "C" PRIMARY KEY CHECK (name <> ''),
	accepted        BIGINT NOT NULL CHECK (accepted >= 0),
	repeated        BIGINT NOT NULL CHECK (repeated >= 0),
	refused         BIGINT NOT NULL CHECK (refused >= 0),
	last_at         BIGINT NOT NULL, -- 0: never
	last_refused_at BIGINT NOT NULL, -- 0: never
	last_refusal    TEXT   NOT NULL
);

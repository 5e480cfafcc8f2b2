-- What came to hooks. Counts only: what was accepted is an event.

CREATE TABLE hook (
	name            TEXT    NOT NULL PRIMARY KEY CHECK (name <> ''),
	accepted        INTEGER NOT NULL CHECK (accepted >= 0),
	repeated        INTEGER NOT NULL CHECK (repeated >= 0),
	refused         INTEGER NOT NULL CHECK (refused >= 0),
	last_at         INTEGER NOT NULL, -- 0: never
	last_refused_at INTEGER NOT NULL, -- 0: never
	last_refusal    TEXT    NOT NULL
) STRICT, WITHOUT ROWID;

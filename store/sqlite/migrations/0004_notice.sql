-- Who was told of which question.

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

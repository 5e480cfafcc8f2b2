-- Who was told of which question.

CREATE TABLE notice (
	workflow   TEXT    COLLATE "C" NOT NULL,
	escalation BIGINT  NOT NULL, -- its n
	sink       TEXT    COLLATE "C" NOT NULL CHECK (sink <> ''),
	status     TEXT    COLLATE "C" NOT NULL CHECK (status IN ('delivered', 'pending', 'given_up', 'moot')),
	attempts   INTEGER NOT NULL CHECK (attempts >= 1), -- begun so far
	next_at    BIGINT  NOT NULL,
	error      TEXT    NOT NULL,
	updated_at BIGINT  NOT NULL,
	rev        BIGINT  NOT NULL CHECK (rev > 0),
	PRIMARY KEY (workflow, escalation, sink),
	CONSTRAINT notice_pending_until CHECK ((status = 'pending') = (next_at <> 0))
);

CREATE INDEX notice_pending ON notice (sink, next_at, escalation) WHERE status = 'pending';

-- Idempotency keys of HTTP requests; see idempotency/key for what they may be.
-- Times are milliseconds since 1970 UTC; 0 means not set.

CREATE TABLE idempotency_key (
	n           BIGINT  GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	id          BYTEA   NOT NULL UNIQUE CHECK (length(id) = 16),
	key         TEXT    NOT NULL CHECK (length(key) BETWEEN 1 AND 255),
	caller      TEXT    NOT NULL, -- hash; '': anonymous
	method      TEXT    NOT NULL,
	path        TEXT    NOT NULL,
	fingerprint BYTEA   NOT NULL CHECK (length(fingerprint) = 32),
	state       TEXT    NOT NULL CHECK (state IN (
		'in_progress', 'done', 'done_without_body', 'unknown', 'released')),
	atomic      BOOLEAN NOT NULL,
	token       BIGINT  NOT NULL CHECK (token <> 0),
	doubts      INTEGER NOT NULL CHECK (doubts >= 0),
	lease_until BIGINT  NOT NULL,
	doubt_at    BIGINT  NOT NULL, -- 0: the outcome never was unknown
	status      INTEGER NOT NULL, -- 0: there is no answer
	resolved_by TEXT    NOT NULL,
	created_at  BIGINT  NOT NULL CHECK (created_at > 0),
	updated_at  BIGINT  NOT NULL,
	expires_at  BIGINT  NOT NULL CHECK (expires_at > 0),
	rev         BIGINT  NOT NULL CHECK (rev > 0),
	header      BYTEA,
	body        BYTEA,
	CONSTRAINT idempotency_key_answer_when_done CHECK (
		(state IN ('done', 'done_without_body')) = (status <> 0)),
	CONSTRAINT idempotency_key_body_when_done CHECK (
		state = 'done' OR (header IS NULL AND body IS NULL)),
	CONSTRAINT idempotency_key_lease_when_in_progress CHECK (
		state <> 'in_progress' OR lease_until > 0),
	CONSTRAINT idempotency_key_doubt_when_unknown CHECK (
		state <> 'unknown' OR doubt_at > 0)
);

CREATE INDEX idempotency_key_open ON idempotency_key (state, n) WHERE state IN ('in_progress', 'unknown');

CREATE INDEX idempotency_key_over ON idempotency_key (expires_at)
	WHERE state IN ('done', 'done_without_body', 'released');

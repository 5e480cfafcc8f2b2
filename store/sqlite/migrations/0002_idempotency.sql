-- Idempotency keys of HTTP requests; see idempotency/key for what they may be.
--
-- A row is found by id, a hash, so that index is the one place where inserts are
-- scattered. Rows themselves append.

CREATE TABLE idempotency_key (
	n           INTEGER PRIMARY KEY,
	id          BLOB    NOT NULL UNIQUE CHECK (length(id) = 16),
	key         TEXT    NOT NULL CHECK (length(key) BETWEEN 1 AND 255),
	caller      TEXT    NOT NULL, -- hash; '': anonymous
	method      TEXT    NOT NULL,
	path        TEXT    NOT NULL,
	fingerprint BLOB    NOT NULL CHECK (length(fingerprint) = 32),
	state       TEXT    NOT NULL CHECK (state IN (
		'in_progress', 'done', 'done_without_body', 'unknown', 'released')),
	atomic      INTEGER NOT NULL CHECK (atomic IN (0, 1)),
	token       INTEGER NOT NULL CHECK (token <> 0),
	doubts      INTEGER NOT NULL CHECK (doubts >= 0),
	lease_until INTEGER NOT NULL,
	doubt_at    INTEGER NOT NULL, -- 0: the outcome never was unknown
	status      INTEGER NOT NULL, -- 0: there is no answer
	resolved_by TEXT    NOT NULL,
	created_at  INTEGER NOT NULL CHECK (created_at > 0),
	updated_at  INTEGER NOT NULL,
	expires_at  INTEGER NOT NULL CHECK (expires_at > 0),
	rev         INTEGER NOT NULL CHECK (rev > 0),
	header      BLOB,
	body        BLOB,    -- last, since it can be large
	CONSTRAINT idempotency_key_answer_when_done CHECK (
		(state IN ('done', 'done_without_body')) = (status <> 0)),
	CONSTRAINT idempotency_key_body_when_done CHECK (
		state = 'done' OR (header IS NULL AND body IS NULL)),
	CONSTRAINT idempotency_key_lease_when_in_progress CHECK (
		state <> 'in_progress' OR lease_until > 0),
	CONSTRAINT idempotency_key_doubt_when_unknown CHECK (
		state <> 'unknown' OR doubt_at > 0)
) STRICT;

-- What is open is little: two short indexes in one.
CREATE INDEX idempotency_key_open ON idempotency_key (state) WHERE state IN ('in_progress', 'unknown');

-- What is over, in the order of its end: the sweep reads from the front.
CREATE INDEX idempotency_key_over ON idempotency_key (expires_at)
	WHERE state IN ('done', 'done_without_body', 'released');

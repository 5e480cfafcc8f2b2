-- Who may come in over HTTP; see package access. Only the hash of a secret is kept.

CREATE TABLE credential (
	n          BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	id         TEXT   COLLATE "C" NOT NULL UNIQUE CHECK (id <> ''),
	kind       TEXT   COLLATE "C" NOT NULL CHECK (kind IN ('token', 'session', 'login')),
	hash       BYTEA  NOT NULL CHECK (length(hash) = 32),
	name       TEXT   NOT NULL,
	role       TEXT   NOT NULL,
	parent     TEXT   COLLATE "C" NOT NULL, -- id; '': none
	created_at BIGINT NOT NULL,
	expires_at BIGINT NOT NULL, -- 0: never
	used_at    BIGINT NOT NULL
);

CREATE INDEX credential_by_kind ON credential (kind, n);
CREATE INDEX credential_by_parent ON credential (parent) WHERE parent <> '';
CREATE INDEX credential_by_end ON credential (expires_at) WHERE expires_at <> 0;

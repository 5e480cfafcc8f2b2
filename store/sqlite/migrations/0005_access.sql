-- Who may come in over HTTP; see package access. Only the hash of a secret is kept.

CREATE TABLE credential (
	n          INTEGER PRIMARY KEY,
	id         TEXT    NOT NULL UNIQUE CHECK (id <> ''),
	kind       TEXT    NOT NULL CHECK (kind = 'token' OR kind = 'session' OR kind = 'login'),
	hash       BLOB    NOT NULL CHECK (length(hash) = 32),
	name       TEXT    NOT NULL,
	role       TEXT    NOT NULL,
	parent     TEXT    NOT NULL, -- id; '': none
	created_at INTEGER NOT NULL,
	expires_at INTEGER NOT NULL, -- 0: never
	used_at    INTEGER NOT NULL
) STRICT;

CREATE INDEX credential_by_kind ON credential (kind);
CREATE INDEX credential_by_parent ON credential (parent) WHERE parent <> '';
CREATE INDEX credential_by_end ON credential (expires_at) WHERE expires_at <> 0;

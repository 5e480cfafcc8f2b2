-- Credentials of services that people connected, and secrets that they set, sealed.

CREATE TABLE account (
	kind            TEXT NOT NULL CHECK (kind IN ('account', 'secret')),
	name            TEXT NOT NULL CHECK (name <> ''),
	pack            TEXT    NOT NULL,
	style           TEXT    NOT NULL,
	subject         TEXT    NOT NULL,
	scopes          TEXT,   -- JSON
	generation      INTEGER NOT NULL CHECK (generation >= 1),
	renews          INTEGER NOT NULL CHECK (renews IN (0, 1)),
	status          TEXT    NOT NULL CHECK (status IN ('ok', 'needs_reconnect', 'revoked')),
	expires_at      INTEGER NOT NULL, -- 0: it is not known to expire
	lifetime        INTEGER NOT NULL,
	error           TEXT    NOT NULL,
	connected_by    TEXT    NOT NULL,
	connected_at    INTEGER NOT NULL,
	last_refresh_at INTEGER NOT NULL, -- 0: never
	last_used_at    INTEGER NOT NULL, -- 0: never
	sealed          BLOB,
	refreshes       TEXT,   -- JSON, newest last
	lease_host      TEXT    NOT NULL,
	lease_until     INTEGER NOT NULL,
	rev             INTEGER NOT NULL CHECK (rev >= 1),
	PRIMARY KEY (kind, name),
	CONSTRAINT account_sealed_unless_revoked CHECK ((status = 'revoked') = (sealed IS NULL))
) STRICT, WITHOUT ROWID;

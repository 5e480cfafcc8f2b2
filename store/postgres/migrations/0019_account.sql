-- oldest: 18
-- Credentials of services that people connected, and secrets that they set, sealed.

CREATE TABLE account (
	kind            TEXT COLLATE "C" NOT NULL CHECK (kind IN ('account', 'secret')),
	name            TEXT COLLATE "C" NOT NULL CHECK (name <> ''),
	pack            TEXT    NOT NULL,
	style           TEXT    NOT NULL,
	subject         TEXT    NOT NULL,
	scopes          TEXT,   -- JSON
	generation      BIGINT  NOT NULL CHECK (generation >= 1),
	renews          BOOLEAN NOT NULL,
	status          TEXT    NOT NULL CHECK (status IN ('ok', 'needs_reconnect', 'revoked')),
	expires_at      BIGINT  NOT NULL, -- 0: it is not known to expire
	lifetime        BIGINT  NOT NULL,
	error           TEXT    NOT NULL,
	connected_by    TEXT    NOT NULL,
	connected_at    BIGINT  NOT NULL,
	last_refresh_at BIGINT  NOT NULL, -- 0: never
	last_used_at    BIGINT  NOT NULL, -- 0: never
	sealed          BYTEA,
	refreshes       TEXT,   -- JSON, newest last
	lease_host      TEXT    NOT NULL,
	lease_until     BIGINT  NOT NULL,
	rev             BIGINT  NOT NULL CHECK (rev >= 1),
	PRIMARY KEY (kind, name),
	CONSTRAINT account_sealed_unless_revoked CHECK ((status = 'revoked') = (sealed IS NULL))
);

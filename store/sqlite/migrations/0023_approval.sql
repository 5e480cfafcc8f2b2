-- What a person is asked to agree to, and until when.
ALTER TABLE escalation ADD COLUMN approval TEXT; -- JSON; NULL: another kind, or asked by an older version
ALTER TABLE escalation ADD COLUMN expires_at INTEGER NOT NULL DEFAULT 0; -- 0: never

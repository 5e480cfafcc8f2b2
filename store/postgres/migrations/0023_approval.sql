-- oldest: 22
-- What a person is asked to agree to, and until when. A host of version 22 asks without an
-- end, and uses an approval also after its end.
ALTER TABLE escalation ADD COLUMN approval TEXT; -- JSON; NULL: another kind, or asked by an older version
ALTER TABLE escalation ADD COLUMN expires_at BIGINT NOT NULL DEFAULT 0; -- 0: never

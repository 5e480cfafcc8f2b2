-- oldest: 10
-- Idempotency keys know the host that was asked, and the version of their hashes.
-- Rows from before are of version 1: found by caller and key alone. The table may have
-- been brought here before, where keys have a database of their own.

ALTER TABLE idempotency_key ADD COLUMN IF NOT EXISTS version INTEGER NOT NULL DEFAULT 1 CHECK (version > 0);
ALTER TABLE idempotency_key ADD COLUMN IF NOT EXISTS host TEXT NOT NULL DEFAULT '';

-- An alias names a request without its caller; at most one live row has it.
ALTER TABLE idempotency_key ADD COLUMN IF NOT EXISTS alias BYTEA CHECK (length(alias) = 16);
CREATE UNIQUE INDEX IF NOT EXISTS idempotency_key_alias ON idempotency_key (alias) WHERE alias IS NOT NULL;

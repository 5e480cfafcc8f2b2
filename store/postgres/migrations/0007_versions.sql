-- oldest: 5
-- What each host knows, so that no migration takes away what one of them needs.

ALTER TABLE host ADD COLUMN schema INTEGER NOT NULL DEFAULT 0; -- the last migration that it has; 0: it did not say

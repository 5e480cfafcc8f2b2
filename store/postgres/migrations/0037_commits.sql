-- oldest: 26
-- How often hosts committed to a workflow: a server that says less than a host was told has lost something.
ALTER TABLE lease ADD COLUMN commits BIGINT NOT NULL DEFAULT 0 CHECK (commits >= 0);

-- oldest: 26
-- How often hosts committed to a workflow, and how often others did: a server that says less than a process was told
-- has lost something.
ALTER TABLE lease ADD COLUMN commits BIGINT NOT NULL DEFAULT 0 CHECK (commits >= 0);
ALTER TABLE lease ADD COLUMN decided BIGINT NOT NULL DEFAULT 0 CHECK (decided >= 0);

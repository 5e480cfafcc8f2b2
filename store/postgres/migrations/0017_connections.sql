-- oldest: 16
-- What each host says of its connections, so that hosts with different configurations are
-- noticed: JSON of names and hashes. Empty: the host is of an older version.

ALTER TABLE host ADD COLUMN connections TEXT NOT NULL DEFAULT '';

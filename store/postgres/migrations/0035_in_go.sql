-- oldest: 26
-- The versions written in Go whose handlers a host has, by their hashes: others leave them to it.
ALTER TABLE host ADD COLUMN in_go TEXT[] COLLATE "C" NOT NULL DEFAULT '{}';

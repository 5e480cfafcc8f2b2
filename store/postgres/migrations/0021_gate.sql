-- oldest: 20
-- What the users of a connection share about its limits; law/limit says what is in it.

CREATE TABLE gate (
	connection TEXT   COLLATE "C" PRIMARY KEY CHECK (connection <> ''),
	state      TEXT   NOT NULL, -- JSON
	rev        BIGINT NOT NULL CHECK (rev > 0)
);

-- One question about a connection, whatever the number of runs that wait for it.
ALTER TABLE escalation ADD COLUMN connection TEXT NOT NULL DEFAULT ''; -- '': not about one
ALTER TABLE escalation DROP CONSTRAINT escalation_kind_check;
ALTER TABLE escalation ADD CONSTRAINT escalation_kind_check CHECK (kind IN (
	'unknown_outcome', 'permission', 'precondition', 'retries_exhausted', 'logic', 'internal', 'approval',
	'item_attention', 'already_done', 'reconnect', 'connection'));

-- oldest: 38
-- What a person says that a call brought of which there is no record: JSON; NULL: nothing.
ALTER TABLE escalation ADD COLUMN decided_result BYTEA;

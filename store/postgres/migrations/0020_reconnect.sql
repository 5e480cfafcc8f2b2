-- oldest: 20
-- A new kind of question: an account is to be connected again. It is of no workflow, and a
-- host of an older version could not record that it told people of it.

ALTER TABLE escalation DROP CONSTRAINT escalation_kind_check;
ALTER TABLE escalation ADD CONSTRAINT escalation_kind_check CHECK (kind IN (
	'unknown_outcome', 'permission', 'precondition', 'retries_exhausted', 'logic', 'internal', 'approval',
	'item_attention', 'already_done', 'reconnect'));

-- oldest: 26
-- A new kind of question, about a tool that its server changed. Older hosts ask none.
ALTER TABLE escalation DROP CONSTRAINT escalation_kind_check;
ALTER TABLE escalation ADD CONSTRAINT escalation_kind_check CHECK (kind IN (
	'unknown_outcome', 'permission', 'precondition', 'retries_exhausted', 'logic', 'internal', 'approval',
	'item_attention', 'already_done', 'reconnect', 'connection', 'grant', 'budget', 'breaker', 'proposal',
	'tool_changed'));

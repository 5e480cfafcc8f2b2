-- oldest: 16
-- A call whose identity is to be applied once asks a person if another record has it. A host
-- of an older version would neither ask nor lock, so none may work beside this one.

CREATE INDEX mutation_by_identity ON mutation (tool, sha256(identity));

ALTER TABLE escalation DROP CONSTRAINT escalation_kind_check;
ALTER TABLE escalation ADD CONSTRAINT escalation_kind_check CHECK (kind IN (
	'unknown_outcome', 'permission', 'precondition', 'retries_exhausted', 'logic', 'internal', 'approval',
	'item_attention', 'already_done'));

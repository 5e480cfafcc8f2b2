-- oldest: 24
-- What calls count in budgets. A host of an older version would make calls beside them.
ALTER TABLE mutation ADD COLUMN spent_at BIGINT NOT NULL DEFAULT 0; -- 0: counts in none
ALTER TABLE mutation ADD COLUMN spent TEXT; -- JSON
CREATE INDEX mutation_spent ON mutation (spent_at) WHERE spent_at <> 0;

-- One question about a budget, whatever the number of runs that wait for it.
ALTER TABLE escalation ADD COLUMN budget TEXT NOT NULL DEFAULT ''; -- '': not about one
ALTER TABLE escalation DROP CONSTRAINT escalation_kind_check;
ALTER TABLE escalation ADD CONSTRAINT escalation_kind_check CHECK (kind IN (
	'unknown_outcome', 'permission', 'precondition', 'retries_exhausted', 'logic', 'internal', 'approval',
	'item_attention', 'already_done', 'reconnect', 'connection', 'grant', 'budget', 'breaker'));

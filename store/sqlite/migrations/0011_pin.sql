-- A record knows how its call was sent, and whether its outcome was ever in doubt.
-- Records from before have no pin: nothing is compared with it.

ALTER TABLE mutation ADD COLUMN pin_hash TEXT NOT NULL DEFAULT '';
ALTER TABLE mutation ADD COLUMN doubted INTEGER NOT NULL DEFAULT 0 CHECK (doubted IN (0, 1));
ALTER TABLE mutation ADD COLUMN sent_as TEXT;

UPDATE mutation SET doubted = 1 WHERE state NOT IN ('applied', 'skipped') AND EXISTS (
	SELECT 1 FROM mutation_history h WHERE h.mutation = mutation.n AND h.to_state IN ('needs_reconcile', 'indeterminate'));

-- oldest: 44
-- The calls in doubt of the items of a workflow, which each host reads whenever it reads the workflow: by their states
-- alone those of all others were looked at, too.
CREATE INDEX mutation_item_doubt ON mutation (workflow, state, n) WHERE item <> '' AND state IN ('needs_reconcile', 'indeterminate');

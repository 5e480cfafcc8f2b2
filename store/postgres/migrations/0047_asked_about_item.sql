-- oldest: 44
-- What persons answered about an item is shown with it.
CREATE INDEX escalation_by_item ON escalation (workflow, item, n) WHERE item <> '';

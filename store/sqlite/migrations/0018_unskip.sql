-- The skip of an item can be undone, unless calls of its attempt were swept: this is the last
-- attempt of which they were.

ALTER TABLE item ADD COLUMN swept INTEGER NOT NULL DEFAULT 0;

-- Nobody wrote down before whether they were.
UPDATE item SET swept = attempt WHERE status = 'skipped';

-- oldest: 18
-- The skip of an item can be undone, unless calls of its attempt were swept: this is the last
-- attempt of which they were. A host of an older version would sweep them without a word, so
-- none may work beside this one.

ALTER TABLE item ADD COLUMN swept BIGINT NOT NULL DEFAULT 0;

-- Nobody wrote down before whether they were.
UPDATE item SET swept = attempt WHERE status = 'skipped';

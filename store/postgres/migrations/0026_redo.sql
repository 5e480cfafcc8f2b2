-- oldest: 26
-- Attempts at events: each time that a person had an event done again, as a JSON array of
-- who, when and why. NULL: it is at its first attempt, as are all from before. A host of an
-- older version would reserve an event without saying at which attempt, so none may work
-- beside this one.
ALTER TABLE event ADD COLUMN redone TEXT;

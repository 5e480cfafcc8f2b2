-- Attempts at events: each time that a person had an event done again, as a JSON array of
-- who, when and why. NULL: it is at its first attempt, as are all from before.
ALTER TABLE event ADD COLUMN redone TEXT;

-- An event that is reserved leaves the index of free events at once, so that the commit which
-- consumes it need not write there.
CREATE INDEX event_free ON event (workflow, topic) WHERE status = 'pending' AND reserved_by = '';
CREATE INDEX event_reserved ON event (workflow, topic) WHERE status = 'pending' AND reserved_by <> '';
DROP INDEX event_pending;

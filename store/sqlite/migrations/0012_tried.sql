-- Chains of runs that gave events back, after a failure of their script or because a
-- person ended them: what they did is part of what became of these events. The chain
-- that has or finished an event is in event.reserved_by.

CREATE TABLE event_tried (
	event INTEGER NOT NULL,
	chain TEXT    NOT NULL CHECK (chain <> ''),
	PRIMARY KEY (event, chain)
) STRICT, WITHOUT ROWID;

CREATE INDEX event_tried_by_chain ON event_tried (chain);

-- Of runs from before it is known on which event a consumer began, and of runs that a
-- person ended, what they had.
INSERT INTO event_tried (event, chain)
SELECT e.seq, r.chain FROM run r CROSS JOIN event e
    ON e.workflow = r.workflow AND e.topic = r.trigger_topic AND e.message_id = r.trigger_message
 WHERE r.kind = 'consumer' AND r.status IN ('failed:logic', 'aborted') AND r.trigger_topic <> '' AND e.reserved_by <> r.chain
UNION
SELECT e.seq, r.chain FROM run r, json_each(r.reservations) v, json_each(v.value, '$.ids') m CROSS JOIN event e
    ON e.workflow = r.workflow AND e.topic = json_extract(v.value, '$.topic') AND e.message_id = m.value
 WHERE r.kind = 'consumer' AND r.status = 'aborted' AND r.reservations IS NOT NULL AND e.reserved_by <> r.chain;

-- oldest: 12
-- Chains of runs that gave events back, after a failure of their script or because a
-- person ended them: what they did is part of what became of these events. The chain
-- that has or finished an event is in event.reserved_by.
--
-- A run that failed by its script keeps its reservations. Older programs would take them
-- for events that the run still has, so none works beside this.

CREATE TABLE event_tried (
	workflow TEXT COLLATE "C" NOT NULL,
	topic    TEXT COLLATE "C" NOT NULL,
	event    BIGINT NOT NULL, -- its n
	chain    TEXT COLLATE "C" NOT NULL CHECK (chain <> ''),
	PRIMARY KEY (workflow, topic, event, chain)
);

CREATE INDEX event_tried_by_chain ON event_tried (chain);

-- Of runs from before it is known on which event a consumer began, and of runs that a
-- person ended, what they had.
INSERT INTO event_tried (workflow, topic, event, chain)
SELECT e.workflow, e.topic, e.n, r.chain FROM run r JOIN event e
    ON e.workflow = r.workflow AND e.topic = r.trigger_topic AND e.message_id = r.trigger_message
 WHERE r.kind = 'consumer' AND r.status IN ('failed:logic', 'aborted') AND r.trigger_topic <> '' AND e.reserved_by <> r.chain
UNION
SELECT e.workflow, e.topic, e.n, r.chain
  FROM (SELECT * FROM run WHERE kind = 'consumer' AND status = 'aborted' AND reservations IS NOT NULL) r,
       json_to_recordset(r.reservations::json) AS l (topic TEXT, ids JSON),
       json_array_elements_text(CASE json_typeof(l.ids) WHEN 'array' THEN l.ids ELSE '[]' END) AS m (message_id)
  JOIN event e ON true
 WHERE e.workflow = r.workflow AND e.topic = l.topic AND e.message_id = m.message_id AND e.reserved_by <> r.chain;

-- Topics to which no consumer of the version in force subscribes: their free events count
-- for no input. Nobody will take them, so nothing waits for them.

ALTER TABLE topic ADD COLUMN unread INTEGER NOT NULL DEFAULT 0 CHECK (unread IN (0, 1));

UPDATE topic SET unread = 1
 WHERE EXISTS (SELECT 1 FROM workflow w WHERE w.name = topic.workflow)
   AND NOT EXISTS (SELECT 1 FROM workflow w JOIN deployment d ON d.workflow = w.name AND d.major = w.major AND d.minor = w.minor,
                          json_each(d.definition, '$.handlers') h, json_each(h.value, '$.subscribe') s
                    WHERE w.name = topic.workflow AND s.value = topic.name);

UPDATE input SET unfinished = unfinished - c.n, status = CASE WHEN status = 'pending' AND unfinished = c.n THEN 'done' ELSE status END
  FROM (SELECT j.value AS id, count(*) AS n FROM topic t CROSS JOIN event e INDEXED BY event_pending
            ON e.workflow = t.workflow AND e.topic = t.name AND e.reserved_by = '' AND e.status = 'pending', json_each(e.caused_by) j
         WHERE t.unread = 1 GROUP BY j.value) c
 WHERE input.id = c.id;

-- oldest: 13
-- Topics to which no consumer of the version in force subscribes: their free events count
-- for no input. Nobody will take them, so nothing waits for them. Older programs would
-- count them, so none works beside this.

ALTER TABLE topic ADD COLUMN unread BOOLEAN NOT NULL DEFAULT false;

UPDATE topic SET unread = true
 WHERE EXISTS (SELECT 1 FROM workflow w WHERE w.name = topic.workflow)
   AND NOT EXISTS (SELECT 1 FROM workflow w JOIN deployment d ON d.workflow = w.name AND d.major = w.major AND d.minor = w.minor
                     CROSS JOIN LATERAL (SELECT replace(replace(d.definition, '\u001a', '\u001a1a'), '\u0000', '\u001a00')::json AS value) v, -- as texts are stored
                          json_array_elements(CASE json_typeof(v.value -> 'handlers') WHEN 'array' THEN v.value -> 'handlers' ELSE '[]' END) h,
                          json_array_elements_text(CASE json_typeof(h.value -> 'subscribe') WHEN 'array' THEN h.value -> 'subscribe' ELSE '[]' END) s
                    WHERE w.name = topic.workflow AND s.value = topic.name);

UPDATE input SET unfinished = unfinished - c.n, status = CASE WHEN status = 'pending' AND unfinished = c.n THEN 'done' ELSE status END
  FROM (SELECT j.id, count(*) AS n FROM topic t JOIN event e ON e.workflow = t.workflow AND e.topic = t.name AND e.reserved_by = '' AND e.status = 'pending',
               json_array_elements_text(e.caused_by::json) AS j (id)
         WHERE t.unread GROUP BY j.id) c
 WHERE input.id = c.id;

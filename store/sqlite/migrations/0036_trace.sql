-- Parts of traces are numbered after their run: its n, then 20 bits for the part. So no index
-- finds those of a run, and none those that are old: numbers are in the order of time. A run that
-- is deleted takes its parts along (sweep.go).
CREATE TABLE run_part (
	n    INTEGER PRIMARY KEY,
	at   INTEGER NOT NULL,
	data BLOB    NOT NULL
) STRICT;
INSERT INTO run_part
SELECT (r.n << 20) + (SELECT count(*) FROM run_trace o WHERE o.run = t.run AND o.n < t.n), t.at, t.data
  FROM run r CROSS JOIN run_trace t INDEXED BY run_trace_by_run ON t.run = r.id ORDER BY r.n, t.n;
DROP TABLE run_trace;
ALTER TABLE run_part RENAME TO run_trace;

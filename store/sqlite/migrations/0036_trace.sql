-- Parts of traces name their run by its n, and are numbered in the order of time: old ones are
-- found without an index. A run that is deleted takes its parts along (sweep.go).
CREATE TABLE run_part (
	n    INTEGER PRIMARY KEY,
	run  INTEGER NOT NULL, -- its n
	at   INTEGER NOT NULL,
	data BLOB    NOT NULL
) STRICT;
INSERT INTO run_part SELECT t.n, r.n, t.at, t.data FROM run_trace t CROSS JOIN run r ON r.id = t.run ORDER BY t.n;
DROP TABLE run_trace;
ALTER TABLE run_part RENAME TO run_trace;
CREATE INDEX run_trace_by_run ON run_trace (run);

-- What runs saw: their reads, packed.
CREATE TABLE run_trace (
	n    INTEGER PRIMARY KEY,
	run  TEXT    NOT NULL REFERENCES run (id),
	at   INTEGER NOT NULL,
	data BLOB    NOT NULL
) STRICT;
CREATE INDEX run_trace_by_run ON run_trace (run);
CREATE INDEX run_trace_by_at ON run_trace (at);

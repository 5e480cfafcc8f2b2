-- oldest: 24
-- What runs saw: their reads, packed.
CREATE TABLE run_trace (
	workflow TEXT COLLATE "C" NOT NULL,
	run      TEXT COLLATE "C" NOT NULL,
	n        BIGINT NOT NULL,
	at       BIGINT NOT NULL,
	data     BYTEA  NOT NULL,
	PRIMARY KEY (workflow, run, n)
);
CREATE INDEX run_trace_by_at ON run_trace (at);

-- A run that committed and found nothing to do.
ALTER TABLE run ADD COLUMN idle INTEGER NOT NULL DEFAULT 0 CHECK (idle = 0 OR idle = 1 AND status = 'committed');

-- When runs ended: what is counted once a minute.
CREATE INDEX run_by_end ON run (updated_at) WHERE closed = 1;

-- What workflows did over time.
CREATE TABLE counter (
	step      TEXT    NOT NULL CHECK (step = 'minute' OR step = 'hour' OR step = 'day'),
	at        INTEGER NOT NULL,
	workflow  TEXT    NOT NULL,
	committed INTEGER NOT NULL,
	idle      INTEGER NOT NULL,
	failed    INTEGER NOT NULL,
	waiting   INTEGER NOT NULL,
	asked     INTEGER NOT NULL,
	took      TEXT, -- JSON
	PRIMARY KEY (step, at, workflow)
) STRICT, WITHOUT ROWID;

-- oldest: 26
-- A run that committed and found nothing to do.
ALTER TABLE run ADD COLUMN idle BOOLEAN NOT NULL DEFAULT false CHECK (NOT idle OR status = 'committed');

-- When runs ended: what is counted once a minute.
CREATE INDEX run_by_end ON run (updated_at) WHERE closed;

-- What workflows did over time.
CREATE TABLE counter (
	step      TEXT COLLATE "C" NOT NULL CHECK (step IN ('minute', 'hour', 'day')),
	at        BIGINT NOT NULL,
	workflow  TEXT COLLATE "C" NOT NULL,
	committed BIGINT NOT NULL,
	idle      BIGINT NOT NULL,
	failed    BIGINT NOT NULL,
	waiting   BIGINT NOT NULL,
	asked     BIGINT NOT NULL,
	took      TEXT, -- JSON
	PRIMARY KEY (step, at, workflow)
);

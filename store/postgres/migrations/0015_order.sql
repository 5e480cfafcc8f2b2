-- oldest: 15
-- Lanes: a workflow may have several unfinished runs, each in a lane of its own. A
-- program that does not know them would begin two runs of one lane.

ALTER TABLE run ADD COLUMN lane TEXT NOT NULL DEFAULT '';

DROP INDEX run_open;
CREATE UNIQUE INDEX run_open ON run (workflow, lane) WHERE NOT closed;

-- Decisions about workflows, and about their producers and jobs: who paused one, resumed it, had it run now, or changed a checkpoint. Which
-- kinds there are is for keep.Decided.Validate.
CREATE TABLE decision_of_any (
	n        INTEGER PRIMARY KEY,
	workflow TEXT    NOT NULL,
	kind     TEXT    NOT NULL CHECK (kind <> ''),
	topic    TEXT    NOT NULL,
	id       TEXT    NOT NULL CHECK (id <> ''),
	at       INTEGER NOT NULL,
	action   TEXT    NOT NULL CHECK (action <> ''),
	who      TEXT    NOT NULL,
	source   TEXT    NOT NULL,
	note     TEXT    NOT NULL
) STRICT;
INSERT INTO decision_of_any SELECT n, workflow, kind, topic, id, at, action, who, source, note FROM decision ORDER BY n;
DROP TABLE decision;
ALTER TABLE decision_of_any RENAME TO decision;
CREATE INDEX decision_by_subject ON decision (workflow, id, kind, topic);

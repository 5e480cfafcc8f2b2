-- What persons decide beside questions: who skipped an input, an event or an item, took it up again, or had an item done again (keep.Decided).
CREATE TABLE decision (
	n        INTEGER PRIMARY KEY,
	workflow TEXT    NOT NULL,
	kind     TEXT    NOT NULL CHECK (kind = 'input' OR kind = 'event' OR kind = 'item'),
	topic    TEXT    NOT NULL,
	id       TEXT    NOT NULL CHECK (id <> ''),
	at       INTEGER NOT NULL,
	action   TEXT    NOT NULL CHECK (action <> ''),
	who      TEXT    NOT NULL,
	source   TEXT    NOT NULL,
	note     TEXT    NOT NULL
) STRICT;

CREATE INDEX decision_by_subject ON decision (workflow, id, kind, topic);

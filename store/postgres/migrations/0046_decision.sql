-- oldest: 44
-- Hosts of before schema 44 look at no calls that set something, as those of today do (keep.Setting): none may work beside this one.
-- What persons decide beside questions: who skipped an input, an event or an item, took it up again, or had an item done again (keep.Decided).
CREATE TABLE decision (
	workflow text   NOT NULL,
	n        bigint NOT NULL,
	kind     text   NOT NULL CHECK (kind IN ('input', 'event', 'item')),
	topic    text   NOT NULL,
	id       text   NOT NULL CHECK (id <> ''),
	at       bigint NOT NULL,
	action   text   NOT NULL CHECK (action <> ''),
	who      text   NOT NULL,
	source   text   NOT NULL,
	note     text   NOT NULL,
	PRIMARY KEY (workflow, n)
);
CREATE INDEX decision_by_subject ON decision (workflow, id, kind, topic, n);

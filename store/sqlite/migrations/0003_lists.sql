-- What people look at: counts, and search in titles.

-- How many rows there are, by what lists filter most. Only the making of a row is
-- counted: a row changes its state several times, and each count would cost as much
-- as the change. The states that are not the usual one are counted by index when
-- somebody asks; the usual one is what is left.
CREATE TABLE tally (
	noun     TEXT    NOT NULL,
	workflow TEXT    NOT NULL,
	name     TEXT    NOT NULL, -- handler of a run, tool of a mutation; else ''
	rows     INTEGER NOT NULL CHECK (rows >= 0),
	PRIMARY KEY (noun, workflow, name)
) STRICT, WITHOUT ROWID;

INSERT INTO tally SELECT 'run', workflow, handler, count(*) FROM run GROUP BY workflow, handler;
INSERT INTO tally SELECT 'mutation', workflow, tool, count(*) FROM mutation GROUP BY workflow, tool;
INSERT INTO tally SELECT 'input', workflow, '', count(*) FROM input GROUP BY workflow;
INSERT INTO tally SELECT 'item', workflow, '', count(*) FROM item GROUP BY workflow;

CREATE TRIGGER run_tally AFTER INSERT ON run BEGIN
	INSERT INTO tally VALUES ('run', NEW.workflow, NEW.handler, 1) ON CONFLICT DO UPDATE SET rows = rows + 1;
END;
CREATE TRIGGER mutation_tally AFTER INSERT ON mutation BEGIN
	INSERT INTO tally VALUES ('mutation', NEW.workflow, NEW.tool, 1) ON CONFLICT DO UPDATE SET rows = rows + 1;
END;
CREATE TRIGGER input_tally AFTER INSERT ON input BEGIN
	INSERT INTO tally VALUES ('input', NEW.workflow, '', 1) ON CONFLICT DO UPDATE SET rows = rows + 1;
END;
CREATE TRIGGER item_tally AFTER INSERT ON item BEGIN
	INSERT INTO tally VALUES ('item', NEW.workflow, '', 1) ON CONFLICT DO UPDATE SET rows = rows + 1;
END;

-- The states that are not usual, to count those of a workflow without a look at
-- the rows. What is in flight is little, and each call would pay for its place here.
CREATE INDEX run_unusual ON run (status, workflow, handler) WHERE status NOT IN ('active', 'committed');
CREATE INDEX mutation_unusual ON mutation (state, workflow, tool) WHERE state NOT IN ('applied', 'in_flight');
CREATE INDEX escalation_by_kind ON escalation (kind, workflow);

-- Search. The words of a title are those of keep.Words, with a space between; the
-- tokenizer takes them apart there and nowhere else. Nothing but the words is kept.
--
-- Titles are added many at once, since each addition by itself costs as much as a
-- commit. Until then they are looked through: rows over title_index.upto, and
-- those in title_changed. So a search misses nothing, and nobody waits for it.
CREATE VIRTUAL TABLE run_words USING fts5 (words, content = '', contentless_delete = 1, detail = none, tokenize = 'ascii');
CREATE VIRTUAL TABLE mutation_words USING fts5 (words, content = '', contentless_delete = 1, detail = none, tokenize = 'ascii');
CREATE VIRTUAL TABLE input_words USING fts5 (words, content = '', contentless_delete = 1, detail = none, tokenize = 'ascii');
CREATE VIRTUAL TABLE item_words USING fts5 (words, content = '', contentless_delete = 1, detail = none, tokenize = 'ascii');

CREATE TABLE title_index (
	noun TEXT    PRIMARY KEY,
	upto INTEGER NOT NULL -- rows up to this n have been added
) STRICT, WITHOUT ROWID;

INSERT INTO title_index VALUES ('run', 0), ('mutation', 0), ('input', 0), ('item', 0);

CREATE TABLE title_changed (
	noun TEXT    NOT NULL,
	n    INTEGER NOT NULL,
	PRIMARY KEY (noun, n)
) STRICT, WITHOUT ROWID;

-- An input keeps its first title.
CREATE TRIGGER run_title AFTER UPDATE OF title ON run
	WHEN OLD.title <> NEW.title AND OLD.n <= (SELECT upto FROM title_index WHERE noun = 'run')
BEGIN
	INSERT INTO title_changed VALUES ('run', OLD.n) ON CONFLICT DO NOTHING;
END;
CREATE TRIGGER mutation_title AFTER UPDATE OF title ON mutation
	WHEN OLD.title <> NEW.title AND OLD.n <= (SELECT upto FROM title_index WHERE noun = 'mutation')
BEGIN
	INSERT INTO title_changed VALUES ('mutation', OLD.n) ON CONFLICT DO NOTHING;
END;
CREATE TRIGGER item_title AFTER UPDATE OF title ON item
	WHEN OLD.title <> NEW.title AND OLD.n <= (SELECT upto FROM title_index WHERE noun = 'item')
BEGIN
	INSERT INTO title_changed VALUES ('item', OLD.n) ON CONFLICT DO NOTHING;
END;

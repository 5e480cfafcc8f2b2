-- Search by the database: FTS5 takes the place of sets of rows by word.
--
-- Package law/search says which words a record has. An index has them with spaces
-- between, and the marks of the record's workflow and name; the tokenizer separates at
-- these spaces and nowhere else, since words have no other ASCII but letters and digits.
--
-- Records are added many at a time: one by itself costs as much as a commit. Until then a
-- search reads them: rows over search_index.upto, and those in search_changed. So an
-- index is part of the same file and never decides alone what is found.

DROP TRIGGER run_title;
DROP TRIGGER mutation_title;
DROP TRIGGER item_title;
DROP TRIGGER run_swept;
DROP TRIGGER mutation_swept;
DROP TABLE title_word;
DROP TABLE title_changed;
DROP TABLE title_index;

CREATE VIRTUAL TABLE run_search USING fts5 (words, content = '', contentless_delete = 1, detail = none, tokenize = 'ascii');
CREATE VIRTUAL TABLE mutation_search USING fts5 (words, content = '', contentless_delete = 1, detail = none, tokenize = 'ascii');
CREATE VIRTUAL TABLE input_search USING fts5 (words, content = '', contentless_delete = 1, detail = none, tokenize = 'ascii');
CREATE VIRTUAL TABLE item_search USING fts5 (words, content = '', contentless_delete = 1, detail = none, tokenize = 'ascii');
CREATE VIRTUAL TABLE event_search USING fts5 (words, content = '', contentless_delete = 1, detail = none, tokenize = 'ascii');

CREATE TABLE search_index (
	noun TEXT    PRIMARY KEY,
	upto INTEGER NOT NULL -- rows up to this n (event: seq) are in the index
) STRICT, WITHOUT ROWID;

INSERT INTO search_index VALUES ('run', 0), ('mutation', 0), ('input', 0), ('item', 0), ('event', 0);

-- Rows whose words are not those in the index any more.
CREATE TABLE search_changed (
	noun TEXT    NOT NULL,
	n    INTEGER NOT NULL,
	PRIMARY KEY (noun, n)
) STRICT, WITHOUT ROWID;

-- An input keeps its first title, and the name of an event never changes.
CREATE TRIGGER run_searched AFTER UPDATE OF title, trigger_message, reservations ON run
	WHEN (OLD.title <> NEW.title OR OLD.trigger_message <> NEW.trigger_message OR OLD.reservations IS NOT NEW.reservations)
		AND OLD.n <= (SELECT upto FROM search_index WHERE noun = 'run')
BEGIN
	INSERT INTO search_changed VALUES ('run', OLD.n) ON CONFLICT DO NOTHING;
END;
CREATE TRIGGER mutation_searched AFTER UPDATE OF title, target, identity ON mutation
	WHEN (OLD.title <> NEW.title OR OLD.target <> NEW.target OR OLD.identity IS NOT NEW.identity)
		AND OLD.n <= (SELECT upto FROM search_index WHERE noun = 'mutation')
BEGIN
	INSERT INTO search_changed VALUES ('mutation', OLD.n) ON CONFLICT DO NOTHING;
END;
CREATE TRIGGER item_searched AFTER UPDATE OF title ON item
	WHEN OLD.title <> NEW.title AND OLD.n <= (SELECT upto FROM search_index WHERE noun = 'item')
BEGIN
	INSERT INTO search_changed VALUES ('item', OLD.n) ON CONFLICT DO NOTHING;
END;

-- What retention deletes is counted and found no more.
CREATE TRIGGER run_swept AFTER DELETE ON run BEGIN
	UPDATE tally SET rows = rows - 1 WHERE noun = 'run' AND workflow = OLD.workflow AND name = OLD.handler;
	DELETE FROM run_search WHERE rowid = OLD.n;
	DELETE FROM search_changed WHERE noun = 'run' AND n = OLD.n;
END;
CREATE TRIGGER mutation_swept AFTER DELETE ON mutation BEGIN
	UPDATE tally SET rows = rows - 1 WHERE noun = 'mutation' AND workflow = OLD.workflow AND name = OLD.tool;
	DELETE FROM mutation_search WHERE rowid = OLD.n;
	DELETE FROM search_changed WHERE noun = 'mutation' AND n = OLD.n;
END;

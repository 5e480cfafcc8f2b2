-- Search that does not grow with the number of titles that have a word.
--
-- The rows of a noun are in buckets of 4,096, and a word of a bucket has a set of
-- them: a bit for each row if they are many, else a list. So what several words
-- have in common is an AND of a few hundred bytes for each bucket, and counting is
-- counting bits. New titles change the newest bucket only, so that inserts stay in
-- one place. Beside the words of its title a row has marks, which begin with a
-- space: its workflow (" w"), and the handler of a run or the tool of a mutation
-- (" n").
--
-- As before, titles are added many at once, and looked through until then.

DROP TABLE run_words;
DROP TABLE mutation_words;
DROP TABLE input_words;
DROP TABLE item_words;
DROP TRIGGER run_title;
DROP TRIGGER mutation_title;
DROP TRIGGER item_title;
DROP TABLE title_changed;
UPDATE title_index SET upto = 0;

CREATE TABLE title_word (
	noun   INTEGER NOT NULL CHECK (noun BETWEEN 1 AND 4), -- run, mutation, input, item
	bucket INTEGER NOT NULL, -- n >> 12
	word   TEXT    NOT NULL CHECK (word <> ''),
	rows   BLOB    NOT NULL, -- 512 bytes: bit n & 4095; fewer: these, two bytes each
	PRIMARY KEY (noun, bucket, word)
) STRICT, WITHOUT ROWID;

-- Rows of which the index knows another title, or that are gone, and what it knows.
CREATE TABLE title_changed (
	noun     TEXT    NOT NULL,
	n        INTEGER NOT NULL,
	title    TEXT    NOT NULL,
	workflow TEXT    NOT NULL,
	name     TEXT    NOT NULL, -- handler of a run, tool of a mutation; else ''
	PRIMARY KEY (noun, n)
) STRICT, WITHOUT ROWID;

-- An input keeps its first title.
CREATE TRIGGER run_title AFTER UPDATE OF title ON run
	WHEN OLD.title <> NEW.title AND OLD.n <= (SELECT upto FROM title_index WHERE noun = 'run')
BEGIN
	INSERT INTO title_changed VALUES ('run', OLD.n, OLD.title, OLD.workflow, OLD.handler) ON CONFLICT DO NOTHING;
END;
CREATE TRIGGER mutation_title AFTER UPDATE OF title ON mutation
	WHEN OLD.title <> NEW.title AND OLD.n <= (SELECT upto FROM title_index WHERE noun = 'mutation')
BEGIN
	INSERT INTO title_changed VALUES ('mutation', OLD.n, OLD.title, OLD.workflow, OLD.tool) ON CONFLICT DO NOTHING;
END;
CREATE TRIGGER item_title AFTER UPDATE OF title ON item
	WHEN OLD.title <> NEW.title AND OLD.n <= (SELECT upto FROM title_index WHERE noun = 'item')
BEGIN
	INSERT INTO title_changed VALUES ('item', OLD.n, OLD.title, OLD.workflow, '') ON CONFLICT DO NOTHING;
END;

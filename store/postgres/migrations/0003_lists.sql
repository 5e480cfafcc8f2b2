-- What people look at: counts, and search in titles.

-- How many rows there are, by what lists filter most. Only the making of a row is
-- counted: a row changes its state several times. The states that are not the usual
-- one are counted by index when somebody asks; the usual one is what is left.
CREATE TABLE tally (
	workflow TEXT   COLLATE "C" NOT NULL,
	noun     TEXT   COLLATE "C" NOT NULL,
	name     TEXT   COLLATE "C" NOT NULL, -- handler of a run, tool of a mutation; else ''
	rows     BIGINT NOT NULL CHECK (rows >= 0),
	PRIMARY KEY (workflow, noun, name)
) WITH (fillfactor = 50);

INSERT INTO tally SELECT workflow, 'run', handler, count(*) FROM run GROUP BY workflow, handler;
INSERT INTO tally SELECT workflow, 'mutation', tool, count(*) FROM mutation GROUP BY workflow, tool;
INSERT INTO tally SELECT workflow, 'input', '', count(*) FROM input GROUP BY workflow;
INSERT INTO tally SELECT workflow, 'item', '', count(*) FROM item GROUP BY workflow;

-- Search. The words of a title are those of keep.Words: Keep takes titles apart, and
-- Postgres only keeps the words. The index takes a title in without looking for its
-- place, and sorts many in at once (fastupdate).
ALTER TABLE run ADD COLUMN words TSVECTOR;
ALTER TABLE mutation ADD COLUMN words TSVECTOR;
ALTER TABLE input ADD COLUMN words TSVECTOR;
ALTER TABLE item ADD COLUMN words TSVECTOR;

CREATE INDEX run_words ON run USING gin (words);
CREATE INDEX mutation_words ON mutation USING gin (words);
CREATE INDEX input_words ON input USING gin (words);
CREATE INDEX item_words ON item USING gin (words);

-- oldest: 9
-- Search in all names by which people know a record: package law/search says which words
-- it has. Before, only those of titles were kept. Go fills the columns and makes the
-- indexes after this script, a thousand rows at a time, since Go takes texts apart.
--
-- Programs that do not know this would write rows that nothing finds, so all hosts of an
-- older version must have stopped.
ALTER TABLE event ADD COLUMN words TSVECTOR;

DROP INDEX run_words;
DROP INDEX mutation_words;
DROP INDEX input_words;
DROP INDEX item_words;

-- The words of the indexes of searches: which ones begin with what somebody looks for.
CREATE VIRTUAL TABLE run_words USING fts5vocab('run_search', 'instance');
CREATE VIRTUAL TABLE mutation_words USING fts5vocab('mutation_search', 'instance');
CREATE VIRTUAL TABLE input_words USING fts5vocab('input_search', 'instance');
CREATE VIRTUAL TABLE item_words USING fts5vocab('item_search', 'instance');
CREATE VIRTUAL TABLE event_words USING fts5vocab('event_search', 'instance');

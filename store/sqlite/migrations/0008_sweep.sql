-- Retention: chains of runs that are over and old are deleted (keep.Sweep). What it
-- deletes is counted and searched no more.

-- A run may be deleted when none of another chain retries it.
CREATE INDEX run_by_retry ON run (retry_of) WHERE retry_of <> '';

CREATE TRIGGER run_swept AFTER DELETE ON run BEGIN
	UPDATE tally SET rows = rows - 1 WHERE noun = 'run' AND workflow = OLD.workflow AND name = OLD.handler;
	INSERT INTO title_changed SELECT 'run', OLD.n, OLD.title, OLD.workflow, OLD.handler
	 WHERE OLD.title <> '' AND OLD.n <= (SELECT upto FROM title_index WHERE noun = 'run') ON CONFLICT DO NOTHING;
END;
CREATE TRIGGER mutation_swept AFTER DELETE ON mutation BEGIN
	UPDATE tally SET rows = rows - 1 WHERE noun = 'mutation' AND workflow = OLD.workflow AND name = OLD.tool;
	INSERT INTO title_changed SELECT 'mutation', OLD.n, OLD.title, OLD.workflow, OLD.tool
	 WHERE OLD.title <> '' AND OLD.n <= (SELECT upto FROM title_index WHERE noun = 'mutation') ON CONFLICT DO NOTHING;
END;

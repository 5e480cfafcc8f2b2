-- A call that sets something also waits for one that failed after a doubt at an earlier time than it was made: the clock was set back in between (keep.Setting).
DROP INDEX mutation_failed_after_doubt;
CREATE INDEX mutation_failed_after_doubt ON mutation (max(created_at, updated_at)) WHERE state = 'failed' AND doubted = 1;

-- oldest: 38
-- A call that sets something waits for those that failed after a doubt at a later time than it is now (keep.Setting).
CREATE INDEX mutation_failed_after_doubt ON mutation (tool, sha256(identity), updated_at) WHERE state = 'failed' AND doubted;

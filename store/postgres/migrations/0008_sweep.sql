-- oldest: 5
-- Retention: chains of runs that are over and old are deleted (keep.Sweep).

-- A run may be deleted when none of another chain retries it.
CREATE INDEX run_by_retry ON run (retry_of) WHERE retry_of <> '';

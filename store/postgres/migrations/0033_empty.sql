-- oldest: 26
-- Runs that found nothing to do, which are not kept as long as others.
CREATE INDEX run_empty ON run (workflow, n) WHERE idle AND chain = id;

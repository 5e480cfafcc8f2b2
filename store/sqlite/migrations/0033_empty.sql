-- Runs that found nothing to do, which are not kept as long as others.
CREATE INDEX run_empty ON run (workflow) WHERE idle = 1 AND chain = id;

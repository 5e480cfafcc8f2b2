-- oldest: 38
-- Who failed is counted again and again (law/count), without a look at those who committed.
CREATE INDEX run_failed ON run (updated_at) WHERE closed AND (status IN ('failed:logic', 'failed:internal', 'crashed') OR status = 'aborted' AND phase = 'mutating' AND mutation <> '');

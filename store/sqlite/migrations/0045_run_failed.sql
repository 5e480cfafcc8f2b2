-- What ended is counted again and again (law/count): who committed when, and in how long, without a look at the runs, and who failed without those who committed.
DROP INDEX run_by_end;
CREATE INDEX run_by_end ON run (updated_at, workflow, created_at, idle) WHERE closed = 1 AND status = 'committed';
CREATE INDEX run_failed ON run (updated_at) WHERE closed = 1 AND (status IN ('failed:logic', 'failed:internal', 'crashed') OR status = 'aborted' AND phase = 'mutating' AND mutation <> '');

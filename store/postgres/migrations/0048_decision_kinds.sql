-- oldest: 44
-- Decisions about workflows, and about their producers and jobs: who paused one, resumed it, had it run now, or changed a checkpoint. Which
-- kinds there are is for keep.Decided.Validate.
ALTER TABLE decision DROP CONSTRAINT decision_kind_check;
ALTER TABLE decision ADD CONSTRAINT decision_kind_check CHECK (kind <> '');

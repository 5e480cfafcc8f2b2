-- oldest: 26
-- Why a workflow is paused, in the words of who paused it.
ALTER TABLE workflow ADD COLUMN pause_note TEXT NOT NULL DEFAULT '';

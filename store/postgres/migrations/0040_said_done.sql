-- oldest: 38
-- What persons say of calls of which there is no record is found by the item of the call.
CREATE INDEX escalation_said_done ON escalation (workflow, item, n) WHERE decision = 'treat-as-done' AND kind = 'approval';

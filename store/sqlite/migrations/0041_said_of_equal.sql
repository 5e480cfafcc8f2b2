-- What persons say of an equal call is found by the item of the call, too.
DROP INDEX escalation_said_done;
CREATE INDEX escalation_said_done ON escalation (workflow, item) WHERE decision IN ('treat-as-done', 'do-again') AND kind IN ('approval', 'already_done');

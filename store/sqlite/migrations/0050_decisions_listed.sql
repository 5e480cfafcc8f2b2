-- What people decided is listed, newest first: all of it, of one workflow, or of none (tokens, hosts, accounts, secrets).
CREATE INDEX decision_of_workflow ON decision (workflow);

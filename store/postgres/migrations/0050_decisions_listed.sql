-- oldest: 44
-- What people decided is listed, newest first: all of it, of one workflow, or of none (tokens, hosts, accounts, secrets).
CREATE INDEX decision_newest ON decision (n, workflow);

-- The tables of invoices.db.

CREATE TABLE invoices (
	id          TEXT PRIMARY KEY, -- Message-ID, or the name of the file if there is none
	file        TEXT NOT NULL,
	sender      TEXT NOT NULL,
	subject     TEXT NOT NULL,
	number      TEXT NOT NULL,
	amount      TEXT,             -- decimal, such as 1250.00
	currency    TEXT,             -- ISO 4217
	due         TEXT,             -- ISO date
	attachments TEXT NOT NULL,
	state       TEXT NOT NULL CHECK (state IN ('ready', 'check')),
	warnings    TEXT NOT NULL,
	CHECK (state = 'check' OR (amount IS NOT NULL AND currency IS NOT NULL AND due IS NOT NULL))
) STRICT;

-- Where Keep notes which changes were made, in the transaction that makes them.
-- Keep would make this table itself, but a database should not have to allow that.
CREATE TABLE keep_mutations (
	token  TEXT PRIMARY KEY,
	tool   TEXT NOT NULL,
	result TEXT,
	at     TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ', 'now'))
);

-- The table of invoices.db.
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

-- The tables of invoices.db, and what is in them at first.

CREATE TABLE invoices (
	id       INTEGER PRIMARY KEY,
	number   TEXT NOT NULL UNIQUE,
	customer TEXT NOT NULL,
	amount   TEXT NOT NULL,
	due      TEXT NOT NULL,              -- ISO date
	stage    INTEGER NOT NULL,           -- 1: a reminder; 2: a reminder and a notice
	paid     INTEGER NOT NULL DEFAULT 0,
	reminded INTEGER NOT NULL DEFAULT 0
) STRICT;

INSERT INTO invoices (number, customer, amount, due, stage, paid) VALUES
	('R-101', 'ada',   '120.00 EUR', '2026-10-01', 2, 0),
	('R-102', 'ada',    '35.50 EUR', '2026-11-02', 1, 0),
	('R-103', 'grace', '980.00 EUR', '2026-10-20', 1, 1),
	('R-104', 'grace',  '12.00 EUR', '2026-11-05', 1, 0),
	('R-105', 'linus', '640.00 EUR', '2026-09-12', 2, 0);

-- Where Keep notes which changes were made, in the transaction that makes them.
CREATE TABLE keep_mutations (
	token  TEXT PRIMARY KEY,
	tool   TEXT NOT NULL,
	result TEXT,
	at     TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ', 'now'))
);

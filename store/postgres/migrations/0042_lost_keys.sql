-- oldest: 38
-- When a process found that the server lacks keys which it said are stored. While there is a row no key is
-- taken. The table may have been brought here before, where keys have a database of their own.
CREATE TABLE IF NOT EXISTS idempotency_lost (at BIGINT PRIMARY KEY);

-- oldest: 38
-- What a budget's calls count is summed for pieces of time, so that a call need not read all others of its window.
-- A record is in the sums if summed_at is its spent_at, and is settled then; see commit.SumLevels. Older hosts read all,
-- and sum nothing.
ALTER TABLE mutation ADD COLUMN summed_at BIGINT NOT NULL DEFAULT 0;
CREATE INDEX mutation_unsummed ON mutation (spent_at) WHERE spent_at <> 0 AND summed_at <> spent_at AND state <> 'failed';

CREATE TABLE spent_sum (
	budget TEXT COLLATE "C" NOT NULL,
	level  BIGINT NOT NULL, -- a piece has 1<<level milliseconds
	piece  BIGINT NOT NULL, -- spent_at >> level
	high   BIGINT NOT NULL, -- of amount >> 30
	low    BIGINT NOT NULL, -- of the rest
	PRIMARY KEY (budget, level, piece)
);
CREATE INDEX spent_sum_empty ON spent_sum (high) WHERE high = 0 AND low = 0;

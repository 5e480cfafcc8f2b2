package idempotency

import "time"

// An Outcome says what became of a guarded request.
type Outcome string

const (
	// OutcomeExecuted means that the handler ran and its answer was kept.
	OutcomeExecuted Outcome = "executed"

	// OutcomeReleased means that the handler ran and the key is free again.
	OutcomeReleased Outcome = "released"

	// OutcomeStreamed means that the handler ran and its answer was passed
	// through.
	OutcomeStreamed Outcome = "streamed"

	// OutcomeReplayed means that a kept answer was sent.
	OutcomeReplayed Outcome = "replayed"

	// OutcomeDoubt means that the handler ran and nobody knows what happened.
	OutcomeDoubt Outcome = "doubt"

	// OutcomeFenced means that the handler ran for too long: another owner had
	// taken the key.
	OutcomeFenced Outcome = "fenced"

	// OutcomeWithheld means that the handler ran and its answer could not be
	// recorded.
	OutcomeWithheld Outcome = "withheld"

	// OutcomeUnprotected means that the handler ran without a record.
	OutcomeUnprotected Outcome = "unprotected"

	// OutcomeUnmatched means that the request had a key and no rule was about it.
	OutcomeUnmatched Outcome = "unmatched"

	// OutcomeRefused means that the request got a problem; Kind says which.
	OutcomeRefused Outcome = "refused"
)

// Outcomes returns every outcome.
func Outcomes() []Outcome {
	return []Outcome{OutcomeExecuted, OutcomeReleased, OutcomeStreamed, OutcomeReplayed, OutcomeDoubt,
		OutcomeFenced, OutcomeWithheld, OutcomeUnprotected, OutcomeUnmatched, OutcomeRefused}
}

// An Observation is what Config.Observe gets about one request.
type Observation struct {
	Route   string // the rule's path, or "default"
	Outcome Outcome
	Kind    Kind // of the problem; empty if it got none
	Status  int  // of the answer; 0 if it was hijacked or cut
	Elapsed time.Duration
	Store   time.Duration // the part of it that waited for the store
}

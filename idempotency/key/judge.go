package key

import "time"

// A Verdict says what is to be done with a request, given what its key has.
type Verdict string

const (
	// Run means that the key is free: take it, then execute.
	Run Verdict = "run"

	// Replay means that the answer is there.
	Replay Verdict = "replay"

	// NoBody means that it was answered, with more than is kept.
	NoBody Verdict = "no_body"

	// Busy means that an owner is at it.
	Busy Verdict = "busy"

	// LateLease means that the owner was not heard of: learn LeaseEnded first.
	LateLease Verdict = "late_lease"

	// InDoubt means that nobody knows whether it happened.
	InDoubt Verdict = "in_doubt"

	// Mismatch means that the key was used for another request.
	Mismatch Verdict = "mismatch"
)

// Any is the fingerprint of a record that was imported from a system which did not
// keep one: every request of the key is the same to it.
var Any Fingerprint

// Judge says what is to be done with a request of fingerprint f. The zero Record
// is a key that nobody used.
//
// A different request never learns more than that the key is used, whatever
// became of the first one.
func Judge(r Record, f Fingerprint, now time.Time) Verdict {
	free := r.State == absent || r.State == Released || r.Expired(now)
	switch {
	case free:
		return Run
	case r.Fingerprint != f && r.Fingerprint != Any:
		return Mismatch
	case r.State == Done:
		return Replay
	case r.State == DoneWithoutBody:
		return NoBody
	case r.State == Unknown:
		return InDoubt
	case r.State == InProgress && now.Before(r.LeaseUntil):
		return Busy
	case r.State == InProgress:
		return LateLease
	}
	return InDoubt // a state from the future: the one verdict that does nothing
}

// Settled reports whether "it is not there" can be believed at now: a request
// that may still be on its way has had time to arrive.
func Settled(r Record, settle time.Duration, now time.Time) bool {
	return !now.Before(r.DoubtAt.Add(settle))
}

// A Policy says what an answer of 500, 502 or 504 means.
type Policy string

const (
	// AtMostOnce keeps such an answer and replays it: the request may have had
	// its effect. It is the default.
	AtMostOnce Policy = "at-most-once"

	// Retry5xx releases the key: the handler promises that nothing happened, or
	// that doing it again is harmless.
	Retry5xx Policy = "retry-5xx"
)

// Keeps reports whether an answer of this status is kept. One that is not
// releases the key.
//
// Statuses that say "not now" (408, 425, 429, 503) release under any policy.
// Those that are known to be about the request itself are kept.
func Keeps(status int, p Policy) bool {
	switch {
	case status == 408, status == 425, status == 429, status == 503:
		return false
	case status < 500, status == 501, status >= 505 && status <= 511:
		return true
	}
	return p != Retry5xx
}

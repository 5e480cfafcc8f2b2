package key

import (
	"slices"
	"time"
)

// An Action says what is to be done with a request, given what its key has.
type Action string

const (
	// Run means that the key is free: take it, then execute.
	Run Action = "run"

	// Replay means that the answer is there.
	Replay Action = "replay"

	// NoBody means that it was answered, with more than is kept.
	NoBody Action = "no_body"

	// Busy means that an owner is at it.
	Busy Action = "busy"

	// LateLease means that the owner did not renew its lease: apply LeaseEnded first.
	LateLease Action = "late_lease"

	// Repeat means that there is no answer yet, and that the request is repeatable:
	// execute it again, unless its owner is near enough to wait for.
	Repeat Action = "repeat"

	// InDoubt means that nobody knows whether it happened.
	InDoubt Action = "in_doubt"

	// CallerChanged means that the same request was made under the key by somebody
	// who looks like another caller: perhaps by this one, before his credential was
	// renewed.
	CallerChanged Action = "caller_changed"

	// Mismatch means that the key was used for another request.
	Mismatch Action = "mismatch"
)

// Any is the fingerprint of a record that was imported from a system which did not
// keep one: every request of the key is the same to it.
var Any Fingerprint

// Classify says what is to be done with the request of a claim, given the record
// of its ID, its former ID or its alias. The zero Record is a key that nobody used.
//
// A different request, and another caller, never learn more than that the key is
// used, whatever became of the first one.
func Classify(r Record, c Claim, now time.Time) Action {
	switch {
	case Free(r, now):
		return Run
	case r.ID != c.ID && r.ID != c.Former:
		return CallerChanged
	case r.Fingerprint != c.Fingerprint && r.Fingerprint != Any:
		return Mismatch
	case r.State == Done:
		return Replay
	case r.State == DoneWithoutBody:
		return NoBody
	case c.Repeatable && (r.State == Unknown || r.State == InProgress):
		return Repeat
	case r.State == Unknown:
		return InDoubt
	case r.State == InProgress && now.Before(r.LeaseUntil):
		return Busy
	case r.State == InProgress:
		return LateLease
	}
	return InDoubt // a state from the future: the one action that does nothing
}

// Free reports whether a key with the record r may be taken at now.
func Free(r Record, now time.Time) bool {
	return r.State == absent || r.State == Released || r.Expired(now)
}

// A Policy says what an answer means that may not be the handler's own: gateways
// send 502, 503 and 504 also after they passed the request on.
type Policy string

const (
	// AtMostOnce keeps a 500 and replays it, and takes 502, 503 and 504 as doubt:
	// the request may have had its effect. It is the default.
	AtMostOnce Policy = "at-most-once"

	// Retry5xx releases the key after 500, 502, 503 and 504: the handler promises
	// that nothing happened, or that doing it again is harmless.
	Retry5xx Policy = "retry-5xx"
)

// Meaning returns what an answer of a status says about the request: Answered,
// Nothing or Unsure. The statuses of notExecuted say Nothing, whatever the policy.
//
// 401, 403 and 407 are about the caller, 408, 425 and 429 about the moment: the
// request was refused before it was looked at. The statuses from 520 to 530 are
// what content delivery networks send instead of 502 and 504.
func Meaning(status int, p Policy, notExecuted []int) Evidence {
	switch {
	case slices.Contains(notExecuted, status):
		return Nothing
	case status == 401, status == 403, status == 407, status == 408, status == 425, status == 429:
		return Nothing
	case status == 500 && p != Retry5xx:
		return Answered
	case status == 502, status == 503, status == 504, 520 <= status && status <= 530:
		if p != Retry5xx {
			return Unsure
		}
		return Nothing
	case status == 500:
		return Nothing
	}
	return Answered
}

// Package key says what is known about an idempotency key, and how that may
// change. It is law: it does no IO, reads no clock and makes no random numbers.
// Package idempotency performs what is decided here, and stores keep the records.
//
// # States
//
//	            begun              answered
//	(no key) ────────▶ in_progress ────────▶ done
//	    ▲                │  │  │   streamed
//	    │        nothing │  │  └───────────▶ done_without_body
//	    │  ┌─────────────┘  │ doubt, lease ended
//	    │  ▼                ▼
//	 released ◀─────── unknown ───────────▶ done
//	            absent          happened  (or done_without_body)
//
// A done key is free again when it expires. An unknown one never expires: it
// waits for a probe, for a person, or for its owner, whose late answer is taken
// as long as nobody took the key over. An owner that took it over and did nothing leaves it unknown. A repeatable request, which does the same
// executed once or twice, waits for nobody: a retry takes the key over whatever became
// of its owner, even one that is still at it elsewhere, whose answer is fenced then.
//
// # Guarantees
//
//   - Only the owner that holds a record's token can complete it (fencing).
//   - Nothing but evidence turns an unknown outcome into a released key, unless what was begun can be begun again.
//   - Only a repeatable request is executed beside an owner, or after two doubts.
//   - A stored answer never changes; it only expires, or a person forgets it.
//   - Next changes nothing when it returns an error.
//
// # Words
//
// They are those of package ledger, which says the same about the calls of
// workflows: a Fact is Evidence with what came along; Apply moves a record by it;
// Happened, Absent, Unsure and NewAttempt mean the same in both; ResolvedBy, Rev
// and the times of a record, too. What differs is what differs in the world. Here
// others have the key, so a record has a Fence, the claim of its owner, where a
// mutation has the Token that the service gets; and a lease, where a mutation has
// the deadline of its call.
//
// # What it does not know
//
// That a handler has an effect outside although its owner was fenced. A process
// that is stopped for longer than its lease and then continues can not be held
// back by a record: only its answer can.
package key

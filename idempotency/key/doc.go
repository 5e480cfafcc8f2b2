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
//	            absent          happened
//
// A done key is free again when it expires. An unknown one never expires: it
// waits for a probe, for a person, or for its owner, whose late answer is taken
// as long as nobody took the key over.
//
// # Guarantees
//
//   - Only the owner that holds a record's token can complete it (fencing).
//   - Nothing but evidence turns an unknown outcome into a released key.
//   - A stored answer never changes; it only expires, or a person forgets it.
//   - Next changes nothing when it returns an error.
//
// # What it does not know
//
// That a handler has an effect outside although its owner was fenced. A process
// that is stopped for longer than its lease and then goes on can not be held
// back by a record: only its answer can.
package key

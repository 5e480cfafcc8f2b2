package key

import (
	"errors"
	"fmt"
	"time"
)

// Evidence is the kind of what was learned about a key.
type Evidence string

const (
	// Begun means that a request took the key and is about to be executed.
	Begun Evidence = "begun"

	// Renewed means that the owner is still alive.
	Renewed Evidence = "renewed"

	// Answered means that the owner has a whole answer.
	Answered Evidence = "answered"

	// Streamed means that the owner has an answer which is not kept.
	Streamed Evidence = "streamed"

	// Nothing means that the owner did nothing that must not be repeated.
	Nothing Evidence = "nothing"

	// Unsure means that the owner cannot tell what happened.
	Unsure Evidence = "unsure"

	// LeaseEnded means that the owner has not renewed its lease in time.
	LeaseEnded Evidence = "lease_ended"

	// NewAttempt means that a request took the key over to execute it once more,
	// since the route allows that after doubt, or since the request is repeatable.
	NewAttempt Evidence = "new_attempt"

	// Happened means that a probe or a person knows that it happened, and what
	// to answer.
	Happened Evidence = "happened"

	// Absent means that a probe or a person knows that it did not happen.
	Absent Evidence = "absent"

	// Forgotten means that a person gave the key free.
	Forgotten Evidence = "forgotten"
)

// Evidences returns every kind of evidence.
func Evidences() []Evidence {
	return []Evidence{Begun, Renewed, Answered, Streamed, Nothing, Unsure, LeaseEnded, NewAttempt, Happened, Absent, Forgotten}
}

// absent is the state of a key without a record, and of an expired one.
const absent State = ""

// moves is the law. What is not in it is refused. Apply adds five conditions:
// owner's evidence needs the owner's fence, and Nothing of an owner that took the key over after a doubt leaves it
// unknown, without an owner; NewAttempt is allowed once, after doubt, unless the request is repeatable: then always; a record of
// version 1 that is over is not begun again, since its key has a name of the present
// version that others take, and an atomic record whose lease ended is released: its
// transaction was not committed, and nothing before it is in doubt, or its request is repeatable.
var moves = map[State]map[Evidence]State{
	absent: {
		Begun: InProgress,
	},
	InProgress: {
		Renewed:    InProgress,
		Answered:   Done,
		Streamed:   DoneWithoutBody,
		Nothing:    Released,
		Unsure:     Unknown,
		LeaseEnded: Unknown,
		NewAttempt: InProgress,
	},
	Unknown: {
		Renewed:    InProgress, // the owner lives after all
		Answered:   Done,
		Streamed:   DoneWithoutBody,
		Nothing:    Released,
		Unsure:     Unknown,
		NewAttempt: InProgress,
		Happened:   Done,
		Absent:     Released,
		Forgotten:  Released,
	},
	Done: {
		Forgotten: Released,
	},
	DoneWithoutBody: {
		Forgotten: Released,
	},
	Released: {
		Begun: InProgress,
	},
}

// MaxDoubts is how many doubts a key may have had and still be taken over by
// NewAttempt: the second doubt waits for a person.
const MaxDoubts = 1

// Errors returned when a record may not move.
var (
	// ErrFenced is returned to an owner whose key was taken over or resolved.
	ErrFenced = errors.New("the key was taken over by another owner")

	// ErrMove is returned when the law has no such move.
	ErrMove = errors.New("the record does not move that way")
)

// A Fact is evidence with who knows it and what came along.
type Fact struct {
	Evidence Evidence

	// Fence is the owner's. With Begun and NewAttempt it is the new owner's.
	Fence Fence

	// Claim is who takes the key over, for what; with Begun and NewAttempt.
	Claim Claim

	// Lease is how long the owner is believed to live; with Begun, NewAttempt and
	// Renewed.
	Lease time.Duration

	// Unrenewed says with LeaseEnded that who looks saw no renewal for as long as the lease is, by a clock of his own: that of
	// the owner may be far ahead.
	Unrenewed bool

	// Answer is what is kept: with Answered and Happened the whole, with
	// Streamed the status.
	Answer Answer

	// WithoutBody says with Happened that the status of the answer is known alone.
	WithoutBody bool

	// By says who knows: "owner", "probe" or "person: name".
	By string
}

// A Claim is the request that takes a key.
type Claim struct {
	ID          ID
	Former      ID // its ID of version 1: a live record of that name counts as its own
	Alias       ID // zero: callers of the route are stable
	Host        string
	Key         string
	Caller      string
	Method      string
	Path        string
	Fingerprint Fingerprint
	Atomic      bool          // the only effects are in the transaction that completes the record
	Repeatable  bool          // executed twice, it does what it does once, and says what there is
	TTL         time.Duration // how long the answer is kept, once it is known
}

// Apply returns r as it stands after f was learned at time now. The zero Record
// is a key that nobody used. On error r comes back as it was.
//
// An owner's evidence is ErrFenced unless f.Fence is the record's; every other
// refusal is ErrMove.
func Apply(r Record, f Fact, now time.Time) (Record, error) {
	now = now.UTC().Truncate(time.Millisecond)
	from := r.State
	if from != absent && r.Expired(now) {
		from = absent
	}
	to, ok := moves[from][f.Evidence]
	switch {
	case ofOwner(f.Evidence) && (from == absent || f.Fence != r.Fence):
		return r, fmt.Errorf("%s: %s: %w", r.ID, f.Evidence, ErrFenced)
	case !ok,
		f.Evidence == Begun && r.Version == 1,
		f.Evidence == NewAttempt && !f.Claim.Repeatable && (from == InProgress || r.Doubts > MaxDoubts),
		f.Evidence == LeaseEnded && now.Before(r.LeaseUntil) && !f.Unrenewed:
		return r, fmt.Errorf("%s: %s after %q: %w", r.ID, from, f.Evidence, ErrMove)
	case f.Evidence == LeaseEnded && r.Atomic:
		to = Released
	case f.Evidence == Nothing && r.doubtsBefore() > 0 && !r.Atomic:
		to = Unknown // nobody knows of the attempt before
	case f.Evidence == Happened && f.WithoutBody:
		to = DoneWithoutBody
	}
	return move(r, to, f, now), nil
}

// doubtsBefore returns how many doubts there were before the present owner took the key: what it says of itself answers none of them.
func (r Record) doubtsBefore() int {
	if r.State == Unknown {
		return r.Doubts - 1 // its own
	}
	return r.Doubts
}

// ofOwner reports whether only the owner can know e.
func ofOwner(e Evidence) bool {
	switch e {
	case Renewed, Answered, Streamed, Nothing, Unsure:
		return true
	}
	return false
}

// move returns r in state to. The caller has decided that it may go there.
//
// What is done is kept for as long as the claim said, from now on: until now
// nobody could have asked for the answer. Until then ExpiresAt is CreatedAt and
// that time. It never becomes earlier, also where a claim says less than the one before: who
// remembers that one takes a record that is gone before its time for lost.
func move(r Record, to State, f Fact, now time.Time) Record {
	r.UpdatedAt = now
	least := r.ExpiresAt
	switch {
	case f.Evidence == Begun && r.State != Released, f.Evidence == Begun && r.Expired(now):
		r.Doubts = 0
		r = take(r, f.Claim, now)
	case f.Evidence == Begun:
		r = take(r, f.Claim, now) // a doubt that was never answered still counts
	case f.Evidence == NewAttempt:
		r = take(r, f.Claim, now) // as here
		r.Former = ID{}           // it has the key already
	case f.Evidence == Renewed && r.State == Unknown:
		r.Doubts-- // it was none
	case f.Evidence == LeaseEnded && to == Unknown:
		if r.Doubts, r.DoubtAt = r.Doubts+1, r.LeaseUntil; now.Before(r.DoubtAt) {
			r.DoubtAt = now
		}
	case f.Evidence == Nothing && to == Unknown:
		r.Doubts, r.DoubtAt = r.doubtsBefore(), now
		r.Fence = fence(r.Fence) // its owner has said all: the doubt that is left is not his
	case to == Unknown:
		r.DoubtAt = now
		if r.State != Unknown {
			r.Doubts++
		}
	case to == Done:
		r.Answer, r.ExpiresAt = f.Answer, now.Add(r.ExpiresAt.Sub(r.CreatedAt))
	case to == DoneWithoutBody:
		r.Answer, r.ExpiresAt = Answer{Status: f.Answer.Status}, now.Add(r.ExpiresAt.Sub(r.CreatedAt))
	case to == Released:
		if r.Answer, r.Alias = (Answer{}), (ID{}); f.Evidence == Nothing {
			r.Doubts = r.doubtsBefore() // its own is answered
		}
	}
	r = hold(r, to, f, now)
	if r.ExpiresAt.Before(least) {
		r.ExpiresAt = least
	}
	r.State = to
	return r
}

// hold says who may complete r in state to, and who said so.
func hold(r Record, to State, f Fact, now time.Time) Record {
	switch {
	case to == InProgress:
		r.Fence, r.LeaseUntil = f.Fence, now.Add(f.Lease)
	case !ofOwner(f.Evidence) && to != Unknown:
		r.Fence = fence(r.Fence)                           // whoever holds the old one comes too late
		if r.ResolvedBy = f.By; f.Evidence != LeaseEnded { // of an attempt: it says nothing of those before
			r.Doubts = 0
		}
	case to != Unknown:
		r.ResolvedBy = f.By
	}
	return r
}

// take makes r the record of a new execution.
func take(r Record, c Claim, now time.Time) Record {
	if r.Version, r.Former = Version, c.Former; c.ID == c.Former {
		r.Version, r.Former = 1, ID{}
	}
	r.ID, r.Alias, r.Host, r.Key, r.Caller = c.ID, c.Alias, c.Host, c.Key, c.Caller
	r.Method, r.Path, r.Fingerprint = c.Method, c.Path, c.Fingerprint
	r.Atomic = c.Repeatable || c.Atomic && r.Doubts == 0 // that an attempt leaves nothing behind says nothing of one before it
	r.Answer, r.ResolvedBy, r.DoubtAt = Answer{}, "", time.Time{}
	r.CreatedAt, r.ExpiresAt = now, now.Add(c.TTL).Truncate(time.Millisecond)
	return r
}

// fence returns a token that t's holder does not have.
func fence(t Fence) Fence {
	if t == -1 {
		return 1
	}
	return t + 1
}

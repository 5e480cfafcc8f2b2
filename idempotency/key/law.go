package key

import (
	"errors"
	"fmt"
	"time"
)

// An Event is something that was learned about a key.
type Event string

const (
	// Begun means that a request took the key and is about to be executed.
	Begun Event = "begun"

	// Renewed means that the owner is still alive.
	Renewed Event = "renewed"

	// Answered means that the owner has a whole answer.
	Answered Event = "answered"

	// Streamed means that the owner has an answer which is not kept.
	Streamed Event = "streamed"

	// Nothing means that the owner did nothing that must not be repeated.
	Nothing Event = "nothing"

	// Doubt means that the owner cannot tell what happened.
	Doubt Event = "doubt"

	// LeaseEnded means that nobody has heard of the owner for too long.
	LeaseEnded Event = "lease_ended"

	// Again means that a request took the key over to execute it once more,
	// since the route allows that after doubt.
	Again Event = "again"

	// Happened means that a probe or a person knows that it happened, and what
	// to answer.
	Happened Event = "happened"

	// Absent means that a probe or a person knows that it did not happen.
	Absent Event = "absent"

	// Forgotten means that a person gave the key free.
	Forgotten Event = "forgotten"
)

// Events returns every event.
func Events() []Event {
	return []Event{Begun, Renewed, Answered, Streamed, Nothing, Doubt, LeaseEnded, Again, Happened, Absent, Forgotten}
}

// absent is the state of a key without a record, and of an expired one.
const absent State = ""

// moves is the law. What is not in it is refused. Next adds three conditions:
// owner's events need the owner's token, Again is allowed once, and an atomic
// record whose lease ended is released, since its transaction was not committed.
var moves = map[State]map[Event]State{
	absent: {
		Begun: InProgress,
	},
	InProgress: {
		Renewed:    InProgress,
		Answered:   Done,
		Streamed:   DoneWithoutBody,
		Nothing:    Released,
		Doubt:      Unknown,
		LeaseEnded: Unknown,
	},
	Unknown: {
		Renewed:   InProgress, // the owner lives after all
		Answered:  Done,
		Streamed:  DoneWithoutBody,
		Nothing:   Released,
		Doubt:     Unknown,
		Again:     InProgress,
		Happened:  Done,
		Absent:    Released,
		Forgotten: Released,
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
// Again: the second doubt waits for a person.
const MaxDoubts = 1

// Errors returned when a record may not move.
var (
	// ErrFenced is returned to an owner whose key was taken over or resolved.
	ErrFenced = errors.New("the key was taken over by another owner")

	// ErrMove is returned when the law has no such move.
	ErrMove = errors.New("the record does not move that way")
)

// Evidence is what was learned, by whom, and what comes with it.
type Evidence struct {
	Event Event

	// Token is the owner's. With Begun and Again it is the new owner's.
	Token Token

	// Claim is who takes the key over, for what; with Begun and Again.
	Claim Claim

	// Lease is how long the owner is believed to live; with Begun, Again and
	// Renewed.
	Lease time.Duration

	// Answer is what is kept: with Answered and Happened the whole, with
	// Streamed the status.
	Answer Answer

	// By says who knows: "owner", "probe" or "person: name".
	By string
}

// A Claim is the request that takes a key.
type Claim struct {
	ID          ID
	Key         string
	Caller      string
	Method      string
	Path        string
	Fingerprint Fingerprint
	Atomic      bool
	TTL         time.Duration // how long the answer is kept, from now
}

// Next returns r as it stands after e was learned at time now. The zero Record
// is a key that nobody used. On error r comes back as it was.
//
// An owner's event is ErrFenced unless e.Token is the record's; every other
// refusal is ErrMove.
func Next(r Record, e Evidence, now time.Time) (Record, error) {
	now = now.UTC().Truncate(time.Millisecond)
	from := r.State
	if from != absent && r.Expired(now) {
		from = absent
	}
	to, ok := moves[from][e.Event]
	switch {
	case ofOwner(e.Event) && (from == absent || e.Token != r.Token):
		return r, fmt.Errorf("%s: %s: %w", r.ID, e.Event, ErrFenced)
	case !ok,
		e.Event == Again && r.Doubts > MaxDoubts,
		e.Event == LeaseEnded && now.Before(r.LeaseUntil):
		return r, fmt.Errorf("%s: %s after %q: %w", r.ID, from, e.Event, ErrMove)
	case e.Event == LeaseEnded && r.Atomic:
		to = Released
	}
	return move(r, to, e, now), nil
}

// ofOwner reports whether only the owner can know e.
func ofOwner(e Event) bool {
	switch e {
	case Renewed, Answered, Streamed, Nothing, Doubt:
		return true
	}
	return false
}

// move returns r in state to. The caller has decided that it may go there.
func move(r Record, to State, e Evidence, now time.Time) Record {
	r.UpdatedAt = now
	switch {
	case e.Event == Begun && r.State != Released, e.Event == Begun && r.Expired(now):
		r = take(r, e.Claim, now)
		r.Doubts = 0
	case e.Event == Begun, e.Event == Again:
		r = take(r, e.Claim, now) // a doubt that was never answered still counts
	case e.Event == Renewed && r.State == Unknown:
		r.Doubts-- // it was none
	case e.Event == LeaseEnded && to == Unknown:
		r.Doubts, r.DoubtAt = r.Doubts+1, r.LeaseUntil
	case to == Unknown:
		r.DoubtAt = now
		if r.State != Unknown {
			r.Doubts++
		}
	case to == Done:
		r.Answer = e.Answer
	case to == DoneWithoutBody:
		r.Answer = Answer{Status: e.Answer.Status}
	case to == Released:
		r.Answer = Answer{}
	}
	switch {
	case to == InProgress:
		r.Token, r.LeaseUntil = e.Token, now.Add(e.Lease)
	case !ofOwner(e.Event) && to != Unknown:
		r.Token = fence(r.Token) // whoever holds the old one comes too late
		r.ResolvedBy, r.Doubts = e.By, 0
	case to != Unknown:
		r.ResolvedBy = e.By
	}
	r.State = to
	return r
}

// take makes r the record of a new execution.
func take(r Record, c Claim, now time.Time) Record {
	r.ID, r.Key, r.Caller = c.ID, c.Key, c.Caller
	r.Method, r.Path, r.Fingerprint, r.Atomic = c.Method, c.Path, c.Fingerprint, c.Atomic
	r.Answer, r.ResolvedBy, r.DoubtAt = Answer{}, "", time.Time{}
	r.CreatedAt, r.ExpiresAt = now, now.Add(c.TTL).Truncate(time.Millisecond)
	return r
}

// fence returns a token that t's holder does not have.
func fence(t Token) Token {
	if t == -1 {
		return 1
	}
	return t + 1
}

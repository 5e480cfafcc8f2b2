// Package policy decides whether a call may happen, and does the arithmetic of
// retries, backoff and limits. Its numbers are enforced by the host; a script
// cannot see or change them. It reads no clock and rolls no dice: chance comes
// in as an argument.
package policy

import (
	"fmt"
	"time"

	"github.com/keep-run/keep"
)

// A Policy holds the numbers that the host enforces. Default returns them.
type Policy struct {
	Retry           Backoff
	Reconcile       Reconcile
	Outage          Outage
	Approval        Approval
	Breaker         keep.Breaker
	Wake            Window
	DefaultInterval time.Duration // between the runs of a bare producer or job
	OnItemBlocked   OnItemBlocked
	Shutdown        time.Duration // how long a stop waits for calls in flight
	Lease           Lease
	Limits          Limits
}

// A Backoff spaces repeats: First, doubled each time, never more than Max.
type Backoff struct {
	First    time.Duration
	Max      time.Duration
	Attempts int // repeats after the first try, or lookups
}

// A Reconcile says how doubt is resolved.
type Reconcile struct {
	Inline time.Duration // bound of the lookup right after the call, and of each later one
	Backoff
}

// An Outage says when a service counts as down.
type Outage struct {
	After int // calls of a connection that fail in a row; 0: it never does
}

// An Approval says how long a person may take to agree to a call.
type Approval struct {
	Expires time.Duration // of the question, and of an answer that was not used; then the run asks again
}

// A Window clamps what a script asks for.
type Window struct {
	Min, Max time.Duration
}

// OnItemBlocked says what a job does about an item whose outcome is unknown.
type OnItemBlocked string

const (
	Stop     OnItemBlocked = "stop"     // the job stops until it is resolved
	Continue OnItemBlocked = "continue" // the other items continue in later runs
)

// Limits bound what one run may hold. Reaching one is a logic failure that names
// it (law: bounded).
type Limits struct {
	Payload      int // bytes of one event's payload, or of a call's params
	Reservations int // events that one run reserves
	Publishes    int // events that one run publishes
	PublishBytes int // bytes of the payloads of those events
	LogLines     int // lines that one run logs; more are dropped
	LogBytes     int // bytes of those lines
	Causes       int // inputs that one event comes from
	KVValue      int // bytes of one checkpoint value
	KVTotal      int // bytes of one producer's checkpoint
	Peek         int // events that one peek returns
	Trace        int // bytes that are kept of what one run saw, before they are packed; 0: nothing is
}

// Default returns the policy that holds when nothing is configured.
func Default() Policy {
	return Policy{
		Retry: Backoff{First: 10 * time.Second, Max: 10 * time.Minute, Attempts: 5},
		Reconcile: Reconcile{
			Inline:  30 * time.Second,
			Backoff: Backoff{First: 10 * time.Second, Max: 10 * time.Minute, Attempts: 10},
		},
		Outage:          Outage{After: 3},
		Breaker:         keep.Breaker{Failures: 10, Within: 10 * time.Minute},
		Approval:        Approval{Expires: 24 * time.Hour},
		Wake:            Window{Min: 30 * time.Second, Max: 24 * time.Hour},
		DefaultInterval: 5 * time.Minute,
		OnItemBlocked:   Stop,
		Shutdown:        30 * time.Second,
		Lease:           Lease{TTL: 40 * time.Second},
		Limits: Limits{
			Payload: 1 << 20, Reservations: 1000, Publishes: 10000, PublishBytes: 64 << 20, Causes: 1000,
			LogLines: 10000, LogBytes: 4 << 20,
			KVValue: 64 << 10, KVTotal: 1 << 20, Peek: 1000, Trace: 256 << 10,
		},
	}
}

// Validate reports the first number that makes no sense.
func (p Policy) Validate() error {
	for _, b := range []struct {
		name string
		b    Backoff
	}{{"retry", p.Retry}, {"reconcile", p.Reconcile.Backoff}} {
		if b.b.First <= 0 || b.b.Max < b.b.First {
			return fmt.Errorf("policy.%s: want 0 < first <= max: first %s, max %s", b.name, b.b.First, b.b.Max)
		}
		if b.b.Attempts < 0 {
			return fmt.Errorf("policy.%s: attempts must not be negative: %d", b.name, b.b.Attempts)
		}
	}
	switch {
	case p.Reconcile.Inline <= 0:
		return fmt.Errorf("policy.reconcile: inline must be positive: %s", p.Reconcile.Inline)
	case p.Reconcile.Attempts < 1:
		return fmt.Errorf("policy.reconcile: attempts must be positive: %d", p.Reconcile.Attempts)
	case p.Wake.Min <= 0 || p.Wake.Max < p.Wake.Min:
		return fmt.Errorf("policy.wake: want 0 < min <= max: min %s, max %s", p.Wake.Min, p.Wake.Max)
	case p.Outage.After < 0:
		return fmt.Errorf("policy.outage: after must not be negative: %d", p.Outage.After)
	case p.Breaker.Failures < 0 || p.Breaker.Failures > 1000:
		return fmt.Errorf("policy.breaker: failures must be from 0, which switches it off, to 1000: %d", p.Breaker.Failures)
	case p.Breaker.Within < 0 || p.Breaker.Within == 0 && p.Breaker.Failures > 0:
		return fmt.Errorf("policy.breaker: within must be positive: %s", p.Breaker.Within)
	case p.Approval.Expires < time.Second:
		return fmt.Errorf("policy.approval: expires must be at least 1s: %s", p.Approval.Expires)
	case p.DefaultInterval <= 0:
		return fmt.Errorf("policy.default_interval must be positive: %s", p.DefaultInterval)
	case p.OnItemBlocked != Stop && p.OnItemBlocked != Continue:
		return fmt.Errorf("policy.on_item_blocked: want %q or %q: %q", Stop, Continue, p.OnItemBlocked)
	}
	return p.Lease.Validate()
}

// Delay returns how long to wait after done repeats: First doubled done times, at
// most Max, and never less than floor, which the service may have asked for.
// jitter in [0,1) shortens the wait by up to a fifth, so that what failed
// together does not come back together.
func (b Backoff) Delay(done int, floor time.Duration, jitter float64) time.Duration {
	d := b.Max
	if b.First<<done>>done == b.First && b.First<<done < b.Max {
		d = b.First << done
	}
	d -= time.Duration(float64(d) * jitter / 5)
	return max(d, floor)
}

// Exhausted reports whether done repeats are all that are allowed.
func (b Backoff) Exhausted(done int) bool { return done >= b.Attempts }

// Clamp returns t moved into the window after now; the zero time stays.
func (w Window) Clamp(t, now time.Time) time.Time {
	switch {
	case t.IsZero():
		return t
	case t.Before(now.Add(w.Min)):
		return now.Add(w.Min)
	case t.After(now.Add(w.Max)):
		return now.Add(w.Max)
	}
	return t
}

// Package limit decides when a connection may be used: how many requests may begin in a
// time and be out at once, and what an outage or a Retry-After means for everyone who uses
// it. It reads no clock and performs nothing.
//
// # What is shared
//
// A State is what all users of a connection share. It is a value, which hosts keep in one
// row and replace only if it is still the one that they read. So the law is one function
// of a State and a time, whether one host asks or several. The time is the database's.
//
// # Rates
//
// A rate is a token bucket. It is kept as the time at which the bucket is full again, so a
// bucket that nobody uses costs nothing, and one that is read after a crash is as empty as
// it was. A request that was granted and never sent uses up its token.
//
// # Shut
//
// A connection is shut when the service named a time before which it wants no request, or
// when several calls in a row failed. Then nobody uses it, until its time has come, and
// then one call does: the probe. If the service answers, the connection is open to all; if
// not, the next probe is planned. So an outage costs probes, whatever the number of runs
// that wait. A person is asked once about a service that is down, and about one that names
// another time whenever it is tried: what is shut does not stay so in silence.
package limit

import (
	"maps"
	"slices"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/law/policy"
)

// A Kind says what a user of a connection waits for. Values are stored; do not rename
// them.
type Kind string

const (
	ByRate        Kind = "rate"        // as many requests began as the rate allows
	ByConcurrency Kind = "concurrency" // as many calls are out as may be
	BySlow        Kind = "slow"        // the service named a time
	ByDown        Kind = "down"        // the service does not answer
)

const (
	// MaxShut is the longest time for which a connection is shut before a probe.
	MaxShut = 24 * time.Hour

	// slowFor and slowTimes are for how long a service names times, and how often, before a person is asked. So
	// a limit that is over soon asks nobody, and one without end is asked about in two MaxShut at most.
	slowFor   = time.Hour
	slowTimes = 3
)

// A State is what the users of a connection share. Its zero value is open and unused.
type State struct {
	Full     map[string]time.Time `json:"full,omitempty"`     // by rate: when its bucket is full again
	Out      []Out                `json:"out,omitempty"`      // calls that are out, by host
	Failures int                  `json:"failures,omitempty"` // in a row, while it is not shut
	Shut     *Shut                `json:"shut,omitempty"`     // nil: it is open
}

// Out is how many calls a host has out. It counts until the last of them must have ended:
// a host that died holds no place for longer.
type Out struct {
	Host  string    `json:"host"`
	N     int       `json:"n"`
	Until time.Time `json:"until"`
}

// Shut is why a connection is not used.
type Shut struct {
	Kind  Kind      `json:"kind"` // BySlow or ByDown
	Since time.Time `json:"since"`
	Until time.Time `json:"until"` // when a probe may be sent
	Why   string    `json:"why"`   // for people: what the service said last
	Tries int       `json:"tries"` // calls that failed, the probes among them

	// Named is how often the service named a time: at first, and to each probe since.
	Named int `json:"named,omitempty"`

	Probe *Probe `json:"probe,omitempty"` // that is out; nil: none
	Last  string `json:"last,omitempty"`  // who sent the last one

	// Host is the host whose call failed last; empty: there is one host only.
	Host string `json:"host,omitempty"`

	// Asked is the question that a person was asked about it; empty: none.
	Asked keep.EscalationID `json:"asked,omitempty"`
}

// A Probe is the one call that finds out whether the service answers again.
type Probe struct {
	Host  string    `json:"host"`
	Who   string    `json:"who"`
	Until time.Time `json:"until"` // it is over then, whatever became of its host
}

// A Claim is the wish to use the connection.
type Claim struct {
	Host  string
	Who   string    // the workflow
	Held  int       // calls that the host has out, without this one
	Until time.Time // when the call is over at the latest
	Last  time.Time // when the last call of the host is over, without this one

	// More: it is one more request of a call that was let in.
	More bool
}

// A Wait is why a claim is not granted, and until when.
type Wait struct {
	Kind  Kind
	Since time.Time // of a connection that is shut; else zero
	Until time.Time // when to claim again at the latest; zero: when a call is over
	Why   string
	Probe bool // a probe is out: when it fails, another one may be due long before Until
}

// IsShut reports whether nobody may use the connection.
func (w Wait) IsShut() bool { return w.Kind == BySlow || w.Kind == ByDown }

// An Answer says whether a claim is granted.
type Answer struct {
	Granted bool
	Probe   bool // it is the probe: what becomes of it is awaited
	Wanted  bool // the probe, which a person wants to be made now
	Wait    Wait // if not granted
}

// grace is for how long the one whose probe failed leaves the next one to others, and the host
// whose call failed to other hosts: a call that fails by its own fault, or a host that has lost
// its way to the service, must not keep a connection shut.
const grace = time.Second

// Take claims the connection at now. The state that it returns is to be stored before the
// call, unless it is the same as s.
func Take(s State, r Rule, c Claim, now time.Time) (State, Answer) {
	probe := false
	if s.Shut != nil && !c.More {
		if w, shut := s.Shut.wait(c, now); shut {
			return s, Answer{Wait: w}
		}
		probe = true
	}
	if w, full := s.without(c.Host, now).full(r, c, now); full && !c.More {
		return s, Answer{Wait: w} // with the calls of the host, which are out all the same
	}
	next, w := s.spend(r, now)
	if !w.Until.IsZero() {
		return s, Answer{Wait: w}
	}
	if !c.More {
		next = next.without(c.Host, now)
	}
	if r.Concurrency > 0 && !c.More {
		until := c.Until
		if c.Last.After(until) {
			until = c.Last
		}
		next.Out = append(slices.Clone(next.Out), Out{c.Host, c.Held + 1, until})
	}
	if probe {
		shut := *s.Shut
		shut.Probe = &Probe{Host: c.Host, Who: c.Who, Until: c.Until}
		next.Shut = &shut
	}
	return next, Answer{Granted: true, Probe: probe, Wanted: probe && s.Shut.Tries == 0 && s.Shut.Named == 0}
}

// wait returns why c cannot be the probe, and false if it can.
func (s *Shut) wait(c Claim, now time.Time) (Wait, bool) {
	w := Wait{Kind: s.Kind, Since: s.Since, Until: s.Until, Why: s.Why}
	if latest := now.Add(MaxShut); w.Until.After(latest) {
		w.Until = now // the clock was set back since, or the row is odd
	}
	switch {
	case s.Probe != nil && isOut(s.Probe.Until, now):
		w.Until, w.Probe = s.Probe.Until, true
	case w.Until.After(now):
	case (c.Who == s.Last || s.Host != "" && c.Host == s.Host) && now.Before(w.Until.Add(grace)):
		w.Until = w.Until.Add(grace)
	default:
		return Wait{}, false
	}
	return w, true
}

// isOut reports whether a call that is over then may be out. One that would be for longer than a connection
// is shut was made before the clock was set back: nobody waits for it.
func isOut(until, now time.Time) bool { return until.After(now) && !until.After(now.Add(MaxShut)) }

// full returns the wait for a place among the calls that are out.
func (s State) full(r Rule, c Claim, now time.Time) (Wait, bool) {
	if r.Concurrency == 0 {
		return Wait{}, false
	}
	n, w := c.Held, Wait{Kind: ByConcurrency}
	for _, o := range s.Out {
		if n += o.N; w.Until.IsZero() || o.Until.Before(w.Until) {
			w.Until = o.Until
		}
	}
	return w, n >= r.Concurrency
}

// without returns s without the calls of a host, and those that are over.
func (s State) without(host string, now time.Time) State {
	over := func(o Out) bool { return o.Host == host || !isOut(o.Until, now) }
	if slices.ContainsFunc(s.Out, over) {
		s.Out = slices.DeleteFunc(slices.Clone(s.Out), over)
	}
	return s
}

// spend takes a token of each rate, or returns when there will be one of all.
func (s State) spend(r Rule, now time.Time) (State, Wait) {
	if len(r.Rates) == 0 {
		s.Full = nil
		return s, Wait{}
	}
	full := make(map[string]time.Time, len(r.Rates)) // without rates that are not configured any more
	w := Wait{Kind: ByRate}
	for _, rate := range r.Rates {
		every, name := rate.every(), rate.String()
		at := s.Full[name]
		if most := now.Add(time.Duration(r.burst()) * every); at.After(most) {
			at = most // the clock was set back since, or the burst is less than it was
		}
		if from := at.Add(-time.Duration(r.burst()-1) * every); from.After(now) {
			if from.After(w.Until) {
				w.Until, w.Why = from, name
			}
			continue
		}
		if at.Before(now) {
			at = now
		}
		full[name] = at.Add(every)
	}
	if !w.Until.IsZero() {
		return s, w
	}
	s.Full = full
	return s, Wait{}
}

// Leave returns s when a call of a host is over, and the host has held others out until
// last.
func Leave(s State, host string, held int, last, now time.Time) State {
	s = s.without(host, now)
	if held > 0 {
		s.Out = append(slices.Clone(s.Out), Out{host, held, last})
	}
	return s
}

// An Outcome is what became of a call.
type Outcome struct {
	Host  string // as in Claim; empty: there is one host only
	Who   string
	Probe bool // it was the probe

	// Unsent: nothing was sent, and nothing is known.
	Unsent bool

	// Failed: the service did not answer, or says that it cannot now.
	Failed     bool
	RetryAfter time.Duration // the wait that it named; zero: none
	Why        string        // if it failed
}

// Report returns what is true after a call. after is how many failures in a row are an
// outage; 0: none are. jitter is as in policy.Backoff.Delay.
//
// While a connection is shut only a probe opens it, or a person does: a call that began
// before says nothing about now. Nor does a probe that was over before it was reported, if
// another one is out: that one keeps its place.
func Report(s State, o Outcome, b policy.Backoff, after int, jitter float64, now time.Time) State {
	o.Probe = o.Probe && !s.Shut.probedByOther(o)
	switch {
	case o.Unsent && (!o.Probe || s.Shut == nil): // another one opened it
		return s
	case o.Unsent:
		shut := *s.Shut
		shut.Probe = nil
		s.Shut = &shut
		return s
	case !o.Failed && (o.Probe || s.Shut == nil):
		s.Shut, s.Failures = nil, 0
		return s
	case !o.Failed:
		return s
	case o.RetryAfter > 0:
		return s.named(o, now)
	case s.Shut != nil && !o.Probe:
		return s
	case after == 0: // each run has a backoff of its own
		s.Shut, s.Failures = nil, 0
		return s
	}
	s.Failures++
	if s.Shut == nil && s.Failures < after {
		return s
	}
	shut := *s.orShut(now)
	if s.Shut == nil {
		shut.Tries = s.Failures - 1
	}
	shut.Kind, shut.Why, shut.Probe, shut.Host = ByDown, o.Why, nil, o.Host
	shut.Tries++
	shut.Until = now.Add(min(b.Delay(shut.Tries-1, 0, jitter), MaxShut))
	if o.Probe {
		shut.Last = o.Who
	}
	s.Shut, s.Failures = &shut, 0
	return s
}

// probedByOther reports whether the probe that is out is not the one of the outcome.
func (s *Shut) probedByOther(o Outcome) bool {
	return s != nil && s.Probe != nil && (s.Probe.Who != o.Who || o.Host != "" && s.Probe.Host != o.Host)
}

// named returns s after the service named a time.
func (s State) named(o Outcome, now time.Time) State {
	shut := *s.orShut(now)
	if o.Probe || s.Shut == nil {
		shut.Named++
	}
	if o.Probe {
		shut.Probe, shut.Last, shut.Kind, shut.Host = nil, o.Who, BySlow, o.Host
	}
	if until := now.Add(min(o.RetryAfter, MaxShut)); until.After(shut.Until) {
		shut.Until, shut.Why = until, o.Why
	}
	s.Shut, s.Failures = &shut, 0
	return s
}

// orShut returns what shuts s, or what begins to do so now.
func (s State) orShut(now time.Time) *Shut {
	if s.Shut != nil {
		return s.Shut
	}
	return &Shut{Kind: BySlow, Since: now}
}

// Asks reports whether a person should be asked about the connection at now, since nobody was: as many calls of
// one that is down failed as the policy repeats one, or one that is slow was tried for long enough.
func (s State) Asks(b policy.Backoff, now time.Time) bool {
	switch {
	case s.Shut == nil || s.Shut.Asked != "":
		return false
	case s.IsDown():
		return s.Shut.Tries > b.Attempts
	}
	return s.Shut.Named >= slowTimes && s.Shut.isLong(now)
}

// isLong reports whether it is shut for so long that a person may have been asked although it is only slow.
func (s *Shut) isLong(now time.Time) bool { return now.Sub(s.Since) >= slowFor }

// IsDown reports whether the service does not answer.
func (s State) IsDown() bool { return s.Shut != nil && s.Shut.Kind == ByDown }

// MayBeAsked reports whether a person may have been asked about it by now, since calls failed: the
// process that asked may have died before the state says so.
func (s State) MayBeAsked(now time.Time) bool {
	return s.Shut != nil && (s.Shut.Kind == ByDown || s.Shut.Tries > 0 || s.Shut.Asked != "" || s.Shut.isLong(now))
}

// NextCall returns since when, until when and why nobody uses the connection, and false if
// it is used. The call that tries it is then, or it is out.
func (s State) NextCall() (Wait, bool) {
	if s.Shut == nil {
		return Wait{}, false
	}
	return Wait{Kind: s.Shut.Kind, Since: s.Shut.Since, Until: s.Shut.Until, Why: s.Shut.Why}, true
}

// Asked returns s when a person was asked about it. If two asked at once, the first question
// counts.
func Asked(s State, id keep.EscalationID) State {
	if s.Shut == nil || s.Shut.Asked != "" {
		return s
	}
	shut := *s.Shut
	shut.Asked, s.Shut = id, &shut
	return s
}

// TryNow returns s as a person's wish to try again leaves it: the next call is a probe, which is Wanted until one failed,
// and if the service still does not answer after as many as before, the person is asked again.
func TryNow(s State, now time.Time) State {
	if s.Shut == nil {
		return s
	}
	shut := *s.Shut
	shut.Until, shut.Asked, shut.Tries, shut.Named, shut.Last, shut.Host = now, "", 0, 0, "", ""
	s.Shut = &shut
	return s
}

// Equal reports whether two states are the same.
func (s State) Equal(o State) bool {
	same := func(a, b *Shut) bool {
		if a == nil || b == nil {
			return a == b
		}
		x, y := *a, *b
		if (x.Probe == nil) != (y.Probe == nil) || x.Probe != nil && !x.Probe.equal(*y.Probe) {
			return false
		}
		return x.Kind == y.Kind && x.Since.Equal(y.Since) && x.Until.Equal(y.Until) && x.Why == y.Why &&
			x.Tries == y.Tries && x.Named == y.Named && x.Last == y.Last && x.Host == y.Host && x.Asked == y.Asked
	}
	return s.Failures == o.Failures && same(s.Shut, o.Shut) && maps.EqualFunc(s.Full, o.Full, time.Time.Equal) &&
		slices.EqualFunc(s.Out, o.Out, func(a, b Out) bool { return a.Host == b.Host && a.N == b.N && a.Until.Equal(b.Until) })
}

func (p Probe) equal(o Probe) bool {
	return p.Host == o.Host && p.Who == o.Who && p.Until.Equal(o.Until)
}

// Sentence says what one who uses the connection waits for, without the times: "the limit
// of chat, 60/min".
func (w Wait) Sentence(connection string) string {
	switch w.Kind {
	case ByRate:
		return "the limit of " + connection + ", " + w.Why
	case ByConcurrency:
		return "the limit of " + connection + ", as many calls are out as may be at once"
	case BySlow:
		return connection + ", which named a time before which it wants no calls: " + w.Why
	}
	return connection + ", which does not answer: " + w.Why
}

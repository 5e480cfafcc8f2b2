// Package ledger decides how a mutation record may move, given evidence. It is
// the one place that knows the rules; stores keep records, connectors report
// what they saw, and the engine makes calls.
//
// # States
//
//	in_flight ──▶ applied | failed | needs_reconcile | indeterminate
//	needs_reconcile ──▶ applied | failed | indeterminate
//	indeterminate ──▶ applied | failed | skipped | needs_reconcile   (a person only)
//	failed ──▶ in_flight                                   (a new attempt)
//	failed ──▶ applied                    (a person ended a doubt, and was wrong)
//
// applied and skipped never change (law: settled-stays).
//
// # Guarantees
//
//   - doubt-is-not-failure: an unknown outcome becomes failed only when a lookup
//     that began after the call's deadline plus the tool's settle time found
//     nothing, or when a person vouches for it. An earlier absence is no evidence: the
//     record stays, and the next lookup is planned for the time when it counts.
//     A call whose end was learned only after its deadline, because the host was
//     stopped, crashed or overslept, may have been sent until then.
//   - Evidence beats memory: after a person said that a call did not happen, the service is asked
//     once more before it is sent again, if it can be asked without sending. What it shows counts;
//     what it does not show, or does not answer, goes by the person's word.
//   - Every function returns the record as it then stands together with the line
//     of history that says why, and changes nothing when it returns an error.
//   - The package reads no clock and makes no key that depends on one.
//
// # Keys
//
// A consumer's mutation is keyed by its run chain, so that a retry of the same
// pinned work keeps the key. Inside an item the key is a hash of what is
// changed, see ItemKey. Params are canonicalised first; see package canonical
// for what is refused.
package ledger

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/keep-run/keep"
)

// Evidence is what the host learned about a mutation.
type Evidence string

const (
	Happened          Evidence = "happened"              // the service confirms the effect
	Absent            Evidence = "absent"                // the service said no, or a lookup found nothing
	Unsure            Evidence = "unsure"                // the call began, and no certain answer came
	CannotAsk         Evidence = "no way to ask"         // the tool cannot be asked
	AttemptsExhausted Evidence = "attempts spent"        // asked as often as policy allows
	DidNotHappen      Evidence = "person: didn't happen" // a person vouches for it
	PersonHappened    Evidence = "person: happened"      // a person vouches for the effect
	Skip              Evidence = "person: skip"          // a person continues without knowing
	CheckAgain        Evidence = "person: check again"   // a person wants the service asked again
	NewAttempt        Evidence = "new attempt"           // the call is made once more
)

// Evidences returns every kind of evidence.
func Evidences() []Evidence {
	return []Evidence{Happened, Absent, Unsure, CannotAsk, AttemptsExhausted, DidNotHappen, PersonHappened, Skip, CheckAgain, NewAttempt}
}

// moves is the whole law. A pair that is absent is refused.
var moves = map[keep.MutationState]map[Evidence]keep.MutationState{
	keep.InFlight: {
		Happened:  keep.Applied,
		Absent:    keep.Failed,
		Unsure:    keep.NeedsReconcile,
		CannotAsk: keep.Indeterminate,
	},
	keep.NeedsReconcile: {
		Happened:          keep.Applied,
		Absent:            keep.Failed,
		Unsure:            keep.NeedsReconcile,
		CannotAsk:         keep.Indeterminate,
		AttemptsExhausted: keep.Indeterminate,
	},
	keep.Indeterminate: {
		DidNotHappen:   keep.Failed,
		PersonHappened: keep.Applied,
		Skip:           keep.Skipped,
		CheckAgain:     keep.NeedsReconcile,
	},
	keep.Failed: {
		NewAttempt: keep.InFlight,
		Happened:   keep.Applied, // what was in doubt, and was there after all
	},
}

// Allowed reports whether a record in that state moves on that evidence, and
// where to. It knows nothing of settle times; Apply does.
func Allowed(from keep.MutationState, ev Evidence) (keep.MutationState, bool) {
	to, ok := moves[from][ev]
	return to, ok
}

// A Step is a move without what it was made on.
type Step struct{ From, To keep.MutationState }

// Moves returns every step that some evidence allows, and the first of a record, in the
// order of the states.
func Moves() []Step {
	steps := []Step{{"", keep.InFlight}}
	for _, from := range keep.MutationStates() {
		for _, to := range keep.MutationStates() {
			for _, ev := range Evidences() {
				if next, ok := moves[from][ev]; ok && next == to && steps[len(steps)-1] != (Step{from, to}) {
					steps = append(steps, Step{from, to})
				}
			}
		}
	}
	return steps
}

// A MoveError is returned when evidence does not allow a move.
type MoveError struct {
	Key  keep.MutationKey
	From keep.MutationState
	With Evidence
	Why  string // empty: the table has no such move
}

// Error names the record, its state and the evidence.
func (e *MoveError) Error() string {
	msg := fmt.Sprintf("mutation %s is %s and does not move on %q", e.Key, e.From, e.With)
	if e.Why != "" {
		msg += ": " + e.Why
	}
	return msg
}

// A Fact is evidence with what came along.
type Fact struct {
	Evidence Evidence
	By       string // "call", "reconcile", "recovery" or a person
	Detail   string // for people; no secrets

	Result  []byte        // with Happened and PersonHappened
	Warning string        // with Happened
	Failure *keep.Failure // with Absent and Unsure: what the service said; nil: nothing

	// ByKey says of Happened that the service shows the effect as that of this call alone.
	ByKey bool

	// Unwitnessed says of Absent that nothing shows that the lookup would have found
	// the effect (law: witnessed). It moves nothing by itself; once the effect would
	// have settled, a person is asked.
	Unwitnessed bool

	// AskedAt says of Absent when a lookup began: an effect may have appeared since, however late the
	// answer came. Zero: it is not known, and too early.
	AskedAt time.Time

	// Out says of a lookup that the call itself is not over: it may still be
	// sent, so finding nothing means nothing. Only Happened is believed then.
	Out bool
}

// Apply returns m as it stands after the host learned f at time now.
func Apply(m keep.Mutation, f Fact, now time.Time) (keep.Mutation, keep.Move, error) {
	to, ok := Allowed(m.State, f.Evidence)
	switch {
	case !ok || f.Evidence == NewAttempt:
		return m, keep.Move{}, &MoveError{Key: m.Key, From: m.State, With: f.Evidence}
	case f.Evidence == Happened && m.State == keep.Failed && !m.Doubted:
		return m, keep.Move{}, &MoveError{m.Key, m.State, f.Evidence, "its outcome was never in doubt"}
	case f.Evidence == CheckAgain && !m.CanReconcile:
		return m, keep.Move{}, &MoveError{m.Key, m.State, f.Evidence, "the tool cannot be asked"}
	case f.Evidence == Absent && f.Unwitnessed:
		return m, keep.Move{}, &MoveError{m.Key, m.State, f.Evidence, "nothing shows that the lookup would have found the effect"}
	case tooEarly(m, f, now):
		return m, keep.Move{}, &MoveError{m.Key, m.State, f.Evidence,
			"the effect may still appear until " + m.SettlesAt().Format(time.RFC3339)}
	}
	move := keep.Move{At: now, By: f.By, From: m.State, To: to, Evidence: string(f.Evidence), Detail: f.Detail}
	if Unsettled(to) && m.State == keep.InFlight {
		m = ExtendDeadline(m, now)
	}
	m.State, m.UpdatedAt, m.NextReconcileAt = to, now, time.Time{}
	m.Doubted = m.Doubted || Unsettled(to)
	switch to {
	case keep.Applied:
		m.Result, m.Warning, m.Error, m.ResolvedBy = f.Result, f.Warning, nil, f.By
	case keep.Failed, keep.Skipped:
		m.ResolvedBy = f.By
	case keep.NeedsReconcile:
		m.NextReconcileAt = now
	}
	if f.Evidence == CheckAgain {
		m.ReconcileAttempts = 0
	}
	if f.Failure != nil && to != keep.Applied {
		m.Error = f.Failure
	}
	return m, move, nil
}

// MayHaveHappened reports whether a call in that state may have had its effect.
func MayHaveHappened(s keep.MutationState) bool { return s != keep.Failed }

// ClockTolerance is how far two clocks may be apart and still count as one.
const ClockTolerance = 5 * time.Second

// Forever is the age of a key of which no clock tells how old it is.
const Forever = 100 * 365 * 24 * time.Hour

// KeyAge returns how old the key of m is at most, and whether the clocks agree. A key that
// the service may have forgotten must not be sent again, so the greater age counts. Elapsed
// is what a host counted itself since the record was made; negative: it was not there.
// Then a record that was changed before it was made tells that the clock was set back.
func KeyAge(m keep.Mutation, now time.Time, elapsed time.Duration) (age time.Duration, agree bool) {
	age = now.Sub(m.CreatedAt)
	if elapsed < 0 {
		if age < -ClockTolerance || m.UpdatedAt.Sub(m.CreatedAt) < -ClockTolerance {
			return Forever, false
		}
		return max(age, 0), true
	}
	return max(age, elapsed), (age - elapsed).Abs() <= ClockTolerance
}

// Refused reports whether a service refused the credential. Of a record in doubt it is the
// repeated request that was refused: that says nothing about the first one.
func Refused(f *keep.Failure) bool { return f != nil && f.Class == keep.ClassPermission }

// AsksForAccount reports whether a failure is about an account that a person is asked to
// connect again, which is one question for all that wait for it. Nothing was sent then.
func AsksForAccount(f *keep.Failure) bool {
	return f != nil && f.Class == keep.ClassPermission && f.Code == keep.CodeReconnect && f.Account != ""
}

// AsksForUser reports whether a failure is about an account or a secret of which a person is asked
// whether it is of the same user as before: one question for all calls in doubt that it is about.
func AsksForUser(f *keep.Failure) bool {
	return f != nil && f.Class == keep.ClassPermission && f.Code == keep.CodeSameUser
}

// OfAnotherUser reports whether a call is in doubt because its connection has credentials of another user now.
func OfAnotherUser(f *keep.Failure) bool { return f != nil && f.Code == keep.CodeAnotherUser }

// AsksForTool reports whether a failure is about a tool that its server changed, of which a person is asked whether it may be
// called: one question for all calls in doubt that are made again or looked for by it. Nothing was sent then.
func AsksForTool(f *keep.Failure) bool {
	return f != nil && f.Class == keep.ClassPermission && f.Code == keep.CodeToolChanged
}

// SetSince reports whether a call is in doubt that is not sent again, since another one set something else meanwhile.
func SetSince(f *keep.Failure) bool { return f != nil && f.Code == keep.CodeSetSince }

// unsent are the codes with which a call fails of which nothing was sent: its request never left, or Keep refused it first.
// A lookup may fail with them, too.
var unsent = []string{"not-sent", keep.CodeAccount, keep.CodeToolStopped, keep.CodeToolChanged}

// Unsent reports whether nothing was sent in the last attempt of a call that failed.
func Unsent(m keep.Mutation) bool {
	return m.State == keep.Failed && m.ResolvedBy == "call" && m.Error != nil && m.Error.Class != keep.ClassUnknown && slices.Contains(unsent, m.Error.Code)
}

// ToolMissing reports whether the last lookup about a call asked nobody, because there is no such tool now.
func ToolMissing(f *keep.Failure) bool { return f != nil && f.Code == keep.CodeToolMissing }

// Waits reports whether a lookup that failed so waits for a person who is asked about something
// else than the call. It uses up no attempt.
func Waits(f *keep.Failure) bool { return AsksForAccount(f) || AsksForUser(f) || AsksForTool(f) }

// Unsettled reports whether a record in that state is in doubt.
func Unsettled(s keep.MutationState) bool { return s == keep.NeedsReconcile || s == keep.Indeterminate }

// ExtendDeadline returns m as the record of a call that may have been sent until end. A
// call is cancelled at its deadline, but a host that was stopped, or a connector
// that does not listen, may send after it: the effect then settles later, and an
// absence counts later.
func ExtendDeadline(m keep.Mutation, end time.Time) keep.Mutation {
	if end.After(m.CallDeadline) {
		m.CallDeadline = end
	}
	return m
}

// MaxLate returns how long after m was recorded its call may be sent, at most: a quarter of its time, or a second. What is
// sent late may take effect as late, and a process that dies cannot say how late it was.
func MaxLate(m keep.Mutation) time.Duration {
	limit := m.CallDeadline.Sub(m.UpdatedAt)
	return min(limit, max(limit/4, time.Second))
}

// Died returns m, of which nothing but the record of its call is left, as one that may have been sent as late as that allows.
func Died(m keep.Mutation) keep.Mutation {
	return ExtendDeadline(m, m.CallDeadline.Add(MaxLate(m)))
}

// SentAgain returns m as the record of a call that may have been sent again at now: what it
// counts in budgets, it counts from then on.
func SentAgain(m keep.Mutation, now time.Time) keep.Mutation {
	if !m.SpentAt.IsZero() && now.After(m.SpentAt) {
		m.SpentAt = now
	}
	return m
}

// SendAgain returns m, which is in doubt, as the record of a call that is about to be sent again, and may be until then: others that
// would come into it wait (keep.Mutation.SentAgainUntil). What the lookup brings is applied to the record before.
func SendAgain(m keep.Mutation, until, now time.Time) keep.Mutation {
	m = ExtendDeadline(m, until)
	m.NextReconcileAt, m.UpdatedAt = m.CallDeadline, now
	return m
}

// AskSooner returns m, which is in doubt, with its next lookup at now, and whether that is sooner. One that may be sent again at this moment
// is being asked about: its record keeps saying until when, or others would not wait.
func AskSooner(m keep.Mutation, now time.Time) (keep.Mutation, bool) {
	if !m.NextReconcileAt.After(now) || m.SentAgainUntil().After(now) {
		return m, false
	}
	m.NextReconcileAt, m.UpdatedAt = now, now
	return m, true
}

// LastAttempt returns when the last attempt at a call was recorded, and whether its outcome was unknown at some time.
func LastAttempt(moves []keep.Move) (at time.Time, doubted bool) {
	for _, m := range moves {
		if Evidence(m.Evidence) == NewAttempt {
			at, doubted = m.At, false
		}
		doubted = doubted || Unsettled(m.To)
	}
	return at, doubted
}

// tooEarly reports whether f is an absence that proves nothing: the record is in doubt, and the
// effect may still have appeared after the service was asked.
func tooEarly(m keep.Mutation, f Fact, now time.Time) bool {
	return f.Evidence == Absent && m.State == keep.NeedsReconcile && (now.Before(m.SettlesAt()) || f.AskedAt.Before(m.SettlesAt()))
}

// A Limit bounds the lookups after a doubt.
type Limit struct {
	Attempts int       // lookups that count before the record is indeterminate
	Next     time.Time // when to ask again if this one brought nothing
}

// AfterLookup returns m after the service was asked what happened and answered
// Happened, Absent or Unsure. An absence that comes too early counts as unsure,
// uses up no attempt, and plans the next lookup for the time when it can be
// believed. Neither does a lookup while the call is out, nor one that was not made because
// its account must be connected again or a person must look at its tool first, or that found nothing while it is not known whether the
// credentials are of the same user: whoever connects it or says so has the next one made.
//
// Only a record in doubt is asked about: one in flight is moved on by what its
// own call learned first.
func AfterLookup(m keep.Mutation, f Fact, limit Limit, now time.Time) (keep.Mutation, keep.Move, error) {
	if m.State != keep.NeedsReconcile {
		return m, keep.Move{}, &MoveError{m.Key, m.State, f.Evidence, "it is not in doubt"}
	}
	said := m.Error
	if f.Failure == nil && f.Evidence != Happened && (Refused(said) || ToolMissing(said)) { // that is over
		why := f.Detail
		if ToolMissing(said) { // it says why the call was in doubt before
			why = cmp.Or(why, said.Message)
		}
		said = keep.Failf(keep.ClassUnknown, "no-answer", "%s", why)
		f.Failure = said
	}
	early, next := tooEarly(m, f, now), m.SettlesAt()
	switch {
	case f.Out && f.Evidence != Happened:
		early, next, f.Evidence, f.Failure = true, limit.Next, Unsure, nil
		f.Detail = joinDetail("the call has not returned and may still be sent", f.Detail)
	case f.Evidence == Unsure && (AsksForAccount(f.Failure) || AsksForTool(f.Failure)):
		early, next = true, limit.Next
		f.Detail = joinDetail(NotAsked, f.Detail)
	case f.Evidence == Unsure && AsksForUser(f.Failure):
		early, next = true, limit.Next
	case early:
		f.Evidence = Unsure
		f.Detail = joinDetail("nothing found, but the effect may still appear until "+
			m.SettlesAt().UTC().Format(time.RFC3339Nano), f.Detail)
	case f.Evidence == Absent && f.Unwitnessed:
		f.Evidence, f.Failure = CannotAsk, unwitnessed(said)
	}
	if f.Evidence != Unsure || early {
		m, move, err := Apply(m, f, now)
		if err == nil && early {
			m.NextReconcileAt = next
		}
		return m, move, err
	}
	count := m.ReconcileAttempts + 1
	if Refused(f.Failure) {
		f.Evidence = AttemptsExhausted // it is refused until a person acts
	}
	if f.Evidence != AttemptsExhausted && count >= limit.Attempts {
		f.Evidence = AttemptsExhausted
		f.Detail = joinDetail(fmt.Sprintf("asked %d times", count), f.Detail)
	}
	after, move, err := Apply(m, f, now)
	if err != nil {
		return m, keep.Move{}, err
	}
	after.ReconcileAttempts = count
	if after.State == keep.NeedsReconcile {
		after.NextReconcileAt = limit.Next
	}
	return after, move, nil
}

// AfterInlineLookup is AfterLookup for the one lookup right after the call. It uses up no
// attempt, so it cannot spend them.
func AfterInlineLookup(m keep.Mutation, f Fact, next, now time.Time) (keep.Mutation, keep.Move, error) {
	after, move, err := AfterLookup(m, f, Limit{Attempts: m.ReconcileAttempts + 2, Next: next}, now)
	if err == nil {
		after.ReconcileAttempts = m.ReconcileAttempts
	}
	return after, move, err
}

// unwitnessed returns why a person is asked about a call that failed as f says, and of
// which a lookup found nothing.
func unwitnessed(f *keep.Failure) *keep.Failure {
	const reason = "the service was asked and shows no effect, but nothing shows that this lookup finds what is there"
	if f == nil {
		return keep.Failf(keep.ClassUnknown, "not-witnessed", reason)
	}
	doubt := *f
	doubt.Class, doubt.Code, doubt.Message = keep.ClassUnknown, "not-witnessed", f.Message+"; "+reason
	return &doubt
}

// NotAsked is a part of the detail of a lookup that asked nobody.
const NotAsked = "the service was not asked"

// Lookups returns how often the service was asked what became of a call, of whatever
// use the answers were.
func Lookups(moves []keep.Move) int {
	n := 0
	for _, m := range moves {
		if m.By == "reconcile" && Evidence(m.Evidence) != CannotAsk && !slices.Contains(strings.Split(m.Detail, "; "), NotAsked) {
			n++
		}
	}
	return n
}

// Sent reports whether the last attempt of a call is known to have left: it came back, with
// whatever answer, or without one. Of one that the host died in nobody knows.
func Sent(moves []keep.Move) bool {
	sent := false
	for _, m := range moves {
		switch {
		case Evidence(m.Evidence) == NewAttempt:
			sent = false
		case m.By == "call" && Evidence(m.Evidence) != Absent:
			sent = true
		}
	}
	return sent
}

// Vouched reports whether the last doubt about a call was ended by a person who said that it did not happen,
// so that no service has shown its absence.
func Vouched(moves []keep.Move) bool {
	vouched := false
	for _, m := range moves {
		if Unsettled(m.From) && m.To == keep.Failed {
			vouched = Evidence(m.Evidence) == DidNotHappen
		}
	}
	return vouched
}

func joinDetail(a, b string) string {
	if b == "" {
		return a
	}
	return a + "; " + b
}

// A Call is what one call of a mutate tool will send.
type Call struct {
	Key         keep.MutationKey
	Workflow    keep.WorkflowName
	Run         keep.RunID
	Item        string
	ItemAttempt int

	Tool         keep.ToolName
	Connector    string
	Level        keep.Level
	Target       string
	Identity     []byte
	Subkey       string
	Payload      []byte
	PayloadHash  string
	Token        string
	Title        string
	Deadline     time.Time
	SettleAfter  time.Duration
	CanReconcile bool
	Pin          []byte // where and how it is sent; see keep.Mutation
	PinHash      string

	Spent []keep.Spent // what it counts in budgets
}

// Open returns the record of a first call, in flight.
func Open(c Call, now time.Time) (keep.Mutation, keep.Move) {
	m := fill(keep.Mutation{Key: c.Key, CreatedAt: now, Attempts: 1}, c, now)
	return m, keep.Move{At: now, By: "call", To: keep.InFlight, Evidence: string(NewAttempt)}
}

// Reopen returns a failed record with one more attempt, in flight. The key, the
// token and the history stay; what is sent may differ, since nothing happened.
func Reopen(m keep.Mutation, c Call, now time.Time) (keep.Mutation, keep.Move, error) {
	to, ok := Allowed(m.State, NewAttempt)
	if !ok {
		return m, keep.Move{}, &MoveError{Key: m.Key, From: m.State, With: NewAttempt}
	}
	if c.Key != m.Key {
		return m, keep.Move{}, &MoveError{m.Key, m.State, NewAttempt, "the call has key " + string(c.Key)}
	}
	move := keep.Move{At: now, By: "call", From: m.State, To: to, Evidence: string(NewAttempt)}
	c.Token = m.Token
	m.Attempts++
	m.Error, m.ResolvedBy, m.ReconcileAttempts, m.NextReconcileAt = nil, "", 0, time.Time{}
	return fill(m, c, now), move, nil
}

func fill(m keep.Mutation, c Call, now time.Time) keep.Mutation {
	m.Workflow, m.Run, m.Item, m.Attempt = c.Workflow, c.Run, c.Item, c.ItemAttempt
	m.Tool, m.Connector, m.Level, m.Target = c.Tool, c.Connector, c.Level, c.Target
	m.Identity, m.Subkey = c.Identity, c.Subkey
	m.Payload, m.PayloadHash = c.Payload, c.PayloadHash
	m.Token, m.Title = c.Token, keep.CutTitle(c.Title)
	m.CallDeadline, m.SettleAfter, m.CanReconcile = c.Deadline, c.SettleAfter, c.CanReconcile
	m.Pin, m.PinHash = c.Pin, c.PinHash
	if m.Spent, m.SpentAt = c.Spent, (time.Time{}); len(c.Spent) > 0 {
		m.SpentAt = now
	}
	m.State, m.UpdatedAt = keep.InFlight, now
	return m
}

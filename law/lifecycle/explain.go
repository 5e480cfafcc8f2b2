package lifecycle

import (
	"fmt"
	"strings"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/law/ledger"
)

// A WaitKind says what an unfinished run waits for.
type WaitKind string

const (
	WaitsForNothing  WaitKind = ""          // it is closed
	WaitsForHost     WaitKind = "host"      // it is being executed
	WaitsForRetry    WaitKind = "retry"     // the time of the next attempt
	WaitsForLimit    WaitKind = "limit"     // the limits of a connection allow the call
	WaitsForRecovery WaitKind = "recovery"  // a host takes up what another one left, or what was decided
	WaitsForLookup   WaitKind = "lookup"    // the service says whether the call happened
	WaitsForTool     WaitKind = "tool"      // a tool is put back, by which the service can be asked whether the call happened
	WaitsForDecision WaitKind = "decision"  // a person says whether the call happened
	WaitsForApproval WaitKind = "approval"  // a person agrees to the call
	WaitsForBudget   WaitKind = "budget"    // a budget has room for the call, or a person decides
	WaitsForBreaker  WaitKind = "breaker"   // a person lets calls of a tool through, which failed too often
	WaitsForPerson   WaitKind = "person"    // a person answers another question
	WaitsForAccount  WaitKind = "account"   // a person connects an account again
	WaitsForScript   WaitKind = "script"    // a corrected script, or a person
	WaitsForRepair   WaitKind = "repair"    // a model writes another script
	WaitsForDebugger WaitKind = "internal"  // a person looks at a bug of Keep
	WaitsForUnknown  WaitKind = "undefined" // a status that no rule explains
)

// A Wait is what an unfinished run waits for (law: explained).
type Wait struct {
	Kind  WaitKind
	Since time.Time
	Until time.Time // when the host acts by itself; zero: no time is planned
	Why   string    // why the run stopped, or for what its lookup waits; empty: nothing stops it
	Call  string    // the call in doubt or under way: "crm.create on email=ada"
	N     int       // number of the planned attempt or lookup, from 1

	phase  keep.Phase
	status keep.RunStatus
	paused bool // see Paused
}

// WaitOf returns what r waits for. m is r's mutation; its zero value means none.
func WaitOf(r keep.Run, m keep.Mutation) Wait {
	if r.Closed {
		return Wait{}
	}
	if r.Status == keep.StatusReconciliation && m.Key != "" && !Unknown(m.State) { // decided, or found
		return Wait{Kind: WaitsForRecovery, Since: m.UpdatedAt, Call: callOf(m), phase: r.Phase, status: r.Status}
	}
	if r.Status == keep.StatusReconciliation && (m.Key != "" || r.RetryAt.IsZero()) {
		return doubt(m, r.UpdatedAt)
	}
	w := Wait{Since: r.UpdatedAt, Until: r.RetryAt, Why: reason(r), phase: r.Phase, status: r.Status}
	if Limited(r) {
		return limited(w, r)
	}
	if OverBudget(r) && r.RetryAt.After(r.UpdatedAt) {
		w.Kind, w.Why = WaitsForBudget, strings.TrimRight(r.Error.Message, ".")
		return w
	}
	if !r.RetryAt.IsZero() && !AwaitsApproval(r) {
		w.Kind = WaitsForRetry
		switch r.Status {
		case keep.StatusTransient:
			w.N = r.Retries + 2
			if Interrupted(r) {
				w.Kind, w.N = WaitsForRecovery, 0
			}
		case keep.StatusCrashed:
			w.Kind = WaitsForRecovery
		}
		return w
	}
	switch r.Status {
	case keep.StatusActive:
		if w.Kind = WaitsForHost; m.State == keep.InFlight {
			w = w.In(callOf(m), m.UpdatedAt)
		}
	case keep.StatusApproval:
		if w.Kind = WaitsForApproval; OverBudget(r) {
			w.Kind, w.Why = WaitsForBudget, strings.TrimRight(r.Error.Message, ".")
		}
	case keep.StatusPerson:
		switch w.Kind = WaitsForPerson; {
		case AsksForAccount(r.Error):
			w.Kind = WaitsForAccount
		case Stopped(r):
			w.Kind, w.Call, w.Why = WaitsForBreaker, string(r.Error.Tool), strings.TrimRight(r.Error.Message, ".")
		}
	case keep.StatusLogic:
		if w.Kind = WaitsForScript; IsHandlerGone(r) {
			w.Kind = WaitsForPerson
		}
	case keep.StatusInternal:
		w.Kind = WaitsForDebugger
	default:
		w.Kind = WaitsForUnknown
	}
	return w
}

// limited returns what r waits for, which the limits of a connection hold up.
func limited(w Wait, r keep.Run) Wait {
	w.Kind, w.Why = WaitsForLimit, strings.TrimRight(strings.Join(strings.Fields(r.Error.Message), " "), ".")
	switch name := r.Error.Tool.Connection(); {
	case r.Error.Code == keep.CodeLimit:
	case r.Error.Outage:
		w.Why = name + ", which does not answer: " + w.Why
	default:
		w.Why = name + ", which named a time before which it wants no calls: " + w.Why
	}
	if after := r.Error.RetryAfter; w.Until.IsZero() && after > time.Millisecond { // else it is behind others, and when it is its turn is not known
		w.Until = r.UpdatedAt.Add(after)
	}
	return w
}

// In returns w as it is while a call or read of a run that is executed is out since then.
func (w Wait) In(call string, since time.Time) Wait {
	if w.Kind == WaitsForHost && w.Call == "" {
		w.Call, w.Since = call, since
	}
	return w
}

// Repaired returns w, which waits for a script, as it is while one is written: "repair, attempt 1 of
// 3".
func (w Wait) Repaired(attempt string) Wait {
	if w.Kind == WaitsForScript {
		w.Kind, w.Call = WaitsForRepair, attempt
	}
	return w
}

// Proposed returns w, which waits for a script, as it is while a person is asked about one.
func (w Wait) Proposed(version string) Wait {
	if w.Kind == WaitsForScript {
		w.Kind, w.Why = WaitsForPerson, "version "+version+", which a repair wrote, is to be accepted or rejected"
	}
	return w
}

// callOf names a call by what it does: "crm.create on email=ada".
func callOf(m keep.Mutation) string {
	switch {
	case m.Key == "":
		return "a call"
	case m.Target == "":
		return string(m.Tool)
	}
	return fmt.Sprintf("%s on %s", m.Tool, m.Target)
}

// TimesSent says how often a call was sent: "sent once", "not sent". Where asking is the same call once more, that is said.
func TimesSent(m keep.Mutation) string {
	times := "once"
	if m.Attempts != 1 {
		times = fmt.Sprintf("%d times", m.Attempts)
	}
	switch {
	case m.Level == keep.LevelKey && (m.ReconcileAttempts > 0 || m.ResolvedBy == "reconcile"):
		return "sent " + times + ", and again by lookups"
	case !ledger.Unsent(m):
		return "sent " + times
	case m.Attempts == 1:
		return "not sent"
	}
	return "tried " + times + ", and not sent the last time"
}

// LookupEffect says for a person what asking about a call in doubt sends: a service that is asked by
// the same call under the same key gets that call, if it is the same user's.
func LookupEffect(m keep.Mutation) string {
	switch {
	case ledger.OfAnotherUser(m.Error):
		return "sends nothing while the connection has the credentials of another user"
	case m.Level == keep.LevelKey && ledger.ToolMissing(m.Error):
		return fmt.Sprintf("sends nothing while there is no tool %s", m.Tool)
	case m.Level == keep.LevelKey:
		return "sends the same call with the same key, or nothing if the service may not know that any more: one that happened does not happen again"
	}
	return "sends nothing"
}

// Paused returns w as it is while the workflow is paused: what a host would do at a time is done when a person has resumed it.
func (w Wait) Paused() Wait {
	switch w.Kind {
	case WaitsForRetry, WaitsForLimit, WaitsForRecovery:
		w.paused, w.Until = true, time.Time{}
	}
	return w
}

// Held returns w as the limits of a connection hold it up until then: for the limits, and what
// was planned sooner is done at that time. Another wait is as it was.
func (w Wait) Held(why string, until time.Time) Wait {
	switch w.Kind {
	case WaitsForRetry, WaitsForLimit:
		w.Kind, w.Why, w.Until = WaitsForLimit, why, until
	case WaitsForLookup:
		if w.Why = why; until.After(w.Until) {
			w.Until = until
		}
	}
	return w
}

// WaitOfDoubt returns what a call with an unknown outcome waits for that no open run
// waits for. Of every other call it is the zero Wait.
func WaitOfDoubt(m keep.Mutation) Wait {
	if !Unknown(m.State) {
		return Wait{}
	}
	return doubt(m, m.UpdatedAt)
}

// doubt returns what is awaited of a call with an unknown outcome. Each lookup changes the record, so since is at most
// the time when the call was over.
func doubt(m keep.Mutation, since time.Time) Wait {
	if over := m.CallDeadline; !over.IsZero() && over.Before(since) {
		since = over
	}
	w := Wait{Kind: WaitsForLookup, Since: since, Until: m.NextReconcileAt, Call: callOf(m)}
	if m.State == keep.Indeterminate {
		w.Kind, w.Until = WaitsForDecision, time.Time{}
	} else if AsksForAccount(m.Error) {
		w.Kind, w.Until = WaitsForAccount, time.Time{}
		w.Why = "it is not known whether " + w.Call + " happened, and " + sentence(m.Error)
	} else if AsksForUser(m.Error) || AsksForTool(m.Error) {
		w.Kind, w.Until = WaitsForPerson, time.Time{}
		w.Why = "it is not known whether " + w.Call + " happened, and " + sentence(m.Error)
	} else if !w.Until.IsZero() {
		w.N = m.ReconcileAttempts + 1
		if ledger.ToolMissing(m.Error) {
			w.Kind, w.Why = WaitsForTool, "there is no tool "+string(m.Tool)+" in this program or its keep.toml"
		}
	}
	return w
}

// IsZero reports whether there is nothing to wait for.
func (w Wait) IsZero() bool { return w.Kind == WaitsForNothing }

// NeedsPerson reports whether only a person moves it.
func (w Wait) NeedsPerson() bool {
	switch w.Kind {
	case WaitsForDecision, WaitsForApproval, WaitsForBudget, WaitsForBreaker, WaitsForPerson, WaitsForAccount, WaitsForScript, WaitsForDebugger:
		return true
	}
	return false
}

// Moves says in a few words what ends the wait.
func (w Wait) Moves() string {
	if w.paused {
		return "a person who resumes the workflow"
	}
	switch w.Kind {
	case WaitsForNothing:
		return ""
	case WaitsForHost:
		if w.Call != "" {
			return "an answer of the service"
		}
		return "the host"
	case WaitsForLimit:
		return "the limits of the connection"
	case WaitsForRetry, WaitsForRecovery:
		if w.Until.IsZero() {
			return "the host"
		}
		return "the host, at that time"
	case WaitsForLookup:
		return "an answer of the service"
	case WaitsForTool:
		return "a person who puts the tool back"
	case WaitsForScript:
		return "a corrected version, or a person"
	case WaitsForRepair:
		return "the host, or a corrected version"
	case WaitsForAccount:
		return "a person who connects the account"
	}
	return "a person"
}

// A Part is a piece of a sentence: a text, or a time.
type Part struct {
	Text    string
	Time    time.Time // not zero: the part is this time, and has no text
	Command bool      // says where the command shows more; pages have links instead
}

// String writes the sentence for the command and for JSON.
func (w Wait) String() string {
	var b strings.Builder
	for _, p := range w.Parts() {
		if p.Time.IsZero() {
			b.WriteString(p.Text)
		} else {
			b.WriteString(p.Time.UTC().Format("2006-01-02 15:04:05 UTC"))
		}
	}
	return b.String()
}

// Parts returns the sentence in pieces, for those who write its times in their own
// way. It has none if there is nothing to wait for.
func (w Wait) Parts() []Part {
	since, until := Part{Time: w.Since}, Part{Time: w.Until}
	s := func(text string) Part { return Part{Text: text} }
	again := []Part{s(" at "), until}
	if w.paused {
		again = []Part{s(" when its workflow is resumed")}
	}
	switch w.Kind {
	case WaitsForNothing:
		return nil
	case WaitsForHost:
		if w.Call != "" {
			return []Part{s("Waits for " + w.Call + " since "), since, s(", in phase " + string(w.phase) + ".")}
		}
		return []Part{s("Is being executed, in phase " + string(w.phase) + " since "), since, s(".")}
	case WaitsForRecovery:
		return w.forRecovery(since, again)
	case WaitsForLimit:
		return w.forLimit(since, until)
	case WaitsForRetry:
		return append(append([]Part{s("Waits since "), since, s(" and is tried again")}, again...), s(w.after()))
	case WaitsForLookup:
		if w.Until.IsZero() {
			return []Part{s("It is not known since "), since, s(" whether " + w.Call + " happened; the service is asked next.")}
		}
		return []Part{s("It is not known since "), since, s(" whether " + w.Call + " happened; the service is asked again at "), until,
			s(fmt.Sprintf(" (lookup %d)%s.", w.N, w.held()))}
	case WaitsForTool:
		return []Part{s("It is not known since "), since, s(" whether " + w.Call + " happened, and nobody can be asked: " + w.Why +
			". Put it back, or decide when Keep asks you; it looks again at "), until, s(fmt.Sprintf(" (lookup %d).", w.N))}
	case WaitsForDecision:
		return []Part{s("Nobody can tell whether " + w.Call + " happened; waits since "), since, s(" for a person to decide"),
			{Text: " in keep inbox", Command: true}, s(".")}
	case WaitsForApproval:
		parts := []Part{s("Waits since "), since, s(" for a person to approve the call"), {Text: "; see keep inbox", Command: true}}
		if w.Until.IsZero() {
			return append(parts, s("."))
		}
		return append(parts, s("; asks again at "), until, s("."))
	case WaitsForBudget:
		parts := []Part{s("Waits since "), since, s(" for a person, or for room in its budget (" + w.Why + ")")}
		if !w.Until.IsZero() {
			parts = append(parts, s(", which it has at "), until, s(" if nothing else is spent"))
		}
		return append(parts, Part{Text: "; see keep inbox", Command: true}, s("."))
	case WaitsForBreaker:
		return []Part{s("Waits since "), since, s(" for a person to let calls of " + w.Call + " through, and then continues by itself (" + w.Why + ")"),
			{Text: "; see keep inbox", Command: true}, s(".")}
	case WaitsForPerson:
		return []Part{s("Waits since "), since, s(" for a person (" + w.Why + ")"), {Text: "; see keep inbox", Command: true}, s(".")}
	case WaitsForAccount:
		return []Part{s("Waits since "), since, s(" for an account, and continues by itself when it is connected (" + w.Why + ").")}
	case WaitsForScript:
		return []Part{s("Waits since "), since, s(" for a corrected version, or for a person to retry or skip: " + w.Why + ".")}
	case WaitsForRepair:
		return []Part{s("Waits since "), since, s(" for a " + w.Call + ", after: " + w.Why + ".")}
	case WaitsForDebugger:
		return []Part{s("Stopped since "), since, s(" by an internal failure (" + w.Why + "); a person must look at it.")}
	}
	return []Part{s("Is " + string(w.status) + " since "), since, s(".")}
}

// forRecovery is the sentence of one whose work is taken up again.
func (w Wait) forRecovery(since Part, again []Part) []Part {
	if w.Call != "" {
		return []Part{{Text: "It is known since "}, since, {Text: " what became of " + w.Call + "; the work is taken up again next."}}
	}
	left := "The host died while it executed phase " + string(w.phase)
	if w.status != keep.StatusCrashed {
		left = "Left in phase " + string(w.phase) + ", since " + w.Why
	}
	return append(append([]Part{{Text: left + "; the work is taken up again"}}, again...), Part{Text: "."})
}

// forLimit is the sentence of one that waits for the limits of a connection.
func (w Wait) forLimit(since, until Part) []Part {
	switch {
	case w.paused:
		return []Part{{Text: "Waits since "}, since, {Text: " for its workflow to be resumed, and for " + w.Why + "."}}
	case w.Until.IsZero():
		return []Part{{Text: "Waits since "}, since, {Text: " for " + w.Why + ", behind others."}}
	}
	return []Part{{Text: "Waits since "}, since, {Text: " for " + w.Why + "; next at "}, until, {Text: "."}}
}

// held says for what a lookup waits that is due or would be sooner.
func (w Wait) held() string {
	if w.Why == "" {
		return ""
	}
	return "; it waits for " + w.Why
}

// after ends the sentence about a planned attempt: which one, and after what.
func (w Wait) after() string {
	switch {
	case w.N > 0:
		return fmt.Sprintf(" (attempt %d), after: %s.", w.N, w.Why)
	case w.status == keep.StatusLogic:
		return " with the current version, after: " + w.Why + "."
	}
	return ", after: " + w.Why + "."
}

// reason is why r stopped, without the full stop of a message.
func reason(r keep.Run) string {
	if r.Error != nil {
		return sentence(r.Error)
	}
	return string(r.Status)
}

// sentence is a failure on one line, without the full stop of its message.
func sentence(f *keep.Failure) string {
	return strings.TrimRight(strings.Join(strings.Fields(f.Error()), " "), ".")
}

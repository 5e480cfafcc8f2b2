// Package repeat decides what a call of an agent is that was made before: the same call, whose
// answer the agent never got, or another one (docs/design/0012-gateway.md).
//
// Two calls are the same if agent, tool, canonical arguments and named intent are. The answer of
// the first counts until it was delivered: a repeat joins it or gets it again. From then on the
// owner's policy says what an equal call means.
package repeat

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/law/ledger"
)

// A Policy says what becomes of an equal call after the answer of the first was delivered.
type Policy string

const (
	Allow  Policy = "allow"  // it is another call
	Ask    Policy = "ask"    // it is another call, and a person is asked before it is made
	Replay Policy = "replay" // it gets the answer of the first
)

// Policies returns every policy.
func Policies() []Policy { return []Policy{Allow, Ask, Replay} }

// Rules are an owner's numbers.
type Rules struct {
	Repeat Policy
	Window time.Duration // how long after its delivery the policy holds; later an equal call is another one
	Rejoin time.Duration // an answer that was not delivered for so long counts as delivered
}

// DefaultRules returns the rules of an owner who says nothing.
func DefaultRules() Rules { return Rules{Repeat: Allow, Window: time.Hour, Rejoin: 24 * time.Hour} }

// Identity is what makes two calls the same.
type Identity struct {
	Agent    string
	Tool     keep.ToolName
	Identity []byte // canonical
	Intent   string // named by the agent; empty: none
}

// Hash returns the name of a call: a hash over every field, each with its length.
func (i Identity) Hash() string {
	h := sha256.New()
	for _, part := range []string{i.Agent, string(i.Tool), string(i.Identity), i.Intent} {
		fmt.Fprintf(h, "%d:%s", len(part), part)
	}
	return hex.EncodeToString(h.Sum(nil))[:40]
}

// A Last is the last call of an identity, with its run and record as they stand.
type Last struct {
	Run       keep.Run
	Mutation  keep.Mutation // zero: none was recorded
	Delivered time.Time     // when its last answer was; zero: it was not
}

// A Verdict is what a call is.
type Verdict string

const (
	New     Verdict = "new"     // it is made
	Confirm Verdict = "confirm" // it is made after a person agreed
	Join    Verdict = "join"    // the first is being made: its answer is awaited
	Again   Verdict = "again"   // the first is known not to have happened: it is made under its key
	Answer  Verdict = "answer"  // it gets what is known of the first, and nothing is sent
)

// Makes reports whether the call is made, if nothing stops it.
func (v Verdict) Makes() bool { return v == New || v == Confirm || v == Again }

// Decide returns what a call is after last, of the same identity; nil: there was none. One that has a record, and is known not to have
// happened, is made under the key of that whoever rejected it last.
func Decide(last *Last, r Rules, now time.Time) Verdict {
	v := decide(last, r, now)
	if (v == New || v == Confirm) && last != nil && last.Mutation.State == keep.Failed {
		return Again
	}
	return v
}

func decide(last *Last, r Rules, now time.Time) Verdict {
	if last == nil || last.Run.ID == "" {
		return New
	}
	run, m := last.Run, last.Mutation
	switch {
	case run.Status == keep.StatusActive:
		return Join
	case m.State == keep.InFlight || m.State == keep.NeedsReconcile || m.State == keep.Indeterminate:
		return Answer
	case !run.Closed && (m.Key == "" || m.State == keep.Failed):
		if !run.RetryAt.IsZero() && !run.RetryAt.After(now) { // a person decided, or the question ended
			return Again
		}
		return Answer
	case m.State == keep.Failed && !rejected(run), givenUp(run, m):
		return Again
	}
	// It is applied, skipped, or a person refused it: that does not change any more.
	delivered := last.Delivered
	if delivered.IsZero() {
		if now.Sub(run.UpdatedAt) <= r.Rejoin {
			return Answer
		}
		delivered = run.UpdatedAt.Add(r.Rejoin)
	}
	if now.Sub(delivered) > r.Window {
		return New
	}
	switch r.Repeat {
	case Ask:
		return Confirm
	case Replay:
		return Answer
	}
	return New
}

// givenUp reports whether a call was over before it was recorded and nobody rejected it, as one that waited for a limit when its gateway ended: a
// person rejects one about which he is asked, and that its run says then.
func givenUp(run keep.Run, m keep.Mutation) bool {
	return run.Status == keep.StatusAborted && m.Key == "" && run.Error != nil && !rejected(run)
}

// rejected reports whether an attempt at a call is over since a person rejected what he was asked about it.
func rejected(run keep.Run) bool {
	return run.Status == keep.StatusAborted && run.Error != nil && slices.Contains([]string{"approval-needed", keep.CodeAlreadyDone, keep.CodeBudget}, run.Error.Code)
}

// Ref returns the reference of a call: the key of its record, which it has from its first run on.
func Ref(run keep.Run) string { return string(ledger.RunKey(run.Chain)) }

// State returns the state of a call as agents see it, also of one that has no record.
func State(run keep.Run, m keep.Mutation) string {
	switch {
	case m.State == keep.Failed && rejected(run):
		return "rejected"
	case m.Key != "":
		return string(m.State)
	case givenUp(run, m):
		return string(keep.Failed)
	case run.Status == keep.StatusAborted:
		return "rejected"
	case run.Status == keep.StatusCommitted:
		return string(keep.Applied)
	}
	return "waiting"
}

// Sentence says in words, for an agent, how a call stands.
func Sentence(tool keep.ToolName, run keep.Run, m keep.Mutation) string {
	ref, why := Ref(run), ""
	if run.Error != nil {
		why = strings.TrimRight(run.Error.Message, ".")
	}
	switch {
	case m.State == keep.NeedsReconcile || m.State == keep.Indeterminate || m.State == keep.InFlight:
		return fmt.Sprintf("The outcome of %s is unknown; do not repeat it; ask keep_outcome with %s.", tool, ref)
	case m.State == keep.Applied:
		return fmt.Sprintf("%s happened (%s).", tool, ref)
	case m.State == keep.Skipped:
		return fmt.Sprintf("A person closed the question whether %s happened, without an answer; nothing more is sent for it (%s).", tool, ref)
	case run.Status == keep.StatusAborted && m.Key == "" && !givenUp(run, m), m.State == keep.Failed && rejected(run):
		return fmt.Sprintf("A person rejected this call of %s; nothing was sent (%s).", tool, ref)
	case !run.Closed && run.Error != nil && run.Error.Code == keep.CodeBudget:
		return fmt.Sprintf("%s was not called: its budget is spent (%s). A person is asked; nothing was sent. Make the same call again later, or ask keep_outcome with %s.", tool, why, ref)
	case !run.Closed:
		return fmt.Sprintf("%s waits for a person, who is asked whether it may be made; nothing was sent. Make the same call again later, or ask keep_outcome with %s.", tool, ref)
	}
	if m.Error != nil {
		why = strings.TrimRight(m.Error.Message, ".")
	}
	return fmt.Sprintf("%s did not happen: %s (%s). It may be called again.", tool, why, ref)
}

// Final reports whether what is known of a call is its last answer: only that can be delivered.
func Final(run keep.Run, m keep.Mutation) bool {
	return run.Closed && !givenUp(run, m) && (m.Key == "" || m.State == keep.Applied || m.State == keep.Skipped || m.State == keep.Failed && rejected(run))
}

package account

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/keep-run/keep"
)

// A Change is an account or a secret that a connection sends with now, and that is another one than it
// was when a call was made. Whether it is of the same user decides what the service's answers mean: another
// user does not see the effect, and has other keys, so nothing found is no absence, and the call sent again
// is a second one.
type Change struct {
	Ref string // as keep.SentAs.As calls it
	Was string
	Now string // empty: there is no such secret any more, and no such account is named

	place string // what came since, if Now is empty: whatever may have the place of Ref
}

// Changes returns what of the credentials of a call changed since. An account that is named still, and
// holds nothing at present, is no change: it sends nothing. A secret that only has another name is none either.
func Changes(was, now map[string]string) (out []Change) {
	values := slices.Collect(maps.Values(now))
	came := ""
	for _, ref := range slices.Sorted(maps.Keys(now)) {
		if _, had := was[ref]; !had {
			came += "\n" + ref + "\n" + now[ref]
		}
	}
	for _, ref := range slices.Sorted(maps.Keys(was)) {
		c := Change{Ref: ref, Was: was[ref], Now: now[ref]}
		if c.Now == "" {
			c.place = came
		}
		_, named := now[ref]
		switch account := keep.OfAccount(ref) != ""; {
		case c.Was == c.Now, account && named && c.Now == "", !account && slices.Contains(values, c.Was):
		default:
			out = append(out, c)
		}
	}
	return out
}

// QuestionID returns the id of the one question about a change, whichever calls, workflows and hosts
// it concerns: the nth, from 0, since one may be withdrawn and asked again.
func (c Change) QuestionID(n int) keep.EscalationID {
	about := c.Ref + "\n" + c.Was + "\n" + c.Now + c.place
	if n > 0 {
		about += fmt.Sprintf("\nasked again %d", n)
	}
	sum := sha256.Sum256([]byte(about))
	return keep.EscalationID("esc_user_" + hex.EncodeToString(sum[:10]))
}

// IsUserQuestion reports whether a question is about a Change.
func IsUserQuestion(q keep.Escalation) bool {
	return q.Kind == keep.AskPermission && q.Run == "" && q.Workflow == ""
}

// Withdrawn reports whether a question was closed since nothing waited for its answer any more. It says nothing of
// the user: what waits later asks the next one.
func Withdrawn(q keep.Escalation) bool { return !q.ClosedAt.IsZero() && q.Decision == nil }

// Awaits reports whether a call may wait for the answer to a question about a change: it is in doubt, and was sent
// with some value of what has changed. It may be looked up once more before it says that it waits.
func Awaits(m keep.Mutation, q keep.Escalation) bool {
	return m.State == keep.NeedsReconcile && m.SentAs().As[q.Title] != ""
}

// Said returns what a person answered to the question about a change: that it is of the same user, that
// it is another's, or neither yet.
func Said(q keep.Escalation) (same, answered bool) {
	if q.ClosedAt.IsZero() {
		return false, false
	}
	return q.Decision != nil && q.Decision.Action == keep.Approve, true
}

// Before says for people what the calls were sent with.
func (c Change) Before() string {
	if name := keep.OfAccount(c.Ref); name != "" {
		return fmt.Sprintf("the account %s (%s)", name, c.Was)
	}
	return fmt.Sprintf("another value of the %s", c.Ref)
}

// After says for people what became of that.
func (c Change) After() string {
	switch name := keep.OfAccount(c.Ref); {
	case name != "" && c.Now == "":
		return fmt.Sprintf("the connection does not name %s any more", name)
	case name != "":
		return fmt.Sprintf("%s was connected again since (%s)", name, c.Now)
	case c.Now == "":
		return fmt.Sprintf("there is no %s any more, or what has its place is another one", c.Ref)
	}
	return fmt.Sprintf("the %s was replaced since", c.Ref)
}

// Question returns what a person is asked about a change, when it first matters: for the call m. It is the nth about it.
func (c Change) Question(m keep.Mutation, n int, now time.Time) keep.Escalation {
	q := keep.Escalation{
		ID: c.QuestionID(n), Kind: keep.AskPermission, CreatedAt: now, Connection: m.Tool.Connection(), Title: c.Ref,
		Question:  fmt.Sprintf("Is the %s still that of the same user? %s sent calls in doubt with %s, and %s.", c.Ref, m.Tool.Connection(), c.Before(), c.After()),
		Attempted: fmt.Sprintf("%s on %s, and every other call in doubt that was sent so", m.Tool, m.Target),
		Why:       "the service shows another user no effect of these calls, and takes them for new ones if they are sent again; so they wait, and nothing is sent again until you decide",
		Choices: []keep.Choice{
			{Action: keep.Approve, Label: "The same user", Effect: "the service is asked again about all of these calls, and what it does not show did not happen; the others are sent again under their keys"},
			{Action: keep.Reject, Label: "Another user", Effect: "what the service does not show proves nothing; you are asked about each of these calls"},
		},
	}
	return q
}

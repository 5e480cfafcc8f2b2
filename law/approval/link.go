package approval

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base32"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/keep-run/keep"
)

// FromLink is the surface of a decision that came by a link; see keep.Decision.
const FromLink = "link"

// LinkLife is how long a link can be used to answer a question that has no end of its own.
const LinkLife = 7 * 24 * time.Hour

// ByLink returns the choices of q that a link may answer with. Nothing that may send a call
// a second time is among them, nothing that needs more words than a press has, and nothing
// that an operator may not decide: who has the link has shown no role.
func ByLink(q keep.Escalation) []keep.Choice {
	if q.Run == "" {
		return nil // about a version, an account or a connection
	}
	return slices.DeleteFunc(slices.Clone(q.Choices), func(c keep.Choice) bool {
		switch c.Action {
		case keep.Approve, keep.Reject, keep.Retry, keep.Skip, keep.CheckAgain, keep.TreatAsDone:
			return c.Action.NeedsConfirmation() || c.Result == keep.ResultRequired
		}
		return true
	})
}

// LinkEnds returns when links to q end.
func LinkEnds(q keep.Escalation) time.Time {
	end := q.CreatedAt.Add(LinkLife)
	if !q.ExpiresAt.IsZero() && q.ExpiresAt.Before(end) {
		end = q.ExpiresAt
	}
	return end
}

// NotByLink returns why a link does not decide a on q, in words for whoever presses; empty:
// it does.
func NotByLink(q keep.Escalation, a keep.Action, now time.Time) string {
	if !slices.ContainsFunc(ByLink(q), func(c keep.Choice) bool { return c.Action == a }) {
		return "it cannot be decided by a link; log in to answer the question"
	}
	return LinkEnded(q, now)
}

// LinkEnded returns that links to q have ended, in words; empty: they have not.
func LinkEnded(q keep.Escalation, now time.Time) string {
	if end := LinkEnds(q); !now.Before(end) {
		return fmt.Sprintf("the link ended at %s; log in to answer the question", stamp(end))
	}
	return ""
}

// LinkCode returns the code of the link to q that one sink is sent, under the key of the
// store. It is bound to the question and to what was asked: the call by its hash, the version
// and the end. The same link has the same code in each attempt to send it, on every host.
func LinkCode(key []byte, q keep.Escalation, to keep.Sink) string {
	mac := hmac.New(sha256.New, key)
	parts := []string{"link", string(to), string(q.ID), string(q.Kind), string(q.Workflow), string(q.Run), q.PayloadHash,
		stamp(q.CreatedAt), stamp(q.ExpiresAt)}
	if q.Approval != nil {
		parts = append(parts, q.Approval.Version.String())
	}
	for _, part := range parts { // with its length, so that no two lists are written alike
		mac.Write(binary.AppendUvarint(nil, uint64(len(part))))
		mac.Write([]byte(part))
	}
	return strings.ToLower(base32.StdEncoding.EncodeToString(mac.Sum(nil)[:20]))
}

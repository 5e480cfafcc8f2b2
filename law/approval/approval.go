// Package approval is the law of approvals: which answer still counts, and which call it
// covers. An approval is bound to one call by its hash and to the version of the workflow
// that was current when it was asked, it can be used for that call alone, and it has an end.
// Whatever it does not cover is asked again, with the reason.
package approval

import (
	"fmt"
	"time"

	"github.com/keep-run/keep"
)

// Closed returns why a question of this kind cannot be answered, in words for whoever tries;
// empty: it can be. current is the version of its workflow.
func Closed(q keep.Escalation, current keep.Version, now time.Time) string {
	switch {
	case q.Decision != nil:
		return fmt.Sprintf("already decided: %s decided %s at %s, from the %s", q.Decision.By, q.Decision.Action, stamp(q.Decision.At), q.Decision.From)
	case q.Kind != keep.AskApproval && q.ClosedAt.IsZero():
		return ""
	case q.Kind == keep.AskApproval && ended(q, later(q.ClosedAt, now)):
		return fmt.Sprintf("it ended at %s, and nobody had answered; the run asks again", stamp(q.ExpiresAt))
	case q.Kind == keep.AskApproval && otherVersion(q, current):
		return fmt.Sprintf("it was asked for version %s of workflow %s, and version %s is current; the run asks again", q.Approval.Version, q.Workflow, current)
	case !q.ClosedAt.IsZero():
		return fmt.Sprintf("it was closed at %s, since it no longer applied", stamp(q.ClosedAt))
	}
	return ""
}

// Lapsed returns why an approval that a person gave does not cover a call any more, whatever
// that sends; empty: it does.
func Lapsed(q keep.Escalation, current keep.Version, now time.Time) string {
	given := fmt.Sprintf("%s approved it at %s", q.Decision.By, stamp(q.Decision.At))
	switch {
	case ended(q, now):
		return fmt.Sprintf("%s, and that ended at %s before it was used", given, stamp(q.ExpiresAt))
	case otherVersion(q, current):
		return fmt.Sprintf("%s for version %s, and version %s is current", given, q.Approval.Version, current)
	}
	return ""
}

// later returns when a question was closed; now if it is open.
func later(closed, now time.Time) time.Time {
	if closed.IsZero() {
		return now
	}
	return closed
}

// ended reports whether the end of a question has come. One that an older version of Keep
// asked has none.
func ended(q keep.Escalation, now time.Time) bool {
	return !q.ExpiresAt.IsZero() && !now.Before(q.ExpiresAt)
}

// otherVersion reports whether a question was asked for another version than the current one.
func otherVersion(q keep.Escalation, current keep.Version) bool {
	return q.Approval != nil && q.Approval.Version != current
}

func stamp(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05 UTC") }

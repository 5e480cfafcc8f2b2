package lifecycle

import (
	"fmt"
	"time"

	"github.com/keep-run/keep"
)

// Explain returns one sentence for a person: what r waits for, since when, until
// when, and what would move it (law: explained). It is empty for a run that is
// closed. m is r's mutation; its zero value means none.
func Explain(r keep.Run, m keep.Mutation) string {
	if r.Closed {
		return ""
	}
	since := "since " + clock(r.UpdatedAt)
	if !r.RetryAt.IsZero() {
		return fmt.Sprintf("Is tried again at %s (attempt %d), after: %s.", clock(r.RetryAt), r.Retries+2, reason(r))
	}
	switch r.Status {
	case keep.StatusActive:
		return fmt.Sprintf("Is being executed, in phase %s %s.", r.Phase, since)
	case keep.StatusApproval:
		return fmt.Sprintf("Waits %s for a person to approve the call; see keep inbox.", since)
	case keep.StatusReconciliation:
		return doubt(m, since)
	case keep.StatusPerson:
		return fmt.Sprintf("Waits %s for a person (%s); see keep inbox.", since, reason(r))
	case keep.StatusLogic:
		return fmt.Sprintf("Waits %s for a corrected script, or for a person to retry or skip: %s.", since, reason(r))
	case keep.StatusInternal:
		return fmt.Sprintf("Stopped %s by an internal failure (%s); a person must look at it.", since, reason(r))
	}
	return fmt.Sprintf("Is %s %s.", r.Status, since)
}

func doubt(m keep.Mutation, since string) string {
	if m.State == keep.Indeterminate {
		return fmt.Sprintf("Nobody can tell whether %s on %s happened; waits %s for a person to decide in keep inbox.",
			m.Tool, m.Target, since)
	}
	return fmt.Sprintf("It is not known whether %s on %s happened; the service is asked again at %s (lookup %d).",
		m.Tool, m.Target, clock(m.NextReconcileAt), m.ReconcileAttempts+1)
}

func reason(r keep.Run) string {
	if r.Error != nil {
		return r.Error.Error()
	}
	return string(r.Status)
}

func clock(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05 UTC") }

package lifecycle

import (
	"fmt"
	"strings"
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
	switch {
	case r.Status == keep.StatusReconciliation && (m.Key != "" || r.RetryAt.IsZero()):
		return doubt(m, since)
	case !r.RetryAt.IsZero():
		return retry(r, since)
	}
	switch r.Status {
	case keep.StatusActive:
		return fmt.Sprintf("Is being executed, in phase %s %s.", r.Phase, since)
	case keep.StatusApproval:
		return fmt.Sprintf("Waits %s for a person to approve the call; see keep inbox.", since)
	case keep.StatusPerson:
		return fmt.Sprintf("Waits %s for a person (%s); see keep inbox.", since, reason(r))
	case keep.StatusLogic:
		return fmt.Sprintf("Waits %s for a corrected script, or for a person to retry or skip: %s.", since, reason(r))
	case keep.StatusInternal:
		return fmt.Sprintf("Stopped %s by an internal failure (%s); a person must look at it.", since, reason(r))
	}
	return fmt.Sprintf("Is %s %s.", r.Status, since)
}

// retry explains a run whose next attempt is planned.
func retry(r keep.Run, since string) string {
	when := clock(r.RetryAt)
	switch r.Status {
	case keep.StatusTransient:
		return fmt.Sprintf("Waits %s and is tried again at %s (attempt %d), after: %s.", since, when, r.Retries+2, reason(r))
	case keep.StatusCrashed:
		return fmt.Sprintf("The host died while it executed phase %s; the work is taken up again at %s.", r.Phase, when)
	case keep.StatusLogic:
		return fmt.Sprintf("Waits %s and is tried again at %s with the current version, after: %s.", since, when, reason(r))
	}
	return fmt.Sprintf("Waits %s and is tried again at %s, after: %s.", since, when, reason(r))
}

// ExplainDoubt returns one sentence for a person about a call whose outcome is
// unknown and that no open run waits for. It is empty for every other call.
func ExplainDoubt(m keep.Mutation) string {
	if !Unknown(m.State) {
		return ""
	}
	return doubt(m, "since "+clock(m.UpdatedAt))
}

// doubt explains a run whose call has an unknown outcome.
func doubt(m keep.Mutation, since string) string {
	call := fmt.Sprintf("%s on %s", m.Tool, m.Target)
	switch {
	case m.Key == "":
		call = "a call"
	case m.Target == "":
		call = string(m.Tool)
	}
	switch {
	case m.State == keep.Indeterminate:
		return fmt.Sprintf("Nobody can tell whether %s happened; waits %s for a person to decide in keep inbox.", call, since)
	case m.NextReconcileAt.IsZero():
		return fmt.Sprintf("It is not known %s whether %s happened; the service is asked next.", since, call)
	}
	return fmt.Sprintf("It is not known %s whether %s happened; the service is asked again at %s (lookup %d).",
		since, call, clock(m.NextReconcileAt), m.ReconcileAttempts+1)
}

// reason is why r stopped, without the full stop of a message.
func reason(r keep.Run) string {
	if r.Error != nil {
		return strings.TrimRight(strings.Join(strings.Fields(r.Error.Error()), " "), ".")
	}
	return string(r.Status)
}

func clock(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05 UTC") }

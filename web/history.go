package web

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/law/ledger"
)

// An entry is one thing that happened to a run, as a sentence.
type entry struct {
	At   time.Time
	Text string
	Tone string

	attempt int // in which it happened: orders what happened in one millisecond
}

// history tells a chain of runs in sentences, from the records alone.
//
// Within one millisecond entries are told in the order of the attempts, and of one attempt its start,
// then what became of its calls, then its end.
func history(d *runData) []entry {
	var out []entry
	for i, r := range d.Attempts {
		out = append(out, startOf(i, r))
	}
	for _, m := range d.Mutations {
		for _, v := range d.Moves[m.Key] {
			out = append(out, entry{v.At, moveText(m, v), tone(v.To), d.attemptAt(v.At)})
		}
	}
	for i, r := range d.Attempts {
		if r.Status != keep.StatusActive {
			end := endOf(i, r)
			end.At, end.attempt = d.stopped(i), i
			out = append(out, end)
		}
	}
	for _, q := range d.Questions {
		out = append(out, questionEntries(q, d.attemptOf(q.Run))...)
	}
	slices.SortStableFunc(out, func(a, b entry) int {
		return cmp.Or(cmp.Compare(a.At.UnixMilli(), b.At.UnixMilli()), cmp.Compare(a.attempt, b.attempt))
	})
	return out
}

// attemptOf returns which attempt a run is, from 0.
// A run that was not read, of a chain with more than maxShown attempts, counts as the first.
func (d *runData) attemptOf(id keep.RunID) int {
	return max(slices.IndexFunc(d.Attempts, func(r keep.Run) bool { return r.ID == id }), 0)
}

// attemptAt returns which attempt was the last to begin before t.
func (d *runData) attemptAt(t time.Time) int {
	at := 0
	for i, r := range d.Attempts {
		if !r.CreatedAt.After(t) {
			at = i
		}
	}
	return at
}

// stopped returns when an attempt stopped. Its record changes once more when
// another takes over, so the question that it led to, or that other, tells.
func (d *runData) stopped(i int) time.Time {
	r := d.Attempts[i]
	for _, q := range d.Questions {
		if q.Run == r.ID {
			return q.CreatedAt
		}
	}
	if i+1 < len(d.Attempts) && d.Attempts[i+1].CreatedAt.Before(r.UpdatedAt) {
		return d.Attempts[i+1].CreatedAt
	}
	return r.UpdatedAt
}

// questionEntries tells a question and what became of it.
func questionEntries(q keep.Escalation, attempt int) []entry {
	out := []entry{{q.CreatedAt, "Keep asked a person: " + q.Question, "bad", attempt}}
	switch {
	case q.Decision != nil:
		text := fmt.Sprintf("%s decided “%s”.", q.Decision.By, label(q))
		if q.Decision.Note != "" {
			text += " Note: " + q.Decision.Note
		}
		out = append(out, entry{q.Decision.At, text, "ok", attempt})
	case !q.ClosedAt.IsZero():
		out = append(out, entry{q.ClosedAt, "The question was closed, since it no longer applied.", "", attempt})
	}
	return out
}

// label is what the button said that was pressed.
func label(q keep.Escalation) string {
	if q.Decision == nil {
		return ""
	}
	for _, c := range q.Choices {
		if c.Action == q.Decision.Action {
			return c.Label
		}
	}
	return string(q.Decision.Action)
}

// startOf tells the start of an attempt.
func startOf(i int, r keep.Run) entry {
	text := fmt.Sprintf("The %s %s began, with version %s", r.Kind, r.Handler, r.Version)
	if i > 0 {
		text = fmt.Sprintf("Attempt %d began, with version %s", i+1, r.Version)
	} else if !r.Trigger.IsZero() {
		text += fmt.Sprintf(", for event %s of topic %s", cut(80, string(r.Trigger.MessageID)), r.Trigger.Topic)
	}
	return entry{r.CreatedAt, text + ".", "", i}
}

// endOf tells how an attempt ended or where it stands.
func endOf(i int, r keep.Run) entry {
	m := entry{At: r.UpdatedAt, Tone: tone(r.Status)}
	switch {
	case r.Status == keep.StatusCommitted:
		m.Text = "It committed: events, downstream events and state became one durable fact."
		if r.Kind != keep.Consumer {
			m.Text = "It committed."
		}
		return m
	case r.Status == keep.StatusAborted && r.Error == nil: // else that is why, or its question or log says who ended it
		m.Text = "A person ended it, and skipped what it was about."
		return m
	case r.Status == keep.StatusReconciliation:
		m.Text = fmt.Sprintf("Attempt %d waits, in phase %s, until the outcome is known.", i+1, r.Phase)
		return m
	case r.Status == keep.StatusCrashed:
		m.Text = fmt.Sprintf("The host died in phase %s. Nothing of the attempt that was not recorded counts.", r.Phase)
		return m
	}
	m.Text = fmt.Sprintf("Attempt %d stopped in phase %s (%s)", i+1, r.Phase, word(r.Status))
	if r.Error != nil {
		m.Text += ": " + r.Error.Error()
	}
	if !strings.HasSuffix(m.Text, ".") {
		m.Text += "."
	}
	return m
}

// moveText tells one move of a mutation.
//
// It says who knows it: the service, or a person who vouches. Evidence that has no
// sentence here is told by its name.
func moveText(m keep.Mutation, v keep.Move) string {
	call := string(m.Tool)
	if m.Target != "" {
		call += " on " + cut(120, m.Target)
	}
	var text string
	switch ledger.Evidence(v.Evidence) {
	case ledger.NewAttempt:
		text = "The call " + call + " was recorded, and then sent."
		if v.From != "" {
			text = "The call " + call + " was recorded again, with the same key, and then sent."
		}
	case ledger.Happened:
		text = fmt.Sprintf("%s: %s happened.", sourceOf(v.By), call)
	case ledger.Absent:
		text = fmt.Sprintf("%s: %s did not happen.", sourceOf(v.By), call)
	case ledger.Unsure:
		text = fmt.Sprintf("It is not known whether %s happened.", call)
	case ledger.CannotAsk:
		text = fmt.Sprintf("It is not known whether %s happened, and the service cannot be asked.", call)
	case ledger.AttemptsExhausted:
		text = fmt.Sprintf("The service was asked as often as allowed whether %s happened; nobody can tell.", call)
		if !strings.HasPrefix(v.Detail, "asked ") { // to ask was refused
			text = fmt.Sprintf("It is not known whether %s happened, and the service is not asked again before a person acts.", call)
		}
	case ledger.DidNotHappen:
		text = fmt.Sprintf("%s vouches that %s did not happen.", v.By, call)
	case ledger.PersonHappened:
		text = fmt.Sprintf("%s vouches that %s happened.", v.By, call)
	case ledger.Skip:
		text = fmt.Sprintf("%s decided to continue without knowing whether %s happened.", v.By, call)
	case ledger.CheckAgain:
		text = fmt.Sprintf("%s wants the service asked again whether %s happened.", v.By, call)
	default:
		text = fmt.Sprintf("%s became %s (%s).", call, word(v.To), v.Evidence)
	}
	if v.Detail != "" {
		text += " " + v.Detail
	}
	return text
}

// sourceOf names who said so.
func sourceOf(by string) string {
	switch by {
	case "call":
		return "The service answered"
	case "reconcile":
		return "The service was asked, and says"
	case "recovery":
		return "After a crash the service was asked, and says"
	}
	return by
}

package keep

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"
)

// A MessageID names an event within its topic. The script chooses it, or the
// host makes one.
type MessageID string

// MaxMessageID is the longest message id, in bytes.
const MaxMessageID = 512

// Validate reports what is wrong with the id.
func (id MessageID) Validate() error {
	switch {
	case id == "":
		return fmt.Errorf("message id is empty")
	case len(id) > MaxMessageID:
		return fmt.Errorf("message id of %d bytes: at most %d", len(id), MaxMessageID)
	case !utf8.ValidString(string(id)):
		return fmt.Errorf("message id %q is not valid UTF-8", string(id))
	}
	return nil
}

// An EventStatus is how far an event came. Values are stored; do not rename them.
type EventStatus string

const (
	// EventPending means that nobody has finished with the event. It may be
	// reserved by a run.
	EventPending EventStatus = "pending"

	// EventConsumed means that the run which reserved it committed.
	EventConsumed EventStatus = "consumed"

	// EventSkipped means that a person decided to leave it.
	EventSkipped EventStatus = "skipped"
)

// EventReserved is what lists say of a pending event that a run has reserved; see Event.Listed. It is
// never stored.
const EventReserved EventStatus = "reserved"

// EventStatuses returns every status that is stored.
func EventStatuses() []EventStatus { return []EventStatus{EventPending, EventConsumed, EventSkipped} }

// ListedEventStatuses returns every status that lists say and are filtered by.
func ListedEventStatuses() []EventStatus {
	return []EventStatus{EventPending, EventReserved, EventConsumed, EventSkipped}
}

// An Event is one message in a topic. Nothing deletes it but retention.
type Event struct {
	Workflow  WorkflowName
	Topic     TopicName
	MessageID MessageID

	// Seq orders the events of a workflow by the time of publishing. The store
	// sets it; it never repeats, and it never falls.
	Seq int64

	Payload    json.RawMessage
	Status     EventStatus
	ReservedBy RunID     // first run of the chain that reserved it; kept when finished
	CreatedBy  Publisher // who published it
	CausedBy   []InputID // inputs it comes from, in the order of their ids
	Redone     []Redo    // each time that a person had it done again, oldest first
	CreatedAt  time.Time
	UpdatedAt  time.Time
}

// Attempt returns at which attempt the event is: 1, and one more each time that a person
// has it done again. Retries, crashes and undone skips are of the same attempt.
func (e Event) Attempt() int { return 1 + len(e.Redone) }

// AttemptOf returns the attempt at the event to which a run belongs that worked on it. One
// that never reserved it belongs to the attempt that was then.
func (e Event) AttemptOf(r Run) int {
	for _, held := range r.Reservations {
		for i, id := range held.IDs {
			if held.Topic == e.Topic && id == e.MessageID {
				return held.Attempt(i)
			}
		}
	}
	n := 1
	for n < e.Attempt() && !r.CreatedAt.Before(e.Redone[n-1].At) {
		n++
	}
	return n
}

// MaxAttempts is at how many attempts an event may be.
const MaxAttempts = 100

// A Redo says that a person had an event done again that was finished. The attempt before
// keeps its runs, its calls and what it published.
type Redo struct {
	At    time.Time `json:"at"`
	By    string    `json:"by"`
	From  string    `json:"from,omitempty"`
	Note  string    `json:"note,omitempty"`
	Chain RunID     `json:"chain,omitempty"` // that finished the attempt before; empty: it was skipped before a run had it
}

// Listed returns the status that lists say: a pending event that a run has reserved is not free.
func (e Event) Listed() EventStatus {
	if e.Status == EventPending && !e.Free() {
		return EventReserved
	}
	return e.Status
}

// Free reports whether a run may reserve the event.
func (e Event) Free() bool { return e.Status == EventPending && e.ReservedBy == "" }

// A Publisher is who published an event: a run by its id, a hook as "hook:NAME", or a
// person as "person:NAME".
type Publisher string

// HookPublisher returns the publisher of what a hook received.
func HookPublisher(name string) Publisher { return Publisher("hook:" + name) }

// PersonPublisher returns the publisher of what a person published.
func PersonPublisher(name string) Publisher { return Publisher("person:" + name) }

// Run returns the run that published an event; empty if it was none.
func (p Publisher) Run() RunID {
	if strings.Contains(string(p), ":") {
		return ""
	}
	return RunID(p)
}

// An EventRef names an event within a workflow.
type EventRef struct {
	Topic     TopicName `json:"topic"`
	MessageID MessageID `json:"message_id"`
}

// IsZero reports whether the reference names nothing.
func (r EventRef) IsZero() bool { return r == EventRef{} }

// A Reservation pins events of one topic to a run before anything outside is
// changed. It ends when the run commits or gives the events back.
type Reservation struct {
	Topic TopicName   `json:"topic"`
	IDs   []MessageID `json:"ids"`

	// Attempts are those at which the events are, in the order of IDs. Nil: all are at
	// their first.
	Attempts []int `json:"attempts,omitempty"`
}

// Attempt returns the attempt at which the run has the i-th event.
func (r Reservation) Attempt(i int) int {
	if i < len(r.Attempts) {
		return r.Attempts[i]
	}
	return 1
}

// AttemptsOf returns what Reservation.Attempts says of events that are at these attempts.
func AttemptsOf(attempts []int) []int {
	for _, n := range attempts {
		if n != 1 {
			return attempts
		}
	}
	return nil
}

// An InputStatus is derived from the events that an input caused.
type InputStatus string

const (
	// InputPending means that an event caused by it is pending, in a topic to which a
	// consumer subscribes, or had by a run.
	InputPending InputStatus = "pending"

	// InputDone means that every event caused by it is finished.
	InputDone InputStatus = "done"

	// InputSkipped means that a person decided to leave it.
	InputSkipped InputStatus = "skipped"
)

// InputStatuses returns every status.
func InputStatuses() []InputStatus { return []InputStatus{InputPending, InputDone, InputSkipped} }

// MaxTitle is the longest title of an input, run, item or mutation, in bytes.
// Longer ones are cut at a character.
const MaxTitle = 500

// CutTitle returns s as valid UTF-8 of at most MaxTitle bytes.
func CutTitle(s string) string {
	if len(s) <= MaxTitle && utf8.ValidString(s) {
		return s
	}
	out := make([]rune, 0, MaxTitle)
	size := 0
	for _, r := range s {
		if size += utf8.RuneLen(r); size > MaxTitle-len("…") {
			return string(out) + "…"
		}
		out = append(out, r)
	}
	return string(out)
}

// An Input is an external thing that a user recognises, such as an email.
// Source, Type and ExternalID together are unique within a workflow.
type Input struct {
	ID         InputID
	Workflow   WorkflowName
	Source     string
	Type       string
	ExternalID string
	Title      string
	Status     InputStatus
	CreatedAt  time.Time
}

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

// EventStatuses returns every status.
func EventStatuses() []EventStatus { return []EventStatus{EventPending, EventConsumed, EventSkipped} }

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
	CreatedAt  time.Time
	UpdatedAt  time.Time
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

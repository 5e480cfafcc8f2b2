package keep

import (
	"encoding/json"
	"fmt"
	"slices"
)

// An Approval is what a person is asked to agree to: one call as it would be sent, and by
// what he reads it.
type Approval struct {
	Tool    ToolName        `json:"tool"`
	Target  string          `json:"target"`
	Key     MutationKey     `json:"key"`
	Payload json.RawMessage `json:"payload"`         // whole: what the tool gets
	Pin     json.RawMessage `json:"pin,omitempty"`   // where and how it would be sent; see Mutation.Pin
	Version Version         `json:"version"`         // of the workflow, current when it was asked
	View    View            `json:"view,omitzero"`   // as the tool declares it
	Claim   json.RawMessage `json:"claim,omitempty"` // what the script says of the call: its ui
	Now     json.RawMessage `json:"now,omitempty"`   // what is there now, as the tool read it; nil: not known
	NowWhy  string          `json:"now_why,omitempty"`
}

// A ViewKind names what a call is to the person who reads it.
type ViewKind string

const (
	ViewFields  ViewKind = ""        // its params, one after the other
	ViewMail    ViewKind = "mail"    // a letter
	ViewMessage ViewKind = "message" // a text for people in one place, such as a channel
	ViewPayment ViewKind = "payment" // an amount for a receiver
	ViewRow     ViewKind = "row"     // a row of a table, with what is there now
	ViewFile    ViewKind = "file"    // a content with a name
)

// A View says how a person reads the params of a tool. A tool or a pack declares it, so
// nothing else knows a service by its name.
type View struct {
	Kind ViewKind `json:"kind,omitempty"`

	// Parts say which params have what a kind of view shows. What none names is shown after
	// the rest: nothing that is sent is left out.
	Parts []ViewPart `json:"parts,omitempty"`
}

// A ViewPart is where a view finds what it shows in one place.
type ViewPart struct {
	Role  string `json:"role"`            // one of ViewKind.Roles, such as to
	Param string `json:"param,omitempty"` // a param, or names joined by dots
	Text  string `json:"text,omitempty"`  // what the tool itself adds, such as the sender of its account
}

// ViewKinds returns the kinds that a tool can declare.
func ViewKinds() []ViewKind {
	return []ViewKind{ViewMail, ViewMessage, ViewPayment, ViewRow, ViewFile}
}

// Roles returns what a view of that kind can name, in the order in which people read it.
func (k ViewKind) Roles() []string {
	switch k {
	case ViewMail:
		return []string{"from", "to", "cc", "bcc", "reply_to", "subject", "text", "html", "attachments"}
	case ViewMessage:
		return []string{"from", "to", "subject", "text"}
	case ViewPayment:
		return []string{"amount", "smallest", "currency", "to", "from", "reference"}
	case ViewRow:
		return []string{"table", "key", "values"}
	case ViewFile:
		return []string{"name", "type", "text"}
	}
	return nil
}

// Validate reports the first part of v that means nothing.
func (v View) Validate() error {
	if v.Kind != ViewFields && !slices.Contains(ViewKinds(), v.Kind) {
		return fmt.Errorf("view: kind %q is unknown; it is one of %v", v.Kind, ViewKinds())
	}
	for _, part := range v.Parts {
		if !slices.Contains(v.Kind.Roles(), part.Role) {
			return fmt.Errorf("view: kind %q has no %q; it has %v", v.Kind, part.Role, v.Kind.Roles())
		}
	}
	return nil
}

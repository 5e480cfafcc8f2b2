// Package eml takes mails (RFC 5322) apart. It never fails: mails are made by programs
// that read no standard, so it says what is broken and returns the rest.
package eml

import (
	"encoding/base64"

	"github.com/keep-run/keep/connector/internal/jsonval"
)

// A Mail is what could be read of one. Lists are never nil.
type Mail struct {
	Name        string              `json:"name"`      // of the file; the caller sets it
	MessageID   *string             `json:"messageId"` // without angle brackets; nil: none
	InReplyTo   *string             `json:"inReplyTo"`
	References  []string            `json:"references"`
	Subject     string              `json:"subject"`
	From        *Mailbox            `json:"from"` // the first one
	To          []Mailbox           `json:"to"`
	Cc          []Mailbox           `json:"cc"`
	Bcc         []Mailbox           `json:"bcc"`
	ReplyTo     []Mailbox           `json:"replyTo"`
	Date        *string             `json:"date"` // RFC 3339, UTC; nil: none that can be read
	Text        string              `json:"text"` // of the text/plain parts, lines end in \n
	HTML        string              `json:"html"`
	Attachments []Attachment        `json:"attachments"`
	Headers     map[string][]string `json:"headers"`  // by lower-case name, decoded
	Warnings    []string            `json:"warnings"` // what was broken
}

// A Mailbox is one address. A broken one has only a name.
type Mailbox struct {
	Name    string `json:"name"`
	Address string `json:"address"`
}

// An Attachment is a part that is not the text of the mail.
type Attachment struct {
	Name      string  `json:"name"` // without directories
	Type      string  `json:"type"`
	Size      int     `json:"size"` // in bytes, decoded
	ContentID string  `json:"contentId,omitempty"`
	Inline    bool    `json:"inline"`
	Content   *string `json:"content,omitempty"` // base64

	Part string `json:"-"` // place in the mail: "2", or "1.2" for the second part of the first
	Raw  []byte `json:"-"` // decoded
}

// Attach adds the bytes of the attachments as base64, up to room bytes in all.
func (m *Mail) Attach(room int) {
	for i := range m.Attachments {
		a := &m.Attachments[i]
		n := base64.StdEncoding.EncodedLen(len(a.Raw))
		if n > room {
			m.warn("attachment %q is too large for a result; it has no content here", a.Name)
			continue
		}
		room -= n
		s := base64.StdEncoding.EncodeToString(a.Raw)
		a.Content = &s
	}
}

// Fit drops the least needed parts until m fits in a result of that size. Control
// characters take six bytes in JSON, so that bounds on the parts aren't enough.
func (m *Mail) Fit(limit int) {
	for _, drop := range []func(){
		func() {
			for i := range m.Attachments {
				m.Attachments[i].Content = nil
			}
			m.warn("the mail is too large for a result; the contents of attachments were left out")
		},
		func() { m.HTML = ""; m.warn("the mail is too large for a result; html was left out") },
		func() {
			m.Headers = map[string][]string{}
			m.warn("the mail is too large for a result; headers were left out")
		},
		func() { m.Text = ""; m.warn("the mail is too large for a result; text was left out") },
		func() {
			m.Attachments = []Attachment{}
			m.warn("the mail is too large for a result; attachments were left out")
		},
		func() {
			m.To, m.Cc, m.Bcc, m.ReplyTo, m.References = []Mailbox{}, []Mailbox{}, []Mailbox{}, []Mailbox{}, []string{}
			m.warn("the mail is too large for a result; addresses were left out")
		},
	} {
		raw, err := jsonval.Encode(m)
		if err == nil && len(raw) <= limit {
			return
		}
		drop()
	}
}

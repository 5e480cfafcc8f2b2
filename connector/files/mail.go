package files

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"io"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector"
	"github.com/keep-run/keep/connector/internal/jsonval"
)

// maxMail bounds the file of a mail.
const maxMail = 32 << 20

var mailSpec = connector.Spec{
	Name:   "readMail",
	Effect: connector.Get,
	Description: "Reads a mail (RFC 5322): from, to, cc, subject, date, messageId, text, html, attachments, headers, decoded. " +
		"What is broken in it is listed in warnings. Null if there is no such file.",
	Params: object([]string{"name"}, `
		"name":{"type":"string","minLength":1},
		"content":{"type":"boolean","description":"true: attachments have their bytes as base64 in content"}`),
	Result: json.RawMessage(`{"type":["object","null"],
		"required":["name","messageId","subject","from","to","cc","replyTo","date","text","html","attachments","headers","warnings"],
		"properties":{
		"name":{"type":"string"},
		"messageId":{"type":["string","null"]},
		"inReplyTo":{"type":["string","null"]},
		"references":{"type":"array","items":{"type":"string"}},
		"subject":{"type":"string"},
		"from":{"anyOf":[{"type":"null"},{"$ref":"#/$defs/mailbox"}]},
		"to":{"$ref":"#/$defs/mailboxes"},"cc":{"$ref":"#/$defs/mailboxes"},
		"bcc":{"$ref":"#/$defs/mailboxes"},"replyTo":{"$ref":"#/$defs/mailboxes"},
		"date":{"type":["string","null"],"format":"date-time"},
		"text":{"type":"string"},"html":{"type":"string"},
		"attachments":{"type":"array","items":{"type":"object","required":["name","type","size"],"properties":{
			"name":{"type":"string"},"type":{"type":"string"},"size":{"type":"integer"},
			"contentId":{"type":"string"},"inline":{"type":"boolean"},"content":{"type":"string"}}}},
		"headers":{"type":"object","additionalProperties":{"type":"array","items":{"type":"string"}}},
		"warnings":{"type":"array","items":{"type":"string"}}},
		"$defs":{
		"mailbox":{"type":"object","required":["name","address"],"properties":{"name":{"type":"string"},"address":{"type":"string"}}},
		"mailboxes":{"type":"array","items":{"$ref":"#/$defs/mailbox"}}}}`),
}

type mailParams struct {
	Name    string `json:"name"`
	Content bool   `json:"content"`
}

// A Mail is the result of readMail. Lists are never nil.
type Mail struct {
	Name        string              `json:"name"`      // of the file
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

	raw []byte
}

// readMail returns a mail, or null.
func (d *dir) readMail(_ context.Context, params json.RawMessage) (any, error) {
	var p mailParams
	if err := d.decode("readMail", params, &p); err != nil {
		return nil, err
	}
	f, info, err := d.openFile("readMail", p.Name)
	if f == nil {
		return nil, err
	}
	defer f.Close()
	if info.Size() > maxMail {
		return nil, d.failf("readMail", keep.ClassLogic, "answer-too-large", "%q has %d bytes, more than %d", p.Name, info.Size(), maxMail)
	}
	raw, err := io.ReadAll(io.LimitReader(f, maxMail))
	if err != nil {
		return nil, d.fail("readMail", "read "+p.Name, err)
	}
	m := ParseMail(raw)
	m.Name = p.Name
	if p.Content {
		m.attach()
	}
	m.fit(maxResult)
	return m, nil
}

// attach adds the bytes of the attachments as far as they fit in a result.
func (m *Mail) attach() {
	room := maxResult / 2
	for i := range m.Attachments {
		a := &m.Attachments[i]
		n := base64.StdEncoding.EncodedLen(len(a.raw))
		if n > room {
			m.warn("attachment %q is too large for a result; it has no content here", a.Name)
			continue
		}
		room -= n
		s := base64.StdEncoding.EncodeToString(a.raw)
		a.Content = &s
	}
}

// fit drops what is least needed until m fits in a result of that size. Control
// characters take six bytes in JSON, so that bounds on the parts aren't enough.
func (m *Mail) fit(limit int) {
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

package mail

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	netmail "net/mail"
	"slices"
	"strings"
	"time"

	"crypto/sha256"

	"github.com/emersion/go-message/mail"

	"github.com/keep-run/keep"
)

// A letter is the params of a mail that is written.
type letter struct {
	To          addresses    `json:"to"`
	Cc          addresses    `json:"cc"`
	Bcc         addresses    `json:"bcc"`
	Subject     string       `json:"subject"`
	Text        string       `json:"text"`
	HTML        string       `json:"html"`
	ReplyTo     addresses    `json:"reply_to"`
	InReplyTo   string       `json:"in_reply_to"`
	References  []string     `json:"references"`
	Attachments []attachment `json:"attachments"`
}

// An attachment is a file of a mail that is written.
type attachment struct {
	Name   string `json:"name"`
	Type   string `json:"type"`
	Base64 string `json:"base64"`
}

// letterSchema are the properties of a letter.
const letterSchema = `
	"to":{"$ref":"#/$defs/addresses"},"cc":{"$ref":"#/$defs/addresses"},"bcc":{"$ref":"#/$defs/addresses"},
	"subject":{"type":"string","maxLength":900,"pattern":"^[^\\x00-\\x1f]*$"},
	"text":{"type":"string"},"html":{"type":"string"},
	"reply_to":{"$ref":"#/$defs/addresses"},
	"in_reply_to":{"type":"string","description":"message_id of the mail that this one answers"},
	"references":{"type":"array","items":{"type":"string"}},
	"attachments":{"type":"array","items":{"type":"object","additionalProperties":false,"required":["name","base64"],"properties":{
		"name":{"type":"string","minLength":1},"type":{"type":"string"},"base64":{"type":"string","contentEncoding":"base64"}}}}`

// letterDefs are what letterSchema refers to.
const letterDefs = `"addresses":{"description":"ann@example.com, or Ann <ann@example.com>; several in a list",
	"anyOf":[{"type":"string","minLength":3},{"type":"array","items":{"type":"string","minLength":3}}]}`

// withDefs adds definitions to the schema of an object.
func withDefs(schema json.RawMessage, defs string) json.RawMessage {
	return json.RawMessage(`{"$defs":{` + defs + `},` + string(schema[1:]))
}

// addresses are one address or several.
type addresses []*netmail.Address

// UnmarshalJSON reads a text or a list of texts.
func (a *addresses) UnmarshalJSON(raw []byte) error {
	var list []string
	if err := json.Unmarshal(raw, &list); err != nil {
		var one string
		if err := json.Unmarshal(raw, &one); err != nil {
			return errors.New("want an address, or a list of addresses")
		}
		list = []string{one}
	}
	for _, text := range list {
		parsed, err := netmail.ParseAddress(text)
		if err != nil {
			return fmt.Errorf("%q is not an address such as ann@example.com or Ann <ann@example.com>", text)
		}
		if !plainAddress(parsed.Address) {
			return fmt.Errorf("the address %q has characters that mail servers refuse; write its domain in ASCII (xn--…)", text)
		}
		if hasControl(parsed.Name) {
			return fmt.Errorf("the name in %q has control characters", text)
		}
		*a = append(*a, parsed)
	}
	return nil
}

// plainAddress reports whether an address can be sent as it is in a command of SMTP.
func plainAddress(s string) bool {
	for _, c := range []byte(s) {
		if c <= ' ' || c >= 0x7f || c == '<' || c == '>' {
			return false
		}
	}
	return len(s) <= 254 && strings.LastIndexByte(s, '@') > 0
}

// hasControl reports whether s has characters that end or bend a header line.
func hasControl(s string) bool {
	return strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r == 0x7f })
}

// isMessageID reports whether s can stand between the angle brackets of a Message-ID.
func isMessageID(s string) bool {
	for _, c := range []byte(s) {
		if c <= ' ' || c >= 0x7f || c == '<' || c == '>' {
			return false
		}
	}
	return s != "" && len(s) <= 900
}

// validate reports the first thing that is wrong with l and that its schema cannot say.
func (l *letter) validate() error {
	if hasControl(l.Subject) || len(l.Subject) > 4000 {
		return errors.New("subject must be one line of at most 900 characters")
	}
	for i := range l.References {
		l.References[i] = strings.Trim(l.References[i], "<> ")
	}
	l.InReplyTo = strings.Trim(l.InReplyTo, "<> ")
	for _, id := range l.References {
		if !isMessageID(id) {
			return fmt.Errorf("references: %q is not a message id", id)
		}
	}
	if l.InReplyTo != "" && !isMessageID(l.InReplyTo) {
		return fmt.Errorf("in_reply_to: %q is not a message id", l.InReplyTo)
	}
	for _, a := range l.Attachments {
		kind, _, err := mime.ParseMediaType(a.kind())
		switch {
		case a.Name == "" || hasControl(a.Name):
			return errors.New("attachments: each needs a name of one line")
		case err != nil || strings.HasPrefix(kind, "multipart/") || hasControl(a.Type):
			return fmt.Errorf("attachments: %q is not the type of a file, such as application/pdf", a.Type)
		}
		if _, err := base64.StdEncoding.DecodeString(a.Base64); err != nil {
			return fmt.Errorf("attachments: the base64 of %q cannot be decoded", a.Name)
		}
	}
	return nil
}

func (a attachment) kind() string {
	if a.Type == "" {
		return "application/octet-stream"
	}
	return a.Type
}

// messageID returns the Message-ID of the mail that m writes, without brackets.
func (a *account) messageID(m keep.Mutation) string {
	token := m.Token
	for _, c := range []byte(token) {
		if !(c == '-' || c == '_' || '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z') {
			sum := sha256.Sum256([]byte(token))
			token = hex.EncodeToString(sum[:])
			break
		}
	}
	return token + a.from.Address[strings.LastIndexByte(a.from.Address, '@'):]
}

// compose writes the mail. Blind recipients are in its header only if it is a draft.
func (a *account) compose(l letter, id string, date time.Time, draft bool) ([]byte, error) {
	var h mail.Header
	h.SetDate(date.UTC())
	h.SetAddressList("From", []*mail.Address{a.from})
	for _, f := range []struct {
		name string
		list addresses
	}{{"To", l.To}, {"Cc", l.Cc}, {"Reply-To", l.ReplyTo}} {
		if len(f.list) > 0 {
			h.SetAddressList(f.name, f.list)
		}
	}
	if draft && len(l.Bcc) > 0 {
		h.SetAddressList("Bcc", l.Bcc)
	}
	h.SetSubject(l.Subject)
	h.SetMessageID(id)
	if l.InReplyTo != "" {
		h.SetMsgIDList("In-Reply-To", []string{l.InReplyTo})
	}
	refs := l.References
	if l.InReplyTo != "" && (len(refs) == 0 || refs[len(refs)-1] != l.InReplyTo) {
		refs = append(slices.Clone(refs), l.InReplyTo) // the last is what it answers (RFC 5322, 3.6.4)
	}
	if len(refs) > 0 {
		h.SetMsgIDList("References", refs)
	}
	h.Set("Mime-Version", "1.0")
	var out bytes.Buffer
	if err := l.write(&out, h); err != nil {
		return nil, fmt.Errorf("write the mail: %w", err)
	}
	return out.Bytes(), nil
}

// write writes header and body, in the simplest form that holds all parts.
func (l *letter) write(out io.Writer, h mail.Header) error {
	if len(l.Attachments) == 0 {
		if l.HTML == "" || l.Text == "" {
			text, kind := l.one()
			h.SetContentType(kind, map[string]string{"charset": "utf-8"})
			w, err := mail.CreateSingleInlineWriter(out, h)
			return put(w, err, text)
		}
		w, err := mail.CreateInlineWriter(out, h)
		if err != nil {
			return err
		}
		return l.both(w)
	}
	w, err := mail.CreateWriter(out, h)
	if err != nil {
		return err
	}
	if l.HTML != "" && l.Text != "" {
		inline, err := w.CreateInline()
		if err != nil {
			return err
		}
		if err := l.both(inline); err != nil {
			return err
		}
	} else {
		text, kind := l.one()
		part, err := w.CreateSingleInline(inlineHeader(kind))
		if err := put(part, err, text); err != nil {
			return err
		}
	}
	for _, a := range l.Attachments {
		content, err := base64.StdEncoding.DecodeString(a.Base64)
		if err != nil {
			return err
		}
		kind, params, err := mime.ParseMediaType(a.kind())
		if err != nil {
			return err
		}
		var ah mail.AttachmentHeader
		ah.SetContentType(kind, params)
		ah.SetFilename(a.Name)
		part, err := w.CreateAttachment(ah)
		if err := put(part, err, string(content)); err != nil {
			return err
		}
	}
	return w.Close()
}

// one returns the only text of a letter that has not both.
func (l *letter) one() (text, kind string) {
	if l.HTML != "" {
		return l.HTML, "text/html"
	}
	return l.Text, "text/plain"
}

// both writes text and html as two forms of one thing.
func (l *letter) both(w *mail.InlineWriter) error {
	for _, p := range []struct{ kind, text string }{{"text/plain", l.Text}, {"text/html", l.HTML}} {
		part, err := w.CreatePart(inlineHeader(p.kind))
		if err := put(part, err, p.text); err != nil {
			return err
		}
	}
	return w.Close()
}

func inlineHeader(kind string) mail.InlineHeader {
	var h mail.InlineHeader
	h.SetContentType(kind, map[string]string{"charset": "utf-8"})
	return h
}

// put writes one part, if it could be begun.
func put(w io.WriteCloser, err error, text string) error {
	if err != nil {
		return err
	}
	if _, err := io.WriteString(w, text); err != nil {
		return err
	}
	return w.Close()
}

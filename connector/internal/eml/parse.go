package eml

import (
	"bytes"
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/emersion/go-message/mail"
)

// Bounds of a mail. What is beyond them is left out with a warning.
const (
	maxHeaderBytes = 256 << 10
	maxFields      = 1000
	maxDepth       = 12  // of parts within parts
	maxParts       = 500 // in one mail
	maxBodyText    = 200 << 10
	maxSubject     = 8 << 10
	maxKeptHeaders = 64 << 10
	maxMailboxes   = 1000
	maxMailboxText = 1000 // bytes of its name, and of its address: control characters take six bytes each in JSON
	maxWarnings    = 100
)

// Parse reads a mail. It never fails: mails are made by programs that read
// no standard, and a broken part must not hide the others. Where the text of a
// mail is was decided here; what a field means is decided by go-message.
func Parse(raw []byte) *Mail {
	m := &Mail{
		References: []string{}, To: []Mailbox{}, Cc: []Mailbox{}, Bcc: []Mailbox{}, ReplyTo: []Mailbox{},
		Attachments: []Attachment{}, Headers: map[string][]string{}, Warnings: []string{},
	}
	if bytes.HasPrefix(raw, []byte("From ")) {
		_, raw, _ = bytes.Cut(raw, []byte("\n")) // the separator of an mbox
	}
	e := m.split(raw)
	m.readHeader(e.header)
	w := walker{mail: m}
	w.walk(e, 0, "")
	m.Text, m.HTML = w.text.String(), w.html.String()
	return m
}

// warn adds what was broken.
func (m *Mail) warn(format string, args ...any) {
	if len(m.Warnings) < maxWarnings {
		m.Warnings = append(m.Warnings, fmt.Sprintf(format, args...))
	}
}

// A header is the fields of an entity by canonical name, unfolded, as they came.
type header map[string][]string

// get returns the first field of that name.
func (h header) get(name string) string {
	if v := h[name]; len(v) > 0 {
		return v[0]
	}
	return ""
}

// An entity is a header and a body: a mail, or a part of one.
type entity struct {
	header header
	body   []byte
}

// A rawField is one field of a header before it is unfolded.
type rawField struct {
	name  string
	lines []string
}

// split separates header and body. Lines that are no fields are skipped; if
// there is no field at all, everything is body.
func (m *Mail) split(raw []byte) entity {
	var fields []rawField
	rest, bad, folds := raw, 0, false
	for len(rest) > 0 {
		line, after, _ := bytes.Cut(rest, []byte("\n"))
		line = bytes.TrimSuffix(line, []byte("\r"))
		if len(line) == 0 {
			rest = after
			break
		}
		if len(raw)-len(after) > maxHeaderBytes || len(fields) == maxFields {
			m.warn("the header is too long; its end was left out")
			_, rest, _ = cutBlankLine(rest)
			break
		}
		rest = after
		name, value, ok := bytes.Cut(line, []byte(":"))
		name = bytes.TrimRight(name, " \t")
		switch {
		case (line[0] == ' ' || line[0] == '\t') && folds:
			f := &fields[len(fields)-1]
			f.lines = append(f.lines, string(bytes.TrimSpace(line)))
		case ok && isFieldName(name):
			fields = append(fields, rawField{strings.ToLower(string(name)), []string{string(bytes.TrimSpace(value))}})
			folds = true
		default:
			bad++
			folds = false
		}
	}
	if len(fields) == 0 && bad > 0 {
		m.warn("there is no header; everything was taken for text")
		rest = raw
	} else if bad > 0 {
		m.warn("%d lines of a header are no fields and were skipped", bad)
	}
	e := entity{header: header{}, body: rest}
	for _, f := range fields {
		e.header[f.name] = append(e.header[f.name], strings.Join(f.lines, " "))
	}
	return e
}

// cutBlankLine splits at the first empty line.
func cutBlankLine(b []byte) (before, after []byte, found bool) {
	i, skip := bytes.Index(b, []byte("\n\n")), 2
	if j := bytes.Index(b, []byte("\r\n\r\n")); j >= 0 && (i < 0 || j < i) {
		i, skip = j, 4
	}
	if i < 0 {
		return b, nil, false
	}
	return b[:i], b[i+skip:], true
}

// isFieldName reports whether b is printable ASCII without spaces, as the name
// of a field is.
func isFieldName(b []byte) bool {
	for _, c := range b {
		if c <= ' ' || c >= 0x7f {
			return false
		}
	}
	return len(b) > 0
}

// readHeader fills the fields of m that a script uses most, and Headers.
func (m *Mail) readHeader(h header) {
	m.Subject = m.decodeWords(h.get("subject"))
	if len(m.Subject) > maxSubject {
		m.warn("the subject is longer than %d bytes; its end was left out", maxSubject)
		m.Subject = strings.ToValidUTF8(m.Subject[:maxSubject], "")
	}
	m.To, m.Cc = m.mailboxes(h, "to"), m.mailboxes(h, "cc")
	m.Bcc, m.ReplyTo = m.mailboxes(h, "bcc"), m.mailboxes(h, "reply-to")
	if from := m.mailboxes(h, "from"); len(from) > 0 {
		m.From = &from[0]
		if len(from) > 1 {
			m.warn("the mail is from %d mailboxes; from is the first", len(from))
		}
	}
	if ids := m.ids(h, "message-id"); len(ids) > 0 {
		m.MessageID = &ids[0]
	}
	if ids := m.ids(h, "in-reply-to"); len(ids) > 0 {
		m.InReplyTo = &ids[0]
	}
	m.References = m.ids(h, "references")
	m.readDate(h)
	room := maxKeptHeaders
	for _, name := range sortedNames(h) {
		for _, v := range h[name] {
			v = m.decodeWords(v)
			if room -= len(name) + len(v); room < 0 {
				m.warn("headers is not complete: the header is too long")
				return
			}
			m.Headers[name] = append(m.Headers[name], v)
		}
	}
}

// field wraps the fields of one name for go-message.
func field(h header, name string) mail.Header {
	return mail.HeaderFromMap(map[string][]string{name: h[name]})
}

// readDate sets Date if there is one that can be read.
func (m *Mail) readDate(h header) {
	if h.get("date") == "" {
		return
	}
	f := field(h, "date")
	t, err := f.Date()
	if err != nil || t.Year() < 1 || t.Year() > 9999 {
		m.warn("the date %q cannot be read", clip(h.get("date")))
		return
	}
	s := t.UTC().Format(time.RFC3339)
	m.Date = &s
}

// ids returns message ids without their brackets. What isn't one by the
// standard, but is all there is, is kept as it came.
func (m *Mail) ids(h header, name string) []string {
	value := h.get(name)
	if value == "" {
		return []string{}
	}
	if len(value) > maxSubject {
		m.warn("%s is too long and was left out", name)
		return []string{}
	}
	f := field(h, name)
	ids, err := f.MsgIDList(name)
	if err == nil && len(ids) > 0 {
		return valid(ids)
	}
	return valid(strings.FieldsFunc(value, func(r rune) bool { return strings.ContainsRune("<>, \t", r) }))
}

// MessageIDs returns all ids in the fields Message-ID of a header. There should be one, and what passes a mail on may add its own.
func MessageIDs(raw []byte) (out []string) {
	m := new(Mail)
	for _, value := range m.split(raw).header["message-id"] {
		out = append(out, m.ids(header{"message-id": {value}}, "message-id")...)
	}
	return out
}

// mailboxes reads all address fields of that name.
func (m *Mail) mailboxes(h header, name string) []Mailbox {
	out := []Mailbox{}
	for _, value := range h[name] {
		list, err := mail.ParseAddressList(value)
		if err == nil {
			for _, a := range list {
				out = append(out, Mailbox{utf8Text(a.Name), utf8Text(a.Address)})
			}
			continue
		}
		if group := strings.TrimSuffix(strings.TrimSpace(value), ";"); value == "" || strings.HasSuffix(strings.TrimSpace(group), ":") {
			continue // "undisclosed-recipients:;"
		}
		m.warn("%s: %q is not a list of addresses", name, clip(value))
		out = append(out, m.lenientMailboxes(value)...)
	}
	if len(out) > maxMailboxes {
		m.warn("%s has %d mailboxes; the first %d are listed", name, len(out), maxMailboxes)
		out = out[:maxMailboxes]
	}
	for i := range out {
		m.bound(name, &out[i])
	}
	return out
}

// bound cuts what is too long of a mailbox of a field. A part of an address would be another one: of such a mailbox the beginning is
// a name.
func (m *Mail) bound(field string, b *Mailbox) {
	if len(b.Name) <= maxMailboxText && len(b.Address) <= maxMailboxText {
		return
	}
	m.warn("%s has a mailbox whose name or address is longer than %d bytes; its end was left out", field, maxMailboxText)
	if len(b.Address) > maxMailboxText {
		b.Name, b.Address = cmp.Or(b.Name, b.Address), ""
	}
	b.Name = strings.ToValidUTF8(b.Name[:min(len(b.Name), maxMailboxText)], "")
}

// lenientMailboxes takes what looks like an address out of each entry.
func (m *Mail) lenientMailboxes(value string) []Mailbox {
	var out []Mailbox
	for _, part := range splitOutside(value, ',') {
		part = strings.TrimSpace(part)
		name, address := part, "" // as they are written: what is encoded is a name, and never an address
		if i, j := strings.LastIndexByte(part, '<'), strings.LastIndexByte(part, '>'); i >= 0 && i < j {
			name, address = part[:i], part[i+1:j]
		} else if strings.Contains(part, "@") && !strings.ContainsAny(part, " \t") {
			name, address = "", part
		}
		if part != "" {
			name = strings.Trim(strings.TrimSpace(m.decodeWords(name)), `"`)
			out = append(out, Mailbox{name, utf8Text(strings.TrimSpace(address))})
		}
	}
	return out
}

// splitOutside splits s at sep, but not within quotes, and not at a comma within
// angle brackets.
func splitOutside(s string, sep byte) []string {
	var out []string
	start, quoted, angle := 0, false, false
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case c == '\\' && quoted:
			i++
		case c == '"':
			quoted = !quoted
		case c == '<' && !quoted && sep == ',':
			angle = true
		case c == '>' && !quoted:
			angle = false
		case c == sep && !quoted && !angle:
			out = append(out, s[start:i])
			start = i + 1
		}
	}
	return append(out, s[start:])
}

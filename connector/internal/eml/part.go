package eml

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// A walker goes through the parts of a mail.
type walker struct {
	mail  *Mail
	parts int
	text  strings.Builder
	html  strings.Builder
}

// walk collects e, which is at that place, and the parts within it.
func (w *walker) walk(e entity, depth int, place string) {
	if w.parts++; w.parts > maxParts {
		if w.parts == maxParts+1 {
			w.mail.warn("the mail has more than %d parts; the rest was left out", maxParts)
		}
		return
	}
	kind, params := w.mail.params(e.header.get("content-type"))
	kind = strings.ToLower(kind)
	if kind == "" || strings.Count(kind, "/") != 1 {
		kind = "text/plain"
	}
	if strings.HasPrefix(kind, "multipart/") && depth < maxDepth {
		if boundary := params["boundary"]; boundary != "" {
			w.multipart(e.body, boundary, depth, place)
			return
		}
		w.mail.warn("a %s part names no boundary; it was taken for text", kind)
		kind = "text/plain"
	} else if depth >= maxDepth {
		w.mail.warn("parts are nested more than %d deep; the innermost were not opened", maxDepth)
	}
	w.leaf(e, kind, params, cmp.Or(place, "1"))
}

// multipart walks the parts between the boundary lines. A missing end, as of a
// mail that was cut off, ends the last part.
func (w *walker) multipart(body []byte, boundary string, depth int, place string) {
	mark := []byte("--" + boundary)
	start, ended := -1, false // of the part being read; before the first one
	number := 0
	next := func() string {
		number++
		return strings.TrimPrefix(place+"."+strconv.Itoa(number), ".")
	}
	for at := 0; at < len(body) && !ended; {
		end := len(body)
		if i := bytes.IndexByte(body[at:], '\n'); i >= 0 {
			end = at + i + 1
		}
		line := bytes.TrimRight(body[at:end], " \t\r\n")
		if rest, ok := bytes.CutPrefix(line, mark); ok && (len(rest) == 0 || string(rest) == "--") {
			if start >= 0 {
				w.walk(w.mail.split(trimNewline(body[start:at])), depth+1, next())
			}
			start, ended = end, len(rest) > 0
		}
		at = end
	}
	switch {
	case start < 0:
		w.mail.warn("no part of a multipart body was found; it was taken for text")
		w.leaf(entity{body: body}, "text/plain", nil, cmp.Or(place, "1"))
	case !ended:
		w.mail.warn("a multipart body has no end; the mail may be cut off")
		w.walk(w.mail.split(body[start:]), depth+1, next())
	}
}

// trimNewline removes the line end before a boundary, which belongs to it.
func trimNewline(b []byte) []byte {
	return bytes.TrimSuffix(bytes.TrimSuffix(b, []byte("\n")), []byte("\r"))
}

// leaf collects a part without parts: text of the mail, or an attachment.
func (w *walker) leaf(e entity, kind string, params map[string]string, place string) {
	disposition, more := w.mail.params(e.header.get("content-disposition"))
	name := more["filename"]
	name = cmp.Or(name, params["name"])
	body := w.mail.transferDecode(e)
	attached := strings.EqualFold(disposition, "attachment") || name != ""
	switch {
	case attached:
	case kind == "text/plain":
		w.add(&w.text, "text", body, params["charset"])
		return
	case kind == "text/html":
		w.add(&w.html, "html", body, params["charset"])
		return
	}
	id := strings.Trim(e.header.get("content-id"), "<> ")
	w.mail.Attachments = append(w.mail.Attachments, Attachment{
		Name: safeName(name), Type: utf8Text(kind), Size: len(body), ContentID: utf8Text(id),
		Inline: strings.EqualFold(disposition, "inline"), Part: place, Raw: body,
	})
}

// add appends a text part.
func (w *walker) add(b *strings.Builder, what string, body []byte, charset string) {
	s := strings.ReplaceAll(w.mail.toUTF8(body, charset), "\r\n", "\n")
	if b.Len() > 0 && s != "" {
		b.WriteByte('\n')
	}
	if room := maxBodyText - b.Len(); len(s) > room {
		w.mail.warn("%s is longer than %d bytes; its end was left out", what, maxBodyText)
		s = strings.ToValidUTF8(s[:max(room, 0)], "")
	}
	b.WriteString(s)
}

// safeName makes a file name of what a stranger called it.
func safeName(s string) string {
	s = strings.Map(func(r rune) rune {
		switch {
		case r == '/' || r == '\\':
			return '_'
		case r < ' ' || r == 0x7f:
			return -1
		}
		return r
	}, utf8Text(s))
	return clip(s)
}

// transferDecode undoes the Content-Transfer-Encoding as far as it goes.
func (m *Mail) transferDecode(e entity) []byte {
	switch enc := strings.ToLower(strings.TrimSpace(e.header.get("content-transfer-encoding"))); enc {
	case "base64":
		return m.base64(e.body)
	case "quoted-printable":
		return m.quotedPrintable(e.body)
	case "", "7bit", "8bit", "binary":
		return e.body
	default:
		m.warn("the transfer encoding %q is not known; the part was left as it is", clip(enc))
		return e.body
	}
}

// base64 decodes what is in the alphabet and skips the rest, as the standard asks for. Padding ends a piece: what some
// mailers put behind it is another one.
func (m *Mail) base64(body []byte) []byte {
	out, clean, odd := make([]byte, 0, base64.RawStdEncoding.DecodedLen(len(body))), make([]byte, 0, len(body)), 0
	end := func() {
		if len(clean)%4 == 1 {
			m.warn("a base64 part is cut off")
			clean = clean[:len(clean)-1]
		}
		out, _ = base64.RawStdEncoding.AppendDecode(out, clean) // the alphabet and the length are right
		clean = clean[:0]
	}
	for _, c := range body {
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '+', c == '/':
			clean = append(clean, c)
		case c == '=':
			if len(clean)%4 > 1 { // of a whole piece it is none
				end()
			}
		case c != '\r' && c != '\n' && c != ' ' && c != '\t':
			odd++
		}
	}
	end()
	if odd > 0 {
		m.warn("a base64 part has %d characters that do not belong there", odd)
	}
	return out
}

// quotedPrintable decodes =XX and soft line breaks and keeps the rest.
func (m *Mail) quotedPrintable(body []byte) []byte {
	out, odd := make([]byte, 0, len(body)), 0
	for i := 0; i < len(body); i++ {
		if body[i] != '=' {
			out = append(out, body[i])
			continue
		}
		rest := body[i+1:]
		line := bytes.TrimLeft(rest[:min(len(rest), 80)], " \t")
		skipped := min(len(rest), 80) - len(line)
		switch {
		case len(rest) >= 2 && unhex(rest[0]) >= 0 && unhex(rest[1]) >= 0:
			out = append(out, byte(unhex(rest[0])<<4|unhex(rest[1])))
			i += 2
		case bytes.HasPrefix(line, []byte("\r\n")):
			i += skipped + 2
		case bytes.HasPrefix(line, []byte("\n")):
			i += skipped + 1
		case len(line) == 0:
			i += skipped
		default:
			out = append(out, '=')
			odd++
		}
	}
	if odd > 0 {
		m.warn("a quoted-printable part has %d broken escapes, which were kept as they are", odd)
	}
	return out
}

// unhex returns the value of a hexadecimal digit, or -1.
func unhex(c byte) int {
	switch {
	case '0' <= c && c <= '9':
		return int(c - '0')
	case 'a' <= c && c <= 'f':
		return int(c-'a') + 10
	case 'A' <= c && c <= 'F':
		return int(c-'A') + 10
	}
	return -1
}

// sortedNames makes the order of headers the same each time.
func sortedNames(h header) []string { return slices.Sorted(maps.Keys(h)) }

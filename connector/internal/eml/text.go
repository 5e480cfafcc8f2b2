package eml

import (
	"bytes"
	"io"
	"mime"
	"sort"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/emersion/go-message/charset"
)

// utf8Text returns s with U+FFFD for what is no UTF-8.
func utf8Text(s string) string { return strings.ToValidUTF8(s, string(utf8.RuneError)) }

// valid is utf8Text for a list.
func valid(list []string) []string {
	for i := range list {
		list[i] = utf8Text(list[i])
	}
	return list
}

// clip bounds what is quoted of a mail in a warning or a name.
func clip(s string) string {
	s = utf8Text(s)
	if r := []rune(s); len(r) > 200 {
		return string(r[:199]) + "…"
	}
	return s
}

// toUTF8 decodes text. An unknown charset counts as UTF-8.
func (m *Mail) toUTF8(b []byte, name string) string {
	switch strings.ToLower(strings.TrimSpace(name)) {
	case "", "utf-8", "utf8", "us-ascii", "ascii":
	default:
		r, err := charset.Reader(strings.TrimSpace(name), bytes.NewReader(b))
		if err == nil {
			var out []byte
			if out, err = io.ReadAll(io.LimitReader(r, 4*maxBodyText)); err == nil {
				return m.replaceInvalid(out)
			}
		}
		m.warn("text in the charset %q cannot be decoded; it was taken for UTF-8", clip(name))
	}
	return m.replaceInvalid(b)
}

// replaceInvalid is utf8Text with a warning.
func (m *Mail) replaceInvalid(b []byte) string {
	if !utf8.Valid(b) {
		m.warn("text is not valid in its charset; U+FFFD stands for what cannot be read")
	}
	return utf8Text(string(b))
}

// decodeWords decodes RFC 2047 words. One that can't be decoded stays as it is.
func (m *Mail) decodeWords(s string) string {
	d := mime.WordDecoder{CharsetReader: charset.Reader}
	out, err := d.DecodeHeader(s)
	if err != nil {
		m.warn("%q cannot be decoded", clip(s))
		out = s
	}
	if !utf8.ValidString(out) {
		m.warn("a field is not UTF-8; U+FFFD stands for what cannot be read")
	}
	return utf8Text(out)
}

// params reads "value; key=value; …" with quotes, RFC 2231 continuations and
// charsets, and the RFC 2047 words that mailers put there although they mustn't.
// It takes what it can: mime.ParseMediaType gives up at the first mistake, and a
// mail would lose its boundary over a broken file name.
func (m *Mail) params(s string) (value string, params map[string]string) {
	list := splitOutside(s, ';')
	params = map[string]string{}
	pieces := map[string][]piece{}
	for _, part := range list[1:] {
		key, v, ok := strings.Cut(part, "=")
		key = strings.ToLower(strings.TrimSpace(key))
		if !ok || key == "" {
			continue
		}
		v = unquote(strings.TrimSpace(v))
		name, rest, star := strings.Cut(key, "*")
		if !star {
			if _, twice := params[key]; !twice {
				params[key] = v
				if key != "boundary" {
					params[key] = m.decodeWords(v)
				}
			}
			continue
		}
		number, encoded := strings.CutSuffix(rest, "*")
		n, err := strconv.Atoi(number)
		if rest == "" {
			encoded = true
		} else if err != nil {
			continue
		}
		pieces[name] = append(pieces[name], piece{n, v, encoded})
	}
	for name, list := range pieces {
		params[name] = m.join(list)
	}
	// "text/plain (a comment)"
	value, _, _ = strings.Cut(strings.TrimSpace(list[0]), "(")
	return strings.TrimSpace(value), params
}

// A piece is one part of a param that RFC 2231 split.
type piece struct {
	number  int
	text    string
	encoded bool
}

// join decodes the pieces of a param: the first encoded one names the charset.
func (m *Mail) join(list []piece) string {
	sort.SliceStable(list, func(i, j int) bool { return list[i].number < list[j].number })
	var raw []byte
	cs := ""
	for i, p := range list {
		if !p.encoded {
			raw = append(raw, p.text...)
			continue
		}
		if i == 0 {
			if parts := strings.SplitN(p.text, "'", 3); len(parts) == 3 {
				cs, p.text = parts[0], parts[2]
			}
		}
		raw = append(raw, unpercent(p.text)...)
	}
	return m.toUTF8(raw, cs)
}

// unpercent decodes %XX and keeps the rest.
func unpercent(s string) []byte {
	var out []byte
	for i := 0; i < len(s); i++ {
		if s[i] == '%' && i+2 < len(s) && unhex(s[i+1]) >= 0 && unhex(s[i+2]) >= 0 {
			out = append(out, byte(unhex(s[i+1])<<4|unhex(s[i+2])))
			i += 2
			continue
		}
		out = append(out, s[i])
	}
	return out
}

// unquote removes quotes and their escapes. An end that is missing is fine.
func unquote(s string) string {
	if !strings.HasPrefix(s, `"`) {
		return s
	}
	s = strings.TrimSuffix(s[1:], `"`)
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+1 < len(s) {
			i++
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

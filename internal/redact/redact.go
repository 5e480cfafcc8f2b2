// Package redact removes secrets from texts that people see and from results that are
// stored.
//
// It is the second line of defence: texts are made without secrets where that is
// possible. A service may still return what it was sent, in a form of its own, so a
// secret is recognised in these forms too: in another case, with JSON, URL, HTML or
// backslash escapes for any of its characters, broken over lines, in hex and in base64.
package redact

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
)

// Hidden stands where a secret was.
const Hidden = "[hidden]"

// Bounds of what counts as a secret. A shorter value would blank out half of every
// message, or corrupt results, and protect nothing.
const (
	minText   = 4
	minResult = 8
)

// A Redactor knows the secrets of one connection. The zero Redactor knows none. It is
// safe for concurrent use.
type Redactor struct {
	text   patterns
	result patterns
}

// New returns a Redactor of the given secrets. Values that are too short are left out.
func New(secrets ...string) Redactor {
	var r Redactor
	for _, s := range secrets {
		if len(s) >= minText {
			r.text.add(s)
		}
		if len(s) >= minResult {
			r.result.add(s)
		}
	}
	r.text.sort()
	r.result.sort()
	return r
}

// Text returns s without secrets.
func (r Redactor) Text(s string) string { return r.text.replace(s) }

// JSON returns raw with secrets taken out of its strings, names and numbers. Raw that
// holds none is returned as it is, byte for byte; what is not one JSON value is treated as text.
// Of a member that is repeated the last stays, where a secret or an escape is in raw: who reads what
// is returned may take another one.
func (r Redactor) JSON(raw []byte) []byte {
	if len(r.result.list) == 0 {
		return raw
	}
	text := string(raw)
	if !r.result.in(text) && !strings.Contains(text, `\`) {
		return raw
	}
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil || strings.TrimSpace(text[d.InputOffset():]) != "" {
		return []byte(r.result.replace(text))
	}
	c := cleaner{patterns: &r.result}
	if v = c.value(v); !c.changed && c.members == membersOf(text) {
		return raw
	}
	out, err := json.Marshal(v)
	if err != nil {
		return []byte(`"` + Hidden + `"`)
	}
	return out
}

// A cleaner takes secrets out of a decoded value and notes whether there were any.
type cleaner struct {
	*patterns
	changed bool
	members int // of the objects that were gone through
}

// membersOf returns how many members the objects of a JSON text have, each as often as it is there.
func membersOf(text string) (n int) {
	within := false // a string
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == '"':
			within = !within
		case c == '\\' && within:
			i++
		case c == ':' && !within:
			n++
		}
	}
	return n
}

func (c *cleaner) text(s string) string {
	clean := c.replace(s)
	c.changed = c.changed || clean != s
	return clean
}

func (c *cleaner) value(v any) any {
	switch v := v.(type) {
	case string:
		return c.text(v)
	case json.Number:
		if c.text(v.String()) != v.String() {
			return Hidden
		}
	case []any:
		for i := range v {
			v[i] = c.value(v[i])
		}
	case map[string]any:
		c.members += len(v)
		clean := make(map[string]any, len(v))
		for k, e := range v {
			clean[c.text(k)] = c.value(e)
		}
		return clean
	}
	return v
}

// Patterns are the forms of secrets that are looked for, longest first: a word within
// a value must not keep the value from being found.
type patterns struct {
	list  []string
	first [256]bool  // bytes with which a match may begin
	by    [][]string // list by the byte that begins a match, unless it is escaped
}

// add adds a secret and its encodings as a whole. Escapes of single characters are
// recognised when texts are read.
func (p *patterns) add(secret string) {
	p.list = append(p.list, secret, hex.EncodeToString([]byte(secret)))
	for pad := range 3 {
		// Within a longer text, base64 of the secret has one of three forms.
		enc := base64.StdEncoding.EncodeToString(append(make([]byte, pad), secret...))
		whole := enc[(pad*8+5)/6 : (pad+len(secret))*8/6]
		p.list = append(p.list, whole, strings.NewReplacer("+", "-", "/", "_").Replace(whole))
	}
}

// sort puts the patterns in order and notes how they begin.
func (p *patterns) sort() {
	slices.SortFunc(p.list, func(a, b string) int {
		if len(a) != len(b) {
			return len(b) - len(a)
		}
		return strings.Compare(a, b)
	})
	p.list = slices.Compact(p.list)
	p.by = make([][]string, 256)
	for _, s := range p.list {
		begins := []byte{lower(s[0]), upper(s[0])}
		if s[0] == ' ' {
			begins = append(begins, '+')
		}
		slices.Sort(begins)
		for _, c := range slices.Compact(begins) {
			p.by[c], p.first[c] = append(p.by[c], s), true
		}
		for _, c := range []byte(`\%&`) {
			p.first[c] = true
		}
	}
}

// in reports whether s holds a secret.
func (p *patterns) in(s string) bool {
	for i := range len(s) {
		if p.first[s[i]] && p.match(s, i) > 0 {
			return true
		}
	}
	return false
}

// replace returns s with Hidden in place of each secret.
func (p *patterns) replace(s string) string {
	var b strings.Builder
	from := 0
	for i := 0; i < len(s); {
		if p.first[s[i]] {
			if end := p.match(s, i); end > 0 {
				b.WriteString(s[from:i])
				b.WriteString(Hidden)
				i, from = end, end
				continue
			}
		}
		i++
	}
	if from == 0 {
		return s
	}
	b.WriteString(s[from:])
	return b.String()
}

// match returns the end of a secret that begins at i, or 0. Only the patterns that begin
// with the byte there are tried, or with the one that an escape there stands for.
func (p *patterns) match(s string, i int) int {
	end := matchAny(s, i, p.by[s[i]])
	if c, size := unescape(s[i:]); size > 0 && c != s[i] {
		end = max(end, matchAny(s, i, p.by[c]))
	}
	return end
}

// matchAny returns the end of the first pattern that begins at i, or 0.
func matchAny(s string, i int, list []string) int {
	for _, want := range list {
		if end := matchOne(s, i, want); end > 0 {
			return end
		}
	}
	return 0
}

// matchOne returns the end of want that begins at i, or 0. A backslash may be a
// character or begin an escape, and a line break may be one of want or of what folds it,
// so it follows a set of positions, which stays small.
func matchOne(s string, i int, want string) int {
	n := 0
	for ; n < len(want) && i < len(s) && plain(s[i]); n, i = n+1, i+1 {
		if lower(s[i]) != lower(want[n]) {
			return 0
		}
	}
	var a, b [8]int // as many as there mostly are
	at, next := append(a[:0], i), b[:0]
	breaks := maxBreaks * min(n, 1) // that may be before a byte
	for ; n < len(want); n++ {
		next = next[:0]
		for _, j := range at {
			next = matchByte(next, s, j, want[n])
			for range breaks {
				from := j
				if j = skipBreak(s, j); j == from {
					break
				}
				next = matchByte(next, s, j, want[n])
			}
		}
		if len(next) == 0 {
			return 0
		}
		at, next, breaks = next, at, maxBreaks
	}
	return slices.Max(at)
}

// plain reports whether a byte stands for itself alone.
func plain(c byte) bool {
	switch c {
	case '\\', '%', '&', '+', '\n', '\r':
		return false
	}
	return true
}

// matchByte adds to ends where a byte ends that is at j, as it is or escaped.
func matchByte(ends []int, s string, j int, want byte) []int {
	if j >= len(s) {
		return ends
	}
	if (lower(s[j]) == lower(want) || s[j] == '+' && want == ' ') && !slices.Contains(ends, j+1) {
		ends = append(ends, j+1)
	}
	if c, size := unescape(s[j:]); size > 0 && (lower(c) == lower(want) || size == 2 && control(c) == want) && !slices.Contains(ends, j+size) {
		ends = append(ends, j+size)
	}
	return ends
}

// maxBreaks is how many line breaks in a row may be within a secret: CR and LF twice, which is an
// empty line. Without a bound, n escaped breaks would take n² steps: a match may begin at each of
// them, and all that follow would be skipped.
const maxBreaks = 4

// skipBreak returns the position after a line break at j, raw or escaped, and the blanks
// that follow it.
func skipBreak(s string, j int) int {
	switch {
	case j < len(s) && (s[j] == '\n' || s[j] == '\r'):
		j++
	case j+1 < len(s) && s[j] == '\\' && (s[j+1] == 'n' || s[j+1] == 'r'):
		j += 2
	default:
		return j
	}
	for j < len(s) && (s[j] == ' ' || s[j] == '\t') {
		j++
	}
	return j
}

// control returns the control character that a letter stands for after a backslash.
func control(letter byte) byte {
	if i := strings.IndexByte("bfnrt", letter); i >= 0 {
		return "\b\f\n\r\t"[i]
	}
	return letter
}

// entities are the characters that HTML writes by name.
var entities = map[string]byte{"&amp;": '&', "&lt;": '<', "&gt;": '>', "&quot;": '"', "&apos;": '\''}

// unescape returns the byte that an escape at the start of s stands for, and the length
// of the escape; 0 if there is none. Characters beyond U+00FF are not unescaped.
func unescape(s string) (byte, int) {
	switch {
	case s[0] == '%':
		return hexByte(s, 1, 2)
	case strings.HasPrefix(s, `\u00`):
		return hexByte(s, 4, 2)
	case strings.HasPrefix(s, `\x`):
		return hexByte(s, 2, 2)
	case s[0] == '\\' && len(s) > 1:
		return s[1], 2
	case s[0] != '&':
		return 0, 0
	}
	end := strings.IndexByte(s[:min(len(s), 10)], ';')
	if end < 0 {
		return 0, 0
	}
	if c, ok := entities[strings.ToLower(s[:end+1])]; ok {
		return c, end + 1
	}
	number, base := strings.TrimPrefix(s[1:end], "#"), 10
	if strings.HasPrefix(strings.ToLower(number), "x") {
		number, base = number[1:], 16
	}
	n, err := strconv.ParseUint(number, base, 8)
	if err != nil || s[1] != '#' {
		return 0, 0
	}
	return byte(n), end + 1
}

// hexByte returns the byte that n hex digits at i stand for.
func hexByte(s string, i, n int) (byte, int) {
	if len(s) < i+n {
		return 0, 0
	}
	v, err := strconv.ParseUint(s[i:i+n], 16, 8)
	if err != nil {
		return 0, 0
	}
	return byte(v), i + n
}

func lower(c byte) byte {
	if 'A' <= c && c <= 'Z' {
		return c + 'a' - 'A'
	}
	return c
}

func upper(c byte) byte {
	if 'a' <= c && c <= 'z' {
		return c - 'a' + 'A'
	}
	return c
}

package repair

import (
	"slices"
	"strings"
	"unicode/utf8"
)

// A line is one of a script: as it is written, and what is compared of it. A text over several lines is
// a part of one.
type line struct {
	text, bare string
	code       string // without what is within texts and expressions
}

// A reader takes the remarks out of a script. Where a remark begins is only known to who knows what is a text, a template or
// a regular expression: a proposal may have what looks like a remark in one of them, with a call in between.
type reader struct {
	script string
	pos    int
	lines  []line

	text strings.Builder // of the line at hand
	bare strings.Builder // without the spaces of its code
	code strings.Builder
	gap  bool // something was left out of bare since its last token

	last    token   // before pos
	before  token   // before last
	open    []paren // that are not closed
	control bool    // the last ")" ended the head of a statement, such as if
	unclear bool    // whether a slash divides or begins an expression is not known for sure
}

// A token is as much of one as tells what a slash after it means.
type token struct {
	kind byte // n: name; p: punctuation; v: another value; 0: none
	text string
}

// A paren is an open bracket. That of "(" tells whether it is the head of a statement.
type paren struct {
	text string
	head bool
}

// read returns the lines of a script without their remarks, and whether it is certain what is one.
func read(script string) (lines []line, certain bool) {
	r := &reader{script: script}
	for r.pos < len(script) {
		r.next()
	}
	r.end()
	return r.lines, !r.unclear
}

// isEnd reports whether r ends a line, and with it a remark.
func isEnd(r rune) bool { return r == '\n' || r == '\r' || r == '\u2028' || r == '\u2029' }

// end ends the line at hand.
func (r *reader) end() {
	text := strings.TrimSpace(r.text.String())
	if text != "" {
		r.lines = append(r.lines, line{text, r.bare.String(), r.code.String()})
	}
	r.text.Reset()
	r.bare.Reset()
	r.code.Reset()
	r.gap = false
}

// take adds the next n bytes to the line at hand: as code, or as what is within a text.
func (r *reader) take(n int, isCode bool) string {
	s := r.script[r.pos:min(r.pos+n, len(r.script))]
	r.pos += len(s)
	r.text.WriteString(s)
	if isCode {
		r.code.WriteString(s)
	} else {
		r.code.WriteByte(' ')
	}
	if first, _ := utf8.DecodeRuneInString(s); r.gap && isName(first) && r.bare.Len() > 0 { // two names stay two
		if last, _ := utf8.DecodeLastRuneInString(r.bare.String()); isName(last) {
			r.bare.WriteByte(' ')
		}
	}
	r.gap = false
	r.bare.WriteString(s)
	return s
}

// skip passes over n bytes that are a blank or a remark.
func (r *reader) skip(n int) {
	r.pos = min(r.pos+n, len(r.script))
	r.text.WriteByte(' ')
	r.code.WriteByte(' ')
	r.gap = true
}

// put notes the token that was taken.
func (r *reader) put(kind byte, text string) { r.before, r.last = r.last, token{kind, text} }

// next takes one token, remark or blank.
func (r *reader) next() {
	rest := r.script[r.pos:]
	c, size := utf8.DecodeRuneInString(rest)
	switch {
	case isEnd(c):
		r.end()
		r.pos += size
	case strings.HasPrefix(rest, "//"):
		n := strings.IndexFunc(rest, isEnd)
		if n < 0 {
			n = len(rest)
		}
		r.skip(n)
	case strings.HasPrefix(rest, "/*"):
		n := strings.Index(rest[2:], "*/")
		if n < 0 {
			n = len(rest)
		}
		r.skip(n + len("/**/"))
	case c == '"' || c == '\'':
		r.quoted(rest, c)
	case c == '`':
		r.take(1, false)
		r.template()
	case c == '/':
		r.slash(rest)
	case isName(c):
		n := strings.IndexFunc(rest, func(c rune) bool { return !isName(c) })
		if n < 0 {
			n = len(rest)
		}
		r.put('n', r.take(n, true))
	case strings.ContainsRune(" \t\v\f\u00a0\ufeff", c):
		r.skip(size)
	default:
		r.punct(rest, size)
	}
}

// isName reports whether c may be in a name or a number; of those that do not compile nobody asks.
func isName(c rune) bool {
	return c == '_' || c == '$' || c == '\\' || c == '#' || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c > '~' && c != '\u00a0' && c != '\ufeff'
}

// punct takes a punctuation mark, and minds the brackets.
func (r *reader) punct(rest string, size int) {
	for _, two := range []string{"++", "--", "=>", "?."} {
		if strings.HasPrefix(rest, two) {
			size = 2
		}
	}
	text := rest[:size]
	switch text {
	case "(":
		head := r.last.kind == 'n' && slices.Contains([]string{"if", "while", "for", "with"}, r.last.text) && !r.before.isDot() ||
			r.last == token{'n', "await"} && r.before == token{'n', "for"}
		r.open = append(r.open, paren{text, head})
	case "{", "[":
		r.open = append(r.open, paren{text: text})
	case "}", "]", ")":
		var p paren
		if n := len(r.open); n > 0 {
			p, r.open = r.open[n-1], r.open[:n-1]
		}
		r.control = p.head
		if text == "}" && p.text == "${" {
			r.take(1, false)
			r.template()
			return
		}
	}
	r.put('p', r.take(size, true))
}

func (t token) isDot() bool { return t.kind == 'p' && (t.text == "." || t.text == "?.") }

// quoted takes a text. One that is not closed in its line does not compile.
func (r *reader) quoted(rest string, quote rune) {
	n := 1
	for n < len(rest) {
		c, size := utf8.DecodeRuneInString(rest[n:])
		switch {
		case c == '\\':
			_, next := utf8.DecodeRuneInString(rest[n+size:])
			n += next
		case c == '\n' || c == '\r':
			r.unclear = true
			r.take(n, false)
			return
		case c == quote:
			r.take(n+size, false)
			r.put('v', "")
			return
		}
		n += size
	}
	r.unclear = true
	r.take(n, false)
}

// template takes a piece of a template, up to its end or to an expression in it.
func (r *reader) template() {
	rest := r.script[r.pos:]
	for n := 0; n < len(rest); n++ {
		switch {
		case rest[n] == '\\':
			n++
		case rest[n] == '`':
			r.take(n+1, false)
			r.put('v', "")
			return
		case strings.HasPrefix(rest[n:], "${"):
			r.take(n+2, false)
			r.open = append(r.open, paren{text: "${"})
			r.put('p', "{")
			return
		}
	}
	r.unclear = true
	r.take(len(rest), false)
}

// slash takes one that divides, or the regular expression that it begins.
func (r *reader) slash(rest string) {
	value, certain := r.expectsValue()
	r.unclear = r.unclear || !certain
	if !value {
		r.put('p', r.take(1, true))
		return
	}
	class := false
	for n, c := range rest {
		switch {
		case n == 0 || n > 1 && rest[n-1] == '\\' && escapes(rest[:n])%2 == 1:
		case isEnd(c): // it does not compile
			r.unclear = true
			r.put('p', r.take(1, true))
			return
		case c == '[':
			class = true
		case c == ']':
			class = false
		case c == '/' && !class:
			r.take(n+1, false)
			r.put('v', "")
			return
		}
	}
	r.unclear = true
	r.take(len(rest), true)
}

// escapes returns how many backslashes a text ends with.
func escapes(s string) int { return len(s) - len(strings.TrimRight(s, `\`)) }

// expectsValue reports whether a value may stand here, so that a slash begins a regular expression, and whether that is certain.
func (r *reader) expectsValue() (yes, certain bool) {
	switch last := r.last; {
	case last.kind == 'n' && r.before.isDot(), last.kind == 'v':
		return false, true
	case last.kind == 'n':
		switch last.text {
		case "return", "typeof", "case", "in", "instanceof", "delete", "void", "throw", "new", "else", "do":
			return true, true
		case "of", "await", "yield": // or names
			return true, false
		}
		return false, true
	case last.text == ")":
		return r.control, true
	case last.text == "]", last.text == "++", last.text == "--":
		return false, true
	case last.text == "}": // of a block, or of a value
		return false, false
	case last.text == "!": // of TypeScript, behind a value
		return true, r.before.kind == 0 || r.before.kind == 'p' && !strings.Contains(")]}", r.before.text)
	}
	return true, true
}

package workflow

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// A tokenKind is as much as the readers here need to know about a token.
type tokenKind byte

const (
	tName     tokenKind = iota // identifier or keyword
	tString                    // with its quotes
	tTemplate                  // a piece of a template literal
	tNumber
	tRegexp
	tPunct // one character, or "${", "=>", "?.", "..."
)

// A token is a piece of JavaScript or TypeScript. Comments and blanks are none.
type token struct {
	kind tokenKind
	text string
	off  int // bytes into the text
}

// is reports whether t is that punctuator, and not a string that looks like it.
func (t token) is(punct string) bool { return t.kind == tPunct && t.text == punct }

// opens and closes recognise brackets, "${" among them.
func (t token) opens() bool {
	return t.kind == tPunct && (t.text == "{" || t.text == "(" || t.text == "[" || t.text == "${")
}

func (t token) closes() bool {
	return t.kind == tPunct && (t.text == "}" || t.text == ")" || t.text == "]")
}

// A scanner cuts text into tokens. It accepts anything: what is not a program
// becomes tokens that mean nothing.
//
// Whether a slash divides or begins a regular expression is inferred from the token
// before it, which is right in all but odd places, such as a regular expression
// as the first thing after a block.
type scanner struct {
	text   string
	pos    int
	tokens []token

	// brackets holds each open bracket; for "(" also whether a keyword such as
	// if stands before it, since a slash after its end begins an expression.
	brackets []bracket
	control  bool // the last ")" closed such a bracket
}

type bracket struct {
	text    string
	control bool
}

// scan returns the tokens of text.
func scan(text string) []token {
	s := &scanner{text: text}
	if strings.HasPrefix(text, "#!") {
		s.line()
	}
	for s.pos < len(s.text) {
		s.next()
	}
	return s.tokens
}

// next takes one token, comment or blank.
func (s *scanner) next() {
	rest := s.text[s.pos:]
	c := rest[0]
	switch {
	case strings.HasPrefix(rest, "//"):
		s.line()
	case strings.HasPrefix(rest, "/*"):
		s.skipPast("*/")
	case c == '"' || c == '\'':
		s.emit(tString, s.quoted(c))
	case c == '`':
		s.pos++
		s.template(s.pos - 1)
	case c == '/' && s.expectsValue():
		s.emit(tRegexp, s.regexp())
	case c >= '0' && c <= '9':
		s.emit(tNumber, s.while(func(r rune) bool { return nameRune(r) || r == '.' }))
	default:
		s.other(rest)
	}
}

// other takes a name, a blank or a punctuator. Bytes that are none of them, such
// as invalid UTF-8, become punctuators that nobody looks for.
func (s *scanner) other(rest string) {
	r, size := utf8.DecodeRuneInString(rest)
	switch {
	case nameRune(r) || r == '#' || r == '\\':
		n := s.while(nameRune)
		s.emit(tName, max(n, size))
	case unicode.IsSpace(r) || r == '\ufeff':
		s.pos += size
	default:
		for _, long := range []string{"...", "=>", "?."} {
			if strings.HasPrefix(rest, long) {
				size = len(long)
			}
		}
		s.punct(rest[:size])
	}
}

// nameRune reports whether r may stand in a name. It is a little too generous:
// what is no name in JavaScript does not compile anyway.
func nameRune(r rune) bool {
	return r == '_' || r == '$' || unicode.IsLetter(r) || unicode.IsDigit(r)
}

// emit adds the next n bytes as a token.
func (s *scanner) emit(k tokenKind, n int) {
	n = min(n, len(s.text)-s.pos)
	s.tokens = append(s.tokens, token{k, s.text[s.pos : s.pos+n], s.pos})
	s.pos += n
}

// punct adds a punctuator, and minds the brackets. The brace that ends a
// substitution continues its template literal.
func (s *scanner) punct(text string) {
	var open bracket
	switch text {
	case "{", "[":
		s.brackets = append(s.brackets, bracket{text: text})
	case "(":
		s.brackets = append(s.brackets, bracket{text, s.lastIs(tName, "if", "while", "for", "with")})
	case "}", "]", ")":
		if n := len(s.brackets); n > 0 {
			open = s.brackets[n-1]
			s.brackets = s.brackets[:n-1]
		}
		s.control = open.control
	}
	s.emit(tPunct, len(text))
	if text == "}" && open.text == "${" {
		s.template(s.pos)
	}
}

// template takes a piece of a template literal that began at start, up to its
// end or the next substitution.
func (s *scanner) template(start int) {
	for s.pos < len(s.text) {
		switch {
		case s.text[s.pos] == '\\':
			s.pos = min(s.pos+2, len(s.text))
		case s.text[s.pos] == '`':
			s.pos++
			s.piece(start)
			return
		case strings.HasPrefix(s.text[s.pos:], "${"):
			s.piece(start)
			s.brackets = append(s.brackets, bracket{text: "${"})
			s.emit(tPunct, 2)
			return
		default:
			s.pos++
		}
	}
	s.piece(start)
}

// piece adds what was taken since start as a piece of a template.
func (s *scanner) piece(start int) {
	s.tokens = append(s.tokens, token{tTemplate, s.text[start:s.pos], start})
}

// quoted returns the length of the string literal here. It ends at the end of
// the line if it is not closed.
func (s *scanner) quoted(quote byte) int {
	rest := s.text[s.pos:]
	for i := 1; i < len(rest); i++ {
		switch rest[i] {
		case '\\':
			i++
		case quote:
			return i + 1
		case '\n':
			return i
		}
	}
	return len(rest)
}

// regexp returns the length of the regular expression here, flags included.
func (s *scanner) regexp() int {
	rest := s.text[s.pos:]
	class := false
	for i := 1; i < len(rest); i++ {
		switch c := rest[i]; {
		case c == '\\':
			i++
		case c == '\n':
			return 1 // a slash after all
		case c == '[':
			class = true
		case c == ']':
			class = false
		case c == '/' && !class:
			i++
			for i < len(rest) && rest[i] >= 'a' && rest[i] <= 'z' {
				i++
			}
			return i
		}
	}
	return 1
}

// operators are the words after which a slash begins a regular expression.
var operators = []string{"return", "typeof", "case", "in", "of", "delete", "void", "throw", "new",
	"else", "do", "await", "yield", "instanceof"}

// expectsValue reports whether a value may stand here, so that a slash begins a
// regular expression.
func (s *scanner) expectsValue() bool {
	if len(s.tokens) == 0 {
		return true
	}
	switch last := s.tokens[len(s.tokens)-1]; last.kind {
	case tName:
		return slices.Contains(operators, last.text)
	case tPunct:
		return last.text == ")" && s.control || last.text != ")" && last.text != "]" && last.text != "}"
	default:
		return false
	}
}

// lastIs reports whether the last token is one of texts.
func (s *scanner) lastIs(k tokenKind, texts ...string) bool {
	if len(s.tokens) == 0 {
		return false
	}
	last := s.tokens[len(s.tokens)-1]
	return last.kind == k && slices.Contains(texts, last.text)
}

// while returns the length of the longest start whose runes are all f. The
// first rune is not asked.
func (s *scanner) while(f func(rune) bool) int {
	rest := s.text[s.pos:]
	for i, r := range rest {
		if i > 0 && !f(r) {
			return i
		}
	}
	return len(rest)
}

// line passes over the rest of the line. JavaScript has more characters that end one than files have.
func (s *scanner) line() {
	if i := strings.IndexAny(s.text[s.pos:], "\n\r\u2028\u2029"); i >= 0 {
		s.pos += i
		return
	}
	s.pos = len(s.text)
}

// skipPast passes over a comment that began two bytes ago, or what is left if it
// does not end.
func (s *scanner) skipPast(end string) {
	if i := strings.Index(s.text[s.pos+2:], end); i >= 0 {
		s.pos += 2 + i + len(end)
		return
	}
	s.pos = len(s.text)
}

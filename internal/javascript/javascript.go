// Package javascript splits JavaScript and TypeScript into tokens. It runs in linear time, accepts anything and never parses: what
// a slash means is inferred from the tokens before it, and a token says where that, or anything else, is not certain. If no token
// of a program that compiles has a [Doubt], the tokens are those that the compiler sees.
//
// Not certain is
//
//   - a slash after a brace (of a block, or of an object), after of, await and yield (or names), after void, > and ! (or the end of
//     a type), and as the first token of a line behind what may end a statement there, such as continue or let x;
//   - <!--, and --> at the start of a line, which begin comments in scripts and not in modules;
//   - a string, template, comment or regular expression that does not end, and a bracket that closes no other or one of another kind;
//   - a character that is in no program.
//
// JSX is not known: what stands between its tags is read as code. Keep compiles no JSX.
package javascript

import (
	"iter"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// A Kind is as much as its readers need to know about a token.
type Kind byte

// The kinds of tokens. Blank, LineEnd and Comment are between the tokens of the grammar.
const (
	Blank    Kind = iota
	LineEnd       // one: LF, CR, CR LF, U+2028 or U+2029
	Comment       // also a hashbang; without the end of its line
	Name          // identifier, keyword or private name, with its escapes
	Number        // also of a BigInt
	String        // with its quotes
	Template      // a piece of a template literal, with its backticks
	Regexp        // with its flags
	Punct         // one sign, or "${", "=>", "?.", "...", "++" or "--"
)

// A Doubt says what is not certain about a token; empty: nothing.
type Doubt string

// The doubts.
const (
	Slash     Doubt = "a slash may divide or begin a regular expression"
	HTML      Doubt = "it may begin a comment"
	Unended   Doubt = "it does not end"
	Unmatched Doubt = "a bracket does not match"
	Foreign   Doubt = "no program has this character"
)

// A Token is a piece of a text.
type Token struct {
	Kind  Kind
	Text  string
	Off   int // bytes into the text
	Doubt Doubt
}

// Is reports whether t is that punctuator, and not a string that looks like it.
func (t Token) Is(punct string) bool { return t.Kind == Punct && t.Text == punct }

// Ends reports whether t has the end of a line in it, as far as the grammar cares.
func (t Token) Ends() bool {
	return t.Kind == LineEnd || t.Kind == Comment && strings.ContainsAny(t.Text, lineEnds)
}

const lineEnds = "\n\r\u2028\u2029"

// Tokens returns the tokens of a text. Together they are the text. If a bracket or a template is open at its end, the last one is an
// empty [Blank] that says so.
func Tokens(text string) iter.Seq[Token] {
	return func(yield func(Token) bool) {
		s := &scanner{text: text, value: true, sure: true, first: true}
		for s.pos < len(text) {
			t := s.next()
			s.pos += len(t.Text)
			s.note(t)
			if !yield(t) {
				return
			}
		}
		if len(s.open) > 0 || s.inTemplate {
			yield(Token{Off: s.pos, Doubt: Unended})
		}
	}
}

// A scanner knows of what is before pos as much as tells what follows.
type scanner struct {
	text string
	pos  int

	last, before Token // of the grammar
	value        bool  // a value is expected: a slash begins a regular expression
	sure         bool  // that is certain
	first        bool  // a line began since last
	inTemplate   bool  // what follows is text of a template
	open         []bracket
	oneLine      int // up to here no regular expression ends on its line
}

// A bracket is one that is not closed.
type bracket struct {
	text  string
	value bool // a value follows its end, as that of the head of an if, or that of a block
}

// next returns the next token.
func (s *scanner) next() Token {
	rest := s.text[s.pos:]
	switch {
	case s.inTemplate && strings.HasPrefix(rest, "${"):
		return s.token(Punct, 2)
	case s.inTemplate:
		return s.template(rest, 0)
	}
	c, size := utf8.DecodeRuneInString(rest)
	switch {
	case strings.HasPrefix(rest, "\r\n"):
		return s.token(LineEnd, 2)
	case strings.ContainsRune(lineEnds, c):
		return s.token(LineEnd, size)
	case isBlank(c):
		return s.token(Blank, length(rest, size, isBlank))
	case strings.HasPrefix(rest, "//"), s.pos == 0 && strings.HasPrefix(rest, "#!"):
		return s.token(Comment, length(rest, size, func(c rune) bool { return !strings.ContainsRune(lineEnds, c) }))
	case strings.HasPrefix(rest, "/*"):
		if n := strings.Index(rest[2:], "*/"); n >= 0 {
			return s.token(Comment, 2+n+2)
		}
		return s.doubt(Comment, len(rest), Unended)
	case c == '"' || c == '\'':
		return s.quoted(rest)
	case c == '`':
		return s.template(rest, 1)
	case c == '/':
		return s.slash(rest)
	case isDigit(rest[0]), c == '.' && len(rest) > 1 && isDigit(rest[1]):
		return s.token(Number, number(rest))
	case isName(c) || c == '#' || c == '\\':
		return s.name(rest, size)
	}
	return s.punct(rest, size)
}

func (s *scanner) token(k Kind, n int) Token { return Token{k, s.text[s.pos : s.pos+n], s.pos, ""} }

func (s *scanner) doubt(k Kind, n int, d Doubt) Token {
	return Token{k, s.text[s.pos : s.pos+n], s.pos, d}
}

// length returns the length of the longest start of a text whose runes are all f; of the first n bytes nobody asks.
func length(text string, n int, f func(rune) bool) int {
	if i := strings.IndexFunc(text[n:], func(c rune) bool { return !f(c) }); i >= 0 {
		return n + i
	}
	return len(text)
}

// isBlank reports whether c is WhiteSpace of ECMA-262.
func isBlank(c rune) bool {
	return c == ' ' || c == '\t' || c == '\v' || c == '\f' || c == '\ufeff' || c > '~' && unicode.Is(unicode.Zs, c)
}

func isDigit(c byte) bool { return c >= '0' && c <= '9' }

// isName reports whether c may be in a name. Of those beyond ASCII that are in none nobody asks: they do not compile.
func isName(c rune) bool {
	return c == '_' || c == '$' || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' ||
		c > '~' && !isBlank(c) && c != '\u2028' && c != '\u2029'
}

// name takes an identifier, of which any character may be written as an escape.
func (s *scanner) name(rest string, size int) Token {
	n := 0
	if rest[0] == '#' {
		n = 1
	}
	for n < len(rest) {
		if rest[n] == '\\' {
			e := escape(rest[n:])
			if e == 0 {
				break
			}
			n += e
			continue
		}
		c, size := utf8.DecodeRuneInString(rest[n:])
		if !isName(c) {
			break
		}
		n += size
	}
	if n == 0 || rest[:n] == "#" {
		return s.doubt(Punct, size, Foreign)
	}
	return s.token(Name, n)
}

// escape returns the length of the escape of a character that a text begins with; 0: it is none.
func escape(text string) int {
	digits := func(text string) int {
		return length(text, 0, func(c rune) bool { return c >= '0' && c <= '9' || c|0x20 >= 'a' && c|0x20 <= 'f' })
	}
	switch text, ok := strings.CutPrefix(text, `\u`); {
	case !ok:
		return 0
	case strings.HasPrefix(text, "{"):
		if n := digits(text[1:]); n > 0 && strings.HasPrefix(text[1+n:], "}") {
			return len(`\u{`) + n + len("}")
		}
	case len(text) >= 4 && digits(text[:4]) == 4:
		return len(`\u0000`)
	}
	return 0
}

// number returns the length of a number, and of what is written together with it, which does not compile.
func number(text string) int {
	point := text[0] == '.'
	// Another base has no point and no exponent, nor has what begins as octal numbers did: a compiler ends 08 where a name follows.
	plain := len(text) < 2 || text[0] != '0' || !strings.ContainsRune("xXoObB0123456789", rune(text[1]))
	exponent := false
	for n := 1; n < len(text); {
		c, size := utf8.DecodeRuneInString(text[n:])
		switch {
		case c == '.' && plain && !point && !exponent:
			point = true
		case (c == '+' || c == '-') && plain && !exponent && text[n-1]|0x20 == 'e':
			exponent = true
		case !isName(c):
			return n
		}
		n += size
	}
	return len(text)
}

// quoted takes a string. One that is not closed on its line ends there.
func (s *scanner) quoted(rest string) Token {
	for n := 1; n < len(rest); n++ {
		switch rest[n] {
		case '\\':
			if n++; strings.HasPrefix(rest[n:], "\r\n") {
				n++
			}
		case rest[0]:
			return s.token(String, n+1)
		case '\n', '\r':
			return s.doubt(String, n, Unended)
		}
	}
	return s.doubt(String, len(rest), Unended)
}

// template takes a piece of a template, up to its end or to the next substitution.
func (s *scanner) template(rest string, from int) Token {
	for n := from; n < len(rest); n++ {
		switch {
		case rest[n] == '\\':
			n++
		case rest[n] == '`':
			s.inTemplate = false
			return s.token(Template, n+1)
		case strings.HasPrefix(rest[n:], "${"):
			s.inTemplate = true
			return s.token(Template, n)
		}
	}
	return s.doubt(Template, len(rest), Unended)
}

// slash takes one that divides, or the regular expression that it begins.
func (s *scanner) slash(rest string) Token {
	doubt := Slash
	if s.sure && (s.value || !s.first) {
		doubt = ""
	}
	if !s.value {
		return s.doubt(Punct, 1, doubt)
	}
	if s.pos < s.oneLine {
		return s.doubt(Punct, 1, Unended)
	}
	n, ends := regexp(rest)
	if !ends {
		s.oneLine = s.pos + n // or each slash of the line would be a reason to read all of it
		return s.doubt(Punct, 1, Unended)
	}
	return s.doubt(Regexp, n, doubt)
}

// regexp returns the length of a regular expression; if it does not end, that of its line.
func regexp(text string) (n int, ends bool) {
	class, escaped := false, false
	for n, c := range text {
		switch {
		case strings.ContainsRune(lineEnds, c):
			return n, false
		case n == 0:
		case escaped:
			escaped = false
		case c == '\\':
			escaped = true
		case c == '[':
			class = true
		case c == ']':
			class = false
		case c == '/' && !class:
			return length(text, n+1, isName), true
		}
	}
	return len(text), false
}

// signs are those of more than one character that are one token here.
var signs = []string{"...", "=>", "?.", "++", "--"}

// punct takes a sign.
func (s *scanner) punct(rest string, size int) Token {
	for _, long := range signs {
		if strings.HasPrefix(rest, long) && (long != "?." || len(rest) < 3 || !isDigit(rest[2])) {
			size = len(long)
		}
	}
	switch {
	case strings.HasPrefix(rest, "<!--"), s.first && strings.HasPrefix(rest, "-->"):
		return s.doubt(Punct, size, HTML)
	case !strings.ContainsRune("{}()[].;,<>=!+-*%&|^~?:@", rune(rest[0])):
		return s.doubt(Punct, size, Foreign)
	case s.closesOther(rest[0]):
		return s.doubt(Punct, size, Unmatched)
	}
	return s.token(Punct, size)
}

// closesOther reports whether c closes no bracket, or one of another kind.
func (s *scanner) closesOther(c byte) bool {
	kind := strings.IndexByte(")]}", c)
	return kind >= 0 && (len(s.open) == 0 || s.open[len(s.open)-1].text[0] != "([{"[kind] && (c != '}' || s.open[len(s.open)-1].text != "${"))
}

// note learns from a token that was taken.
func (s *scanner) note(t Token) {
	switch t.Kind {
	case Blank:
		return
	case LineEnd, Comment:
		s.first = s.first || t.Ends()
		return
	case Name:
		s.value, s.sure = s.wantsValue(t.Text)
	case Punct:
		s.sign(t.Text)
	default:
		s.value, s.sure = false, true
	}
	s.before, s.last, s.first = s.last, t, false
}

// wantsValue reports whether a value follows a name, and whether that is certain.
func (s *scanner) wantsValue(name string) (yes, sure bool) {
	if s.last.Is(".") || s.last.Is("?.") {
		return false, true
	}
	switch name {
	case "return", "typeof", "case", "in", "instanceof", "delete", "throw", "new", "else", "do", "extends", "default":
		return true, true
	case "of", "await", "yield", "void": // or names, or a type
		return true, false
	}
	return false, true
}

// sign learns from a sign, and minds the brackets.
func (s *scanner) sign(text string) {
	value, sure := true, true // a value follows
	switch text {
	case "(":
		head := s.last.Kind == Name && slices.Contains([]string{"if", "while", "for", "with"}, s.last.Text) && !s.before.Is(".") && !s.before.Is("?.") ||
			s.last.Kind == Name && s.last.Text == "await" && s.before.Kind == Name && s.before.Text == "for"
		s.open = append(s.open, bracket{text: text, value: head})
	case "{":
		begins := s.last.Kind == Blank || s.last.Kind == Name && (s.last.Text == "else" || s.last.Text == "do") ||
			s.last.Kind == Punct && slices.Contains([]string{";", "{", "}", "=>", ")"}, s.last.Text)
		s.open = append(s.open, bracket{text: text, value: !s.value || begins})
	case "[", "${":
		s.open = append(s.open, bracket{text: text})
		s.inTemplate = false
	case ")", "]", "}":
		var b bracket
		if n := len(s.open); n > 0 {
			b, s.open = s.open[n-1], s.open[:n-1]
		}
		value, sure = b.value, text != "}"
		s.inTemplate = text == "}" && b.text == "${"
	case "++", "--": // before a value, or behind one on its line
		value, sure = s.value || s.first, s.sure
	case "!": // or that of TypeScript behind a value
		sure = s.sure && (s.value || s.first)
	case ">": // or the end of the arguments of a type
		sure = false
	}
	s.value, s.sure = value, sure
}

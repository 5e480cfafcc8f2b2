package sandbox

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/evanw/esbuild/pkg/api"
)

const (
	// maxNesting is how many levels of brackets, or of operators, arrows and
	// statements that stand in each other without brackets, a script may have. The
	// parser recurses once or more for each.
	maxNesting = 2000

	// maxChain is how many words and signs may follow each other without a
	// separator: each may be a level of nesting, such as the signs of !!!!x. What
	// people write without a semicolon, a comma or a bracket is far shorter.
	maxChain = 10 * maxNesting
)

// tooDeep says what makes the text of a file so deep that parsing it could need a
// deep stack, and where; or nothing. It does not parse: whatever it is given, it
// takes linear time and no recursion.
//
// A level is an open bracket of any kind, template substitutions included, or a
// name or sign that follows another without a separator. Whether a slash begins a
// regular expression is told from what stands before it; a script that is written
// to deceive can hide brackets that way. So this is the second line of defence
// where the bundler is a process of its own, and the first where it isn't; see
// BundlerMain.
func tooDeep(text string, script bool) (off int, why string) {
	d := depth{text: text, chain: []int{0}}
	for d.pos < len(text) {
		at := d.pos
		d.next(script)
		switch {
		case len(d.open) > maxNesting:
			return at, fmt.Sprintf("nested deeper than %d levels", maxNesting)
		case d.sum > maxChain:
			return at, fmt.Sprintf("nested too deeply: more than %d words and signs without a semicolon or a new line between statements", maxChain)
		}
	}
	return 0, ""
}

// A depth counts levels while it passes over a text.
type depth struct {
	text string
	pos  int
	open []bracket

	// chain counts, for each open bracket and for the top level, the pieces since
	// the last separator; sum is the sum of them.
	chain []int
	sum   int

	value   bool   // the last piece ends a value, so that a slash divides
	word    string // the last piece, if it was a word
	newline bool   // after the last piece
}

// A bracket is an open one.
type bracket struct {
	text    byte // ( [ { or $, for that of a substitution
	control bool // of an if, while, for or the like: what follows is nested in it
	index   bool // behind a value: a comma in it is an operator
}

// next passes over one piece.
func (d *depth) next(script bool) {
	c := d.text[d.pos]
	rest := d.text[d.pos:]
	switch {
	case c == ' ' || c == '\t' || c == '\n' || c == '\r':
		d.newline = d.newline || c == '\n'
		d.pos++
	case script && strings.HasPrefix(rest, "//"):
		d.skip(strings.IndexAny(rest, "\n\r\u2028\u2029"))
	case script && strings.HasPrefix(rest, "/*"):
		end := strings.Index(rest[2:], "*/")
		if end >= 0 {
			end += 4
		}
		d.skip(end)
	case c == '"' || script && c == '\'':
		d.quoted(c)
		d.piece(true)
	case script && c == '`':
		d.pos++
		d.template()
	case c == '(' || c == '[' || c == '{':
		d.push(c)
		d.pos++
	case c == ')' || c == ']' || c == '}':
		d.pos++
		d.pop(c)
	case c == ';':
		d.pos++
		d.separate()
	case c == ',':
		d.pos++
		d.comma(script)
	case script && c == '/' && !d.value:
		d.regexp()
		d.piece(true)
	default:
		d.other()
	}
}

// skip passes over n bytes, or over all that is left if n is negative.
func (d *depth) skip(n int) {
	if n < 0 {
		n = len(d.text) - d.pos
	}
	d.pos += n
}

// piece counts a piece of the chain at hand.
func (d *depth) piece(value bool) {
	d.chain[len(d.chain)-1]++
	d.sum++
	d.value, d.word, d.newline = value, "", false
}

// separate ends the chain at hand. What follows an else is nested in what stands
// before it.
func (d *depth) separate() {
	d.value, d.word = false, ""
	if rest := strings.TrimLeft(d.text[d.pos:], " \t\r\n"); strings.HasPrefix(rest, "else") {
		return
	}
	last := len(d.chain) - 1
	d.sum -= d.chain[last]
	d.chain[last] = 0
}

// comma ends a chain in a list of values and between properties. Elsewhere it may
// be an operator.
func (d *depth) comma(script bool) {
	if n := len(d.open); n > 0 && d.open[n-1].text == '[' && !d.open[n-1].index || !script || d.property() {
		d.separate()
		return
	}
	d.piece(false)
}

// property reports whether a property with a colon begins here.
func (d *depth) property() bool {
	if n := len(d.open); n == 0 || d.open[n-1].text != '{' {
		return false
	}
	key := depth{text: d.text[:min(len(d.text), d.pos+1000)], pos: d.pos, chain: []int{0}}
	for key.pos < len(key.text) && key.sum < 2 { // comments and the key
		if key.sum == 1 && key.text[key.pos] == ':' {
			return true
		}
		if c := key.text[key.pos]; key.sum == 0 && strings.IndexByte("([{;,`", c) >= 0 {
			return false
		}
		key.next(true)
	}
	return false
}

func (d *depth) push(text byte) {
	control := text == '(' && slices.Contains([]string{"if", "while", "for", "with", "switch"}, d.word)
	opened := bracket{text, control, d.value}
	d.piece(false)
	d.open = append(d.open, opened)
	d.chain = append(d.chain, 0)
}

// pop closes a bracket. One too many closes nothing.
func (d *depth) pop(bracket byte) {
	if len(d.open) == 0 {
		d.piece(true)
		return
	}
	was := d.open[len(d.open)-1]
	d.open = d.open[:len(d.open)-1]
	d.sum -= d.chain[len(d.chain)-1]
	d.chain = d.chain[:len(d.chain)-1]
	d.piece(!was.control)
	if was.text == '$' && bracket == '}' {
		d.template()
	}
}

// template passes over a piece of a template literal, up to its end or to the next
// substitution.
func (d *depth) template() {
	for d.pos < len(d.text) {
		switch {
		case d.text[d.pos] == '\\':
			d.pos = min(d.pos+2, len(d.text))
		case d.text[d.pos] == '`':
			d.pos++
			d.piece(true)
			return
		case strings.HasPrefix(d.text[d.pos:], "${"):
			d.push('$')
			d.pos += 2
			return
		default:
			d.pos++
		}
	}
}

// quoted passes over a string literal, to the end of the line if it is not closed.
func (d *depth) quoted(quote byte) {
	for d.pos++; d.pos < len(d.text); d.pos++ {
		switch d.text[d.pos] {
		case '\\':
			d.pos++
		case quote:
			d.pos++
			return
		case '\n':
			return
		}
	}
	d.pos = len(d.text)
}

// regexp passes over a regular expression, or over the slash alone if none ends on
// this line.
func (d *depth) regexp() {
	class := false
	for i := d.pos + 1; i < len(d.text); i++ {
		switch c := d.text[i]; {
		case c == '\\':
			i++
		case c == '\n':
			d.pos++
			return
		case c == '[':
			class = true
		case c == ']':
			class = false
		case c == '/' && !class:
			d.pos = i + 1
			return
		}
	}
	d.pos++
}

var (
	// valueless are the words after which a slash begins a regular expression.
	valueless = []string{"return", "typeof", "case", "in", "of", "delete", "void", "throw", "new",
		"else", "do", "await", "yield", "instanceof", "extends", "default"}

	// prefixes are the other words that something must follow, on whatever line,
	// and infixes those that continue with what stands before them.
	prefixes = []string{"keyof", "infer", "readonly", "unique", "asserts", "abstract", "async", "function", "class", "extends",
		"implements", "const", "let", "var", "static", "declare", "namespace", "module", "type", "interface", "enum",
		"export", "import", "default", "as", "satisfies", "is"}
	infixes = []string{"in", "of", "instanceof", "as", "satisfies", "is", "extends", "implements", "else", "catch", "finally", "while", "from"}
)

// other passes over a word or a number, or over a sign.
func (d *depth) other() {
	start := d.pos
	for d.pos < len(d.text) {
		r, n := utf8.DecodeRuneInString(d.text[d.pos:])
		if !wordRune(r) {
			break
		}
		d.pos += n
	}
	word := d.text[start:d.pos]
	if word == "" {
		_, n := utf8.DecodeRuneInString(d.text[d.pos:])
		d.pos += n
		d.piece(false)
		return
	}
	// A line that begins with a word ends the statement before it, where that could
	// be complete.
	if d.newline && d.value && !slices.Contains(prefixes, d.word) && !slices.Contains(infixes, word) {
		d.separate()
	}
	d.piece(!slices.Contains(valueless, word))
	d.word = word
}

// wordRune reports whether r may stand in a name or a number.
func wordRune(r rune) bool {
	return r == '_' || r == '$' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= 0x80
}

// locate returns the place of an offset as esbuild says it.
func locate(name, text string, off int) *api.Location {
	line := strings.Count(text[:off], "\n")
	start := strings.LastIndexByte(text[:off], '\n') + 1
	end := len(text)
	if i := strings.IndexByte(text[off:], '\n'); i >= 0 {
		end = off + i
	}
	const shown = 200
	return &api.Location{File: namespace + ":" + name, Line: line + 1, Column: off - start, LineText: text[max(start, off-shown):min(end, off+shown)]}
}

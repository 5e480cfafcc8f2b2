package repair

import (
	"strings"
	"unicode/utf8"

	"github.com/keep-run/keep/internal/javascript"
)

// A line is one of a script: as it is written, and what is compared of it. A text over several lines is
// a part of one.
type line struct {
	text, bare string
	code       string // without what is within texts and expressions
	in         *block // that it begins in; nil: none
	within     []mark // what the names of code are in
}

// A mark says what is around the names of a line from there to the next mark.
type mark struct {
	off int // into code
	around
}

// A block is what is within a bracket.
type block struct {
	in     *block
	line   int  // that its bracket is in
	braced bool // the bracket is {
}

// behind returns the block that is around what follows t, which is in a line of b.
func (b *block) behind(t javascript.Token, line int) *block {
	switch {
	case t.Is("("), t.Is("["), t.Is("{"), t.Is("${"):
		return &block{b, line, t.Text == "{"}
	case b != nil && (t.Is(")") || t.Is("]") || t.Is("}")):
		return b.in
	}
	return b
}

// read returns the lines of a script without their remarks, and whether it is certain what is one. Where a remark begins is only known
// to who knows what is a text, a template or a regular expression: a proposal may have what looks like a remark in one of them, with a call in between.
func read(script string) (lines []line, certain bool) {
	var text, bare, code strings.Builder // of the line at hand
	var last rune                        // of bare
	gap := false                         // something was left out of bare since then
	var first, now *block                // that the line at hand begins in, and that this is in
	var within []mark
	var n nest
	end := func() {
		if text := strings.TrimSpace(text.String()); text != "" {
			lines = append(lines, line{text, bare.String(), code.String(), first, within})
		}
		first, within = now, nil
		text.Reset()
		bare.Reset()
		code.Reset()
		last, gap = 0, false
	}
	certain = true
	for t := range javascript.Tokens(script) {
		certain = certain && t.Doubt == ""
		switch {
		case t.Ends(): // a remark over several lines is the end of one, too: return has no value behind it
			end()
			continue
		case t.Kind <= javascript.Comment:
			text.WriteByte(' ')
			code.WriteByte(' ')
			gap = true
			continue
		}
		n.note(t)
		switch {
		case t.Kind == javascript.Name || t.Kind == javascript.Number || t.Kind == javascript.Punct && t.Text != "${":
			if last := len(within) - 1; t.Kind == javascript.Name && (last < 0 || within[last].around != n.now) {
				within = append(within, mark{code.Len(), n.now})
			}
			code.WriteString(t.Text)
		default:
			code.WriteByte(' ')
		}
		now = now.behind(t, len(lines))
		text.WriteString(t.Text)
		if first, _ := utf8.DecodeRuneInString(t.Text); gap && joins(last, first) {
			bare.WriteByte(' ')
		}
		bare.WriteString(t.Text)
		last, _ = utf8.DecodeLastRuneInString(t.Text)
		gap = false
	}
	end()
	return lines, certain
}

// signs are the beginnings of signs that two shorter ones would be if nothing were between them: a! == b is not a !== b.
const signs = "++ -- && || ?? ** << >> .. // /* ?. <! -> => != == += -= *= /= %= &= |= ^= <= >="

// joins reports whether a space between two tokens matters: two names are two, and two signs may be.
func joins(last, first rune) bool {
	return isName(last) && isName(first) || last > 0 && strings.Contains(signs, string([]rune{last, first}))
}

// isName reports whether c may be in a name or a number; of those that do not compile nobody asks.
func isName(c rune) bool {
	return c == '_' || c == '$' || c == '\\' || c == '#' || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c > '~'
}

package keep

import (
	"fmt"
	"strings"
)

// OneLine returns text as a part of a line that Keep writes: who reads the line must not take a part of the text for what Keep
// says. An end of a line is \n in it, and what Deceives is its number.
func OneLine(text string) string {
	if !strings.ContainsFunc(text, Deceives) {
		return text
	}
	var b strings.Builder
	for _, r := range text {
		switch {
		case r == '\n':
			b.WriteString(`\n`)
		case Deceives(r):
			fmt.Fprintf(&b, `\u{%04X}`, r)
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

// Deceives reports whether r, shown as it is, would change how a person reads
// what stands around it: it moves, hides or reorders text. Ends of lines and tabs
// do, too; who has several lines to show lets them pass. Titles, payloads and
// errors may come from anybody's mail, so every surface shows such a character by
// its number instead.
func Deceives(r rune) bool {
	switch {
	case r < ' ', r >= 0x7f && r <= 0x9f: // controls
		return true
	case r == 0x061c, r == 0x200e, r == 0x200f, // direction marks
		r >= 0x202a && r <= 0x202e, r >= 0x2066 && r <= 0x2069: // direction overrides
		return true
	case r == 0x200b, r == 0x2060, r == 0xfeff, r == 0x00ad: // invisible
		return true
	case r >= 0x2061 && r <= 0x2064, r >= 0x206a && r <= 0x206f, r == 0x180e: // invisible, too: operators, and what is no longer used
		return true
	case r == 0x034f, r == 0x115f, r == 0x1160, r == 0x17b4, r == 0x17b5, r == 0x3164, r == 0xffa0: // fillers, which are letters that nobody sees
		return true
	case r == 0x2028, r == 0x2029: // other ends of lines
		return true
	case r >= 0xe0000 && r <= 0xe0fff: // tags
		return true
	case r >= 0xfff9 && r <= 0xfffb: // annotations
		return true
	}
	return false
}

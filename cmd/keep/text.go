package main

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/width"
)

// Titles, payloads and errors may come from anybody's mail. Nothing of them may
// move the cursor, change colours, or reorder what a person reads.

// hostile reports whether r must not reach a terminal as it is.
func hostile(r rune) bool {
	switch {
	case r < ' ', r >= 0x7f && r <= 0x9f: // controls
		return true
	case r == 0x061c, r == 0x200e, r == 0x200f, // direction marks
		r >= 0x202a && r <= 0x202e, r >= 0x2066 && r <= 0x2069: // direction overrides
		return true
	case r == 0x200b, r == 0x2060, r == 0xfeff, r == 0x00ad: // invisible
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

// clean returns s on one line with everything hostile made visible.
func clean(s string) string { return neutral(s, false) }

// cleanText is clean for text of several lines.
func cleanText(s string) string { return neutral(s, true) }

// neutral does the work of clean and cleanText. Text that is safe, as almost all
// is, is returned as it came.
func neutral(s string, lines bool) string {
	safe := utf8.ValidString(s) && strings.IndexFunc(s, hostile) < 0
	if safe {
		return s
	}
	var b strings.Builder
	for i, r := range s {
		switch {
		case r == utf8.RuneError && !strings.HasPrefix(s[i:], "\uFFFD"):
			fmt.Fprintf(&b, `\x%02x`, s[i])
		case lines && (r == '\n' || r == '\t'):
			b.WriteRune(r)
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\t':
			b.WriteString(`\t`)
		case !hostile(r):
			b.WriteRune(r)
		case r > 0xffff:
			fmt.Fprintf(&b, `\U%08x`, r)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	return b.String()
}

// columns returns how many columns of a terminal s takes.
func columns(s string) int {
	n := 0
	for _, r := range s {
		n += runeColumns(r)
	}
	return n
}

// runeColumns returns 0 for what is drawn over its neighbour, 2 for wide East
// Asian characters, and else 1.
func runeColumns(r rune) int {
	if unicode.Is(unicode.Mn, r) || unicode.Is(unicode.Me, r) || r == 0x200c || r == 0x200d {
		return 0
	}
	switch width.LookupRune(r).Kind() {
	case width.EastAsianWide, width.EastAsianFullwidth:
		return 2
	}
	return 1
}

// cutTo returns s in at most n columns.
func cutTo(s string, n int) string {
	if columns(s) <= n {
		return s
	}
	var b strings.Builder
	used := 0
	for _, r := range s {
		if used += runeColumns(r); used > n-1 {
			break
		}
		b.WriteRune(r)
	}
	return b.String() + "…"
}

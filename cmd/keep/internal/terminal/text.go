package terminal

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/width"

	"github.com/keep-run/keep"
)

// Clean returns s on one line with everything that deceives made visible.
func Clean(s string) string { return neutral(s, false) }

// CleanText is Clean for text of several lines.
func CleanText(s string) string { return neutral(s, true) }

// neutral does the work of Clean and CleanText. Text that is safe, as almost all
// is, is returned as it came.
func neutral(s string, lines bool) string {
	safe := utf8.ValidString(s) && strings.IndexFunc(s, keep.Deceives) < 0
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
		case !keep.Deceives(r):
			b.WriteRune(r)
		case r > 0xffff:
			fmt.Fprintf(&b, `\U%08x`, r)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	return b.String()
}

// Columns returns how many columns of a terminal s takes.
func Columns(s string) int {
	n := 0
	for _, r := range s {
		n += RuneColumns(r)
	}
	return n
}

// RuneColumns returns 0 for what is drawn over its neighbour, 2 for wide East
// Asian characters, and else 1.
func RuneColumns(r rune) int {
	if unicode.Is(unicode.Mn, r) || unicode.Is(unicode.Me, r) || r == 0x200c || r == 0x200d {
		return 0
	}
	switch width.LookupRune(r).Kind() {
	case width.EastAsianWide, width.EastAsianFullwidth:
		return 2
	}
	return 1
}

// CutTo returns s in at most n columns.
func CutTo(s string, n int) string {
	if Columns(s) <= n {
		return s
	}
	var b strings.Builder
	used := 0
	for _, r := range s {
		if used += RuneColumns(r); used > n-1 {
			break
		}
		b.WriteRune(r)
	}
	return b.String() + "…"
}

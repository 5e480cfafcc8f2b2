package web

import (
	"fmt"
	"unicode/utf8"

	"github.com/keep-run/keep"
)

// hidden is keep.Deceives but for what pages are made of: lines and tabs.
func hidden(r rune) bool {
	return r != '\n' && r != '\t' && r != '\r' && keep.Deceives(r)
}

// visible returns a page with everything hidden shown by its number. It works on
// the page as a whole, since our own templates have none of these characters: so no
// place in them can be forgotten. Pages without any, as almost all are, come back as
// they were.
func visible(page []byte) []byte {
	out, copied := []byte(nil), 0
	for i := 0; i < len(page); {
		if page[i] >= ' ' && page[i] < 0x7f {
			i++
			continue
		}
		r, size := utf8.DecodeRune(page[i:])
		switch {
		case r == utf8.RuneError && size == 1:
			out = fmt.Appendf(append(out, page[copied:i]...), `\x%02x`, page[i])
		case !hidden(r):
			i += size
			continue
		default:
			out = fmt.Appendf(append(out, page[copied:i]...), `⟨U+%04X⟩`, r)
		}
		i += size
		copied = i
	}
	if copied == 0 {
		return page
	}
	return append(out, page[copied:]...)
}

// cut returns s, or its beginning in at most n bytes, at a character.
func cut(n int, s string) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n] + "…"
}

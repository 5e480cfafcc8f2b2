package keep

import (
	"strings"
	"unicode"
)

// MaxWords is how many words of a text are searched for; more are left out.
const MaxWords = 32

// Words returns the words of a text as search sees them: what stands between
// anything but letters, digits and their marks, in lower case. Every store takes
// titles apart with it, so that all of them find the same.
func Words(text string) []string {
	words := strings.FieldsFunc(text, func(r rune) bool {
		return r == unicode.ReplacementChar || !unicode.IsLetter(r) && !unicode.IsNumber(r) && !unicode.IsMark(r)
	})
	for i, w := range words {
		words[i] = strings.Map(unicode.ToLower, w)
	}
	return words
}

// SearchWords returns the words that a filter's Text asks for: the first
// MaxWords. Without any the filter selects everything.
func SearchWords(text string) []string {
	words := Words(text)
	return words[:min(len(words), MaxWords)]
}

// HasWords reports whether each of the words is the beginning of a word of the
// title. A title that is not cut by CutTitle may have many.
func HasWords(title string, words []string) bool {
	if len(words) == 0 {
		return true
	}
	has := Words(title)
	for _, w := range words {
		if !begins(has, w) {
			return false
		}
	}
	return true
}

// begins reports whether one of the words begins with beginning.
func begins(words []string, beginning string) bool {
	for _, w := range words {
		if strings.HasPrefix(w, beginning) {
			return true
		}
	}
	return false
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
	case r == 0x2028, r == 0x2029: // other ends of lines
		return true
	case r >= 0xe0000 && r <= 0xe0fff: // tags
		return true
	case r >= 0xfff9 && r <= 0xfffb: // annotations
		return true
	}
	return false
}

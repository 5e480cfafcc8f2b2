package repair

import (
	"regexp"
	"slices"
	"strings"
	"sync"
)

var (
	// decides is what says in a line whether something happens.
	decides = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`\b(if|else|switch|case|while|for|throw|try|catch|continue|break)\b|\breturn\W*$|[?<>!]|&&|\|\||===?|\.(filter|find|some|every)\b`)
	})
	words = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`[\p{L}\p{N}_$]+`) })
)

// linesOf returns the lines of a script without their remarks and spaces.
func linesOf(script string) []line {
	lines, _ := read(script)
	return lines
}

// Ungoverned returns the conditions of a script that the next one does not have, or has behind
// what they came before: lines that decide, in their order with the lines that reach outside and
// are still there. Whether a condition matters may show only with an event that is not there
// yet; so one that is changed counts as taken out, too. Names are as those of Reaches.
func Ungoverned(was, is string, names ...string) []string {
	now := linesOf(is)
	have := make(map[string]bool, len(now))
	for _, l := range now {
		have[l.bare] = true
	}
	var out []string
	at := 0
	for _, l := range linesOf(was) {
		decisive := decides().MatchString(strings.ReplaceAll(l.text, "=>", ""))
		if !decisive && !(l.reaches(names) > 0 && have[l.bare]) {
			continue
		}
		next := at
		for next < len(now) && now[next].bare != l.bare {
			next++
		}
		if next == len(now) {
			out = append(out, l.text)
			continue
		}
		at = next + 1
	}
	return out
}

// Reaches returns how often a script names what reaches outside: ctx, those of names, which are other names for it or for what
// it has, and what has it without naming it.
func Reaches(script string, names ...string) (n int) {
	for _, l := range linesOf(script) {
		n += l.reaches(names)
	}
	return n
}

// reaches returns how often a line names what reaches outside. A name may be spelled with escapes.
func (l line) reaches(names []string) (n int) {
	for _, word := range words().FindAllString(l.code, -1) {
		if word == "ctx" || word == "arguments" || word == "eval" || slices.Contains(names, word) {
			n++
		}
	}
	return n + strings.Count(l.code, `\u`)
}

// Unclear reports whether it is not certain what of a script is a remark, a text or an expression, so that nobody knows what else
// it does.
func Unclear(script string) bool {
	_, certain := read(script)
	return !certain
}

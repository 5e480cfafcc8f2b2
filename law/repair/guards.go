package repair

import (
	"regexp"
	"strings"
	"sync"
)

var (
	remark = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`(?s)/\*.*?\*/`) })
	rest   = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`(^|[^:"'])//.*`) })

	// decides is what says in a line whether something happens, and touches is what reaches outside.
	decides = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`\b(if|else|switch|case|while|for|throw|try|catch|continue|break)\b|\breturn\W*$|[?<>!]|&&|\|\||===?|\.(filter|find|some|every)\b`)
	})
	touches = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`\b(ctx|arguments)\b`) })
)

// A line is one of a script: as it is written, and what is compared of it.
type line struct{ text, bare string }

// linesOf returns the lines of a script without their remarks and spaces.
func linesOf(script string) []line {
	var out []line
	for text := range strings.Lines(remark().ReplaceAllString(script, " ")) {
		text = strings.TrimSpace(rest().ReplaceAllString(strings.TrimRight(text, "\r\n"), "$1"))
		if text != "" {
			out = append(out, line{text, strings.Join(strings.Fields(text), "")})
		}
	}
	return out
}

// Ungoverned returns the conditions of a script that the next one does not have, or has behind
// what they came before: lines that decide, in their order with the lines that reach outside and
// are still there. Whether a condition matters may show only with an event that is not there
// yet; so one that is changed counts as taken out, too.
func Ungoverned(was, is string) []string {
	now := linesOf(is)
	have := make(map[string]bool, len(now))
	for _, l := range now {
		have[l.bare] = true
	}
	var out []string
	at := 0
	for _, l := range linesOf(was) {
		decisive := decides().MatchString(strings.ReplaceAll(l.text, "=>", ""))
		if !decisive && !(touches().MatchString(l.text) && have[l.bare]) {
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

// Reaches returns how often a script names what reaches outside.
func Reaches(script string) (n int) {
	for _, l := range linesOf(script) {
		n += len(touches().FindAllString(l.text, -1))
	}
	return n
}

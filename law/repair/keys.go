package repair

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/keep-run/keep"
)

// declares is the beginning of a statement that declares names.
var declares = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^(?:export\s+)?(?:default\s+)?(?:async\s+)?(?:(?:function\s*\*?|class)\s*([^({]*)|(?:const|let|var)\s([^=]*)|import\b(.*))`)
})

// Rebased returns a sentence for each consumer whose function of order keys stands on other statements than before: the text of the
// function is the same, and what it calls is not. Keys are the texts of these functions.
func Rebased(was, is string, keys map[keep.HandlerName]string) []string {
	var out []string
	for _, h := range slices.Sorted(maps.Keys(keys)) {
		if !slices.Equal(beneath(was, keys[h]), beneath(is, keys[h])) {
			out = append(out, fmt.Sprintf("what key of %s uses is changed, and which events wait for one another may show only with another event", h))
		}
	}
	return out
}

// beneath returns the statements at the top level of a script that declare what a function names, what these name, and so on.
func beneath(script, function string) (out []string) {
	var statements []line
	for _, l := range linesOf(script) {
		last := len(statements) - 1
		begins := last < 0 || l.in == nil && (declares().MatchString(l.code) || strings.HasPrefix(l.code, "export") || strings.ContainsAny(statements[last].bare[len(statements[last].bare)-1:], ";}"))
		if begins {
			statements = append(statements, l)
			continue
		}
		statements[last].bare += "\n" + l.bare
		statements[last].code += " " + l.code
	}
	needs := make(map[string]bool)
	for _, l := range linesOf(function) {
		l.names(needs)
	}
	for again := true; again; {
		again = false
		for i, s := range statements {
			declared, head := make(map[string]bool), declares().FindStringSubmatch(s.code)
			if len(head) > 0 {
				line{code: strings.Join(head[1:], " ")}.names(declared)
			}
			if s.bare == "" || !slices.ContainsFunc(slices.Collect(maps.Keys(declared)), func(name string) bool { return needs[name] }) {
				continue
			}
			s.names(needs)
			out, again = append(out, s.bare), true
			statements[i].bare = ""
		}
	}
	slices.Sort(out)
	return out
}

// names adds the names in a line that are of no member.
func (l line) names(to map[string]bool) {
	for _, at := range words().FindAllStringIndex(l.code, -1) {
		if before := strings.TrimSpace(l.code[:at[0]]); !strings.HasSuffix(before, ".") || strings.HasSuffix(before, "...") {
			to[l.code[at[0]:at[1]]] = true
		}
	}
}

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

// Reworked returns a sentence for each handler whose functions are others than in base, or stand on other statements at the top level.
// Was and is are the texts of the scripts.
func Reworked(base, now Script, was, is string) map[keep.HandlerName]string {
	out := make(map[keep.HandlerName]string)
	for h, code := range base.Code {
		switch {
		case now.Code[h] != code:
			out[h] = fmt.Sprintf("%s is changed", h)
		case !slices.Equal(beneath(was, code), beneath(is, code)):
			out[h] = fmt.Sprintf("what %s uses is changed", h)
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
	inSources(needs)
	for again := true; again; {
		again = false
		for i, s := range statements {
			declared, head := make(map[string]bool), declares().FindStringSubmatch(s.code)
			if len(head) > 0 {
				line{code: strings.Join(head[1:], " ")}.names(declared)
			}
			if nameless().MatchString(s.code) {
				declared[exported] = true
			}
			if s.bare == "" || !slices.ContainsFunc(slices.Collect(maps.Keys(declared)), func(name string) bool { return needs[name] }) {
				continue
			}
			s.names(needs)
			if strings.HasPrefix(s.code, "import") {
				needs[exported] = true // it may be what is imported
			}
			out, again = append(out, s.bare), true
			statements[i].bare = ""
		}
	}
	slices.Sort(out)
	return out
}

// exported stands for what a file exports without a name of its own.
const exported = "export default"

// nameless is the beginning of a statement that exports a function, or a class, by default.
var nameless = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^export\s+default\s+(?:async\b|function\b|class\b|\(|[\p{L}\p{N}_$]+\s*=>)`)
})

// inSources adds the names that sources may have for those in the text of a function, which is that of a bundle: what two files declare
// has a number there, as normal2, and what a file exports without a name is called after the file, as keys_default.
func inSources(names map[string]bool) {
	for _, name := range slices.Collect(maps.Keys(names)) {
		plain := strings.TrimRight(name, "0123456789")
		if plain != "" {
			names[plain] = true
		}
		if strings.HasSuffix(plain, "_default") {
			names[exported] = true
		}
	}
}

// names adds the names in a line that are of no member.
func (l line) names(to map[string]bool) {
	for _, at := range words().FindAllStringIndex(l.code, -1) {
		if before := strings.TrimSpace(l.code[:at[0]]); !strings.HasSuffix(before, ".") || strings.HasSuffix(before, "...") {
			to[l.code[at[0]:at[1]]] = true
		}
	}
}

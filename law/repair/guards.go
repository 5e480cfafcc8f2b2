package repair

import (
	"maps"
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
	// heads is how a line ends that is not complete without the next one.
	heads = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`(^|[^\p{L}\p{N}_$.])((if|while|for|with|for await)\(.*\)|else|do)$|(=>|&&|\|\||\?|:)$`)
	})
	// answers is how a line begins a function whose result is a condition.
	answers = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`\.(filter|find|some|every)\b`) })
	// returns is what ends a function.
	returns = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`\breturn\b`) })
	// statement is how a line begins that gives something another value, or calls something.
	statement = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile("^((?:await )?[\\p{L}\\p{N}_$.\\[\\]\"'`]+(?:\\(|\\+\\+|--|[-+*/%&|^]*=))(?:$|[^=>])|^((?:\\+\\+|--|delete ).*)")
	})
	// chain is a call, by what it is called.
	chain = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`([\p{L}\p{N}_$]+)((?:\s*\??\.\s*[\p{L}\p{N}_$]+){0,2})\s*\(`)
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
// are still there, or call the same, and with what is done in their blocks. They must be in the blocks that they were in, since a brace that is
// moved changes what a condition is for. Whether a condition matters may show only with an event that is not there
// yet; so one that is changed counts as taken out, too. Names are as those of Reaches.
func Ungoverned(was, is string, names ...string) []string {
	c := comparison{was: linesOf(was), now: linesOf(is), same: make(map[*block]*block)}
	c.wasHeads, c.nowHeads = headsOf(c.was), headsOf(c.now)
	have := make(map[string]bool, len(c.now))
	calls, does := make([]string, len(c.now)), make([]string, len(c.now))
	for i, l := range c.now {
		calls[i], does[i] = l.calls(names), l.does()
		have[l.bare], have[calls[i]] = true, true
	}
	var out []string
	at := 0
	for i, l := range c.was {
		decisive, called, done := c.decides(i), "", ""
		if !decisive {
			called = l.calls(names)
			if c.depends(i) {
				done = l.does()
			}
		}
		if !decisive && done == "" && !(l.reaches(names) > 0 && (have[l.bare] || called != "" && have[called])) {
			continue
		}
		alike := func(n int) bool {
			return c.now[n].bare == l.bare || called != "" && calls[n] == called || done != "" && does[n] == done
		}
		next := at
		for next < len(c.now) && !(alike(next) && c.governs(i, next)) {
			next++
		}
		if next == len(c.now) {
			out = append(out, l.text)
			continue
		}
		at = next + 1
	}
	return out
}

// decides reports whether a line says whether something happens.
func (l line) decides() bool { return decides().MatchString(strings.ReplaceAll(l.text, "=>", "")) }

// does returns how what a line does is told from what others do: that it ends the function, what it gives a value, or what it calls.
// Empty: it does nothing by itself.
func (l line) does() string {
	if returns().MatchString(l.code) {
		return "return"
	}
	if m := statement().FindStringSubmatch(l.bare); m != nil {
		return m[1] + m[2]
	}
	return ""
}

// decides reports whether line i of the first script says whether something happens: by itself, since it is within the round
// brackets of a line that does, since the line before is a condition that is not complete without it, or as what a filter returns.
func (c comparison) decides(i int) bool {
	l := c.was[i]
	switch {
	case c.isCondition(i), (line{text: c.wasHeads[i]}).decides():
		return true
	case l.in == nil || !returns().MatchString(l.code):
		return false
	}
	return l.in.braced && answers().MatchString(c.was[l.in.line].text)
}

// isCondition reports whether line i of the first script decides, or is within the round brackets of one that does.
func (c comparison) isCondition(i int) bool {
	decisive := c.was[i].decides()
	for b := c.was[i].in; b != nil && !b.braced && !decisive; b = b.in {
		decisive = c.was[b.line].decides()
	}
	return decisive
}

// depends reports whether line i of the first script is in a block of a condition.
func (c comparison) depends(i int) bool {
	for b := c.was[i].in; b != nil; b = b.in {
		if c.isCondition(b.line) {
			return true
		}
	}
	return false
}

// A comparison is one of two scripts.
type comparison struct {
	was, now           []line
	wasHeads, nowHeads []string
	same               map[*block]*block // of now, by those of was
}

// governs reports whether what is around line i of the first script is around line n of the second one, and notes which blocks are the same.
func (c comparison) governs(i, n int) bool {
	if head := c.wasHeads[i]; head != c.nowHeads[n] || head != "" && c.was[i].bare != c.now[n].bare {
		return false
	}
	var pairs [][2]*block
	a, b := c.was[i].in, c.now[n].in
	for ; a != nil && b != nil; a, b = a.in, b.in {
		if known, ok := c.same[a]; ok {
			if known != b {
				return false
			}
			break // and so are those around it
		}
		if l := c.was[a.line]; c.isCondition(a.line) && l.bare != c.now[b.line].bare {
			return false
		}
		pairs = append(pairs, [2]*block{a, b})
	}
	if (a == nil) != (b == nil) {
		return false
	}
	for _, p := range pairs {
		c.same[p[0]] = p[1]
	}
	return true
}

// headsOf returns of each line the one before it if that is not complete without it, such as an if without a brace.
func headsOf(lines []line) []string {
	out := make([]string, len(lines))
	for i := 1; i < len(lines); i++ {
		if before := lines[i-1].bare; heads().MatchString(before) {
			out[i] = before
		}
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
		if isReach(word, names) {
			n++
		}
	}
	return n + strings.Count(l.code, `\u`)
}

// Newly returns what a script does more often than the one before with what reaches outside: calls by what is called, and everything else
// by its line. Each may be where another was, so that their number is the same. One that is in more loops or functions than before counts as
// new: it may be made more often. Names may be those of tools, such as svc.pay, whoever calls them.
func Newly(was, is string, names ...string) []string {
	had := make(map[use]int)
	for _, u := range usesOf(was, names) {
		had[u]++
	}
	var out []string
	for _, u := range usesOf(is, names) {
		if had[u]--; had[u] < 0 && !slices.Contains(out, u.what) {
			out = append(out, u.what)
		}
	}
	return out
}

// Lost returns what a script does with what reaches outside, and the next one does less often, wherever: calls by what is called, and
// everything else by its line. Who misses it may be a handler that no recorded run went through. Names are as those of Newly.
func Lost(was, is string, names ...string) []string {
	left := make(map[string]int)
	for _, u := range usesOf(is, names) {
		left[u.what]++
	}
	var out []string
	for _, u := range usesOf(was, names) {
		if left[u.what]--; left[u.what] < 0 && !slices.Contains(out, u.what) {
			out = append(out, u.what)
		}
	}
	return out
}

// A use is one of what reaches outside.
type use struct {
	what string // is called, or the line
	around
}

// usesOf returns the uses that a script has of what reaches outside.
func usesOf(script string, names []string) (uses []use) {
	lines := linesOf(script)
	var code strings.Builder
	for _, l := range lines {
		code.WriteString(strings.Join(strings.Fields(strings.ReplaceAll(l.code, "?.", ".")), ""))
	}
	for _, name := range slices.Compact(slices.Sorted(slices.Values(names))) {
		if strings.Contains(name, ".") {
			uses = append(uses, slices.Repeat([]use{{what: name}}, strings.Count(code.String(), "."+name+"("))...)
		}
	}
	for i, l := range lines {
		whole := l.bare
		if i+1 < len(lines) && !strings.ContainsAny(l.bare[len(l.bare)-1:], ";,{}") { // it may continue
			whole += lines[i+1].bare
		}
		uses = append(uses, l.uses(names, whole)...)
	}
	return uses
}

// uses returns the uses that a line has of what reaches outside. Whole is what it is part of.
func (l line) uses(names []string, whole string) (uses []use) {
	calls := l.calledAt(names)
	for _, at := range words().FindAllStringIndex(l.code, -1) {
		word, call := l.code[at[0]:at[1]], calls[at[0]]
		switch {
		case !isReach(word, names):
		case call == "" || word == "eval" || word == "arguments": // of which the rest of the line matters
			uses = append(uses, use{whole, l.around(at[0])})
		default:
			uses = append(uses, use{call, l.around(at[0])})
		}
	}
	return append(uses, slices.Repeat([]use{{what: whole}}, strings.Count(l.code, `\u`))...)
}

// around returns what the name at a place of code is in.
func (l line) around(off int) (in around) {
	for _, m := range l.within {
		if m.off > off {
			break
		}
		in = m.around
	}
	return in
}

// calledAt returns what a line calls of what reaches outside, by its places in code.
func (l line) calledAt(names []string) map[int]string {
	out := make(map[int]string)
	for _, at := range chain().FindAllStringSubmatchIndex(l.code, -1) {
		if isReach(l.code[at[2]:at[3]], names) {
			out[at[0]] = strings.Join(strings.Fields(l.code[at[0]:at[1]]), "")
		}
	}
	return out
}

// calls returns what a line calls of what reaches outside, in its order; empty: nothing.
func (l line) calls(names []string) string {
	called := l.calledAt(names)
	var out []string
	for _, at := range slices.Sorted(maps.Keys(called)) {
		out = append(out, called[at])
	}
	return strings.Join(out, " ")
}

// isReach reports whether a word names what reaches outside.
func isReach(word string, names []string) bool {
	return word == "ctx" || word == "arguments" || word == "eval" || slices.Contains(names, word)
}

// Unclear reports whether it is not certain what of a script is a remark, a text or an expression, so that nobody knows what else
// it does.
func Unclear(script string) bool {
	_, certain := read(script)
	return !certain
}

package workflow

import (
	"maps"
	"slices"
)

// reached notes the names in the function that was read which stand for ctx or for what it has: its parameter, those that are
// declared from it, and functions in it that use one of them.
func (w *walk) reached() {
	names := make(map[string]bool)
	for name, way := range w.names {
		if len(way) == 0 || !slices.Contains(harmless, way[0]) {
			names[name] = true
		}
	}
	for _, p := range w.parameters()[:min(1, len(w.parameters()))] {
		for _, t := range w.f.tokens[p.key:p.end] {
			if t.kind == tName {
				names[t.text] = true
			}
		}
	}
	for before, round := -1, 0; before < len(names) && round <= chain; round++ {
		before = len(names)
		w.closeOver(names)
		w.hold(names, round == chain)
	}
	all := slices.Concat(w.report.Names, slices.Collect(maps.Keys(names)))
	slices.Sort(all)
	w.report.Names = slices.Compact(all)
}

// chain is how many functions may use each other in a row for the last one to be known not to use ctx. Beyond that each is taken
// to use it, as is a function that is too long to be read (law: bounded).
const chain = 32

// closeOver adds to names the functions of w that use one of them.
func (w *walk) closeOver(names map[string]bool) {
	closures := make(map[string][]span)
	for i := w.from; i < w.to; i++ {
		switch name, body, read := w.closure(i); {
		case name == "":
		case !read:
			names[name] = true
		default:
			closures[name] = append(closures[name], body)
		}
	}
	uses := make([]int, w.to-w.from+1) // how many tokens before each are one of names
	for round := 0; len(closures) > 0; round++ {
		for i, t := range w.f.tokens[w.from:w.to] {
			uses[i+1] = uses[i]
			if t.kind == tName && names[t.text] {
				uses[i+1]++
			}
		}
		before := len(closures)
		for name, bodies := range closures {
			if round == chain || names[name] || slices.ContainsFunc(bodies, func(b span) bool { return uses[b.end-w.from] > uses[b.value-w.from] }) {
				names[name] = true
				delete(closures, name)
			}
		}
		if len(closures) == before {
			return
		}
	}
}

// hold adds to names those that are given something which has one of them in it: const api = made(ctx), box.c = ctx. What a call
// brings that is waited for is data, as is that of a tool. All are if that is said, or if there is too much to be read.
func (w *walk) hold(names map[string]bool, all bool) {
	toks := w.f.tokens
	for i := w.from; i+2 < w.to; i++ {
		if !toks[i+1].is("=") || toks[i+2].is("=") || toks[i].kind == tPunct && !toks[i].closes() {
			continue
		}
		from, to := i, i+1 // what it is given to
		switch {
		case toks[i].closes():
			if from = w.f.opened[i]; from < w.from {
				continue
			}
		default:
			for from-2 >= w.from && (toks[from-1].is(".") || toks[from-1].is("?.")) {
				from -= 2
			}
			to = from + 1
		}
		if !all && !w.holds(i+2, names) {
			continue
		}
		for _, t := range toks[from:to] {
			if t.kind == tName {
				names[t.text] = true
			}
		}
	}
}

// holds reports whether the value that begins at token i has one of names in it, and is not only what a tool brought.
func (w *walk) holds(i int, names map[string]bool) bool {
	toks := w.f.tokens
	if w.f.isName(i, "await") {
		return false
	}
	depth := 0
	for start := i; i < w.to; i++ {
		switch t := toks[i]; {
		case !w.mayScan(1):
			return true
		case t.opens():
			depth++
		case depth == 0 && (t.closes() || t.is(";") || t.is(",") || i > start && w.f.beginsStatement(i)):
			return false
		case t.closes():
			depth--
		}
		if toks[i].kind != tName || !names[toks[i].text] || toks[i-1].is(".") || toks[i-1].is("?.") || w.f.isKey(i) {
			continue
		}
		members := 0
		for i+2 < w.to && (toks[i+1].is(".") || toks[i+1].is("?.")) && toks[i+2].kind == tName {
			i, members = i+2, members+1
		}
		if called := i+1 < w.to && toks[i+1].is("("); !called || members > 2 {
			return true
		}
	}
	return false
}

// mayScan reports whether n more tokens may be looked at for functions.
func (w *walk) mayScan(n int) bool {
	w.scanned += n
	return w.scanned <= max(manyTokens, timesOver*len(w.f.tokens))
}

// closure returns the name that the declaration at token i gives to a function, or to what has functions in it, and what that is made
// of, unless that was too much to be read; no name: it is none.
func (w *walk) closure(i int) (name string, body span, read bool) {
	toks := w.f.tokens
	if toks[i].kind != tName || i+2 >= w.to || toks[i+1].kind != tName {
		return "", body, true
	}
	switch toks[i].text {
	case "function":
		for j := i + 2; j < w.to; j++ {
			if !w.mayScan(1) {
				return toks[i+1].text, body, false
			}
			if toks[j].is("{") {
				return toks[i+1].text, span{value: i + 2, end: min(w.f.match(j)+1, w.to)}, true
			}
		}
	case "const", "let", "var":
		at := w.f.stop(i + 2) // behind a type
		for at < w.to && toks[at].kind == tTemplate {
			at = w.f.stop(at + 1)
		}
		end, function := at, false
		for end < w.to && !toks[end].is(";") && !toks[end].closes() {
			if !w.mayScan(1) {
				return toks[i+1].text, body, false
			}
			function = function || toks[end].is("=>") || toks[end].kind == tName && toks[end].text == "function" || toks[end].is("{") && toks[end-1].is(")")
			if toks[end].opens() && end == at+1 && !toks[end].is("(") { // an object or a list: what is in it may be a function
				inner := w.f.match(end)
				if !w.mayScan(inner - end) {
					return toks[i+1].text, body, false
				}
				for _, t := range toks[end:min(inner, w.to)] {
					function = function || t.is("=>") || t.kind == tName && (t.text == "function" || t.text == "async")
				}
			}
			if toks[end].opens() {
				end = w.f.match(end)
			}
			end++
		}
		if function {
			return toks[i+1].text, span{value: min(at, w.to), end: min(end, w.to)}, true
		}
	}
	return "", body, true
}

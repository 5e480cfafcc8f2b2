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
	for more := true; more; { // one function may use another that comes after it
		more = false
		for i := w.from; i < w.to; i++ {
			if name, body := w.closure(i); name != "" && !names[name] && slices.ContainsFunc(w.f.tokens[body.value:body.end], func(t token) bool { return t.kind == tName && names[t.text] }) {
				names[name], more = true, true
			}
		}
	}
	all := slices.Concat(w.report.Names, slices.Collect(maps.Keys(names)))
	slices.Sort(all)
	w.report.Names = slices.Compact(all)
}

// closure returns the name that the declaration at token i gives to a function, or to what has functions in it, and what that is made
// of; no name: it is none.
func (w *walk) closure(i int) (name string, body span) {
	toks := w.f.tokens
	if toks[i].kind != tName || i+2 >= w.to || toks[i+1].kind != tName {
		return "", body
	}
	switch toks[i].text {
	case "function":
		for j := i + 2; j < w.to; j++ {
			if toks[j].is("{") {
				return toks[i+1].text, span{value: i + 2, end: min(w.f.match(j)+1, w.to)}
			}
		}
	case "const", "let", "var":
		at := w.f.stop(i + 2) // behind a type
		for at < w.to && toks[at].kind == tTemplate {
			at = w.f.stop(at + 1)
		}
		end, function := at, false
		for end < w.to && !toks[end].is(";") && !toks[end].closes() {
			function = function || toks[end].is("=>") || toks[end].kind == tName && toks[end].text == "function" || toks[end].is("{") && toks[end-1].is(")")
			if toks[end].opens() && end == at+1 && !toks[end].is("(") { // an object or a list: what is in it may be a function
				inner := w.f.match(end)
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
			return toks[i+1].text, span{value: min(at, w.to), end: min(end, w.to)}
		}
	}
	return "", body
}

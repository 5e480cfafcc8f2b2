package workflow

import (
	"slices"
	"strings"
)

// maxSource is how long the text of a function may be to be whole: the sandbox keeps no
// more of it.
const maxSource = 64 << 10

// ignores reports whether a function, as the engine has its text, certainly does not
// look at that field of its parameter n, from 0. What cannot be read counts as looking.
func ignores(source string, n int, field string) bool {
	if len(source) >= maxSource {
		return false
	}
	f := newFile("", source)
	c := code{f: f, to: len(f.tokens)}
	if c.to == 0 || !f.sure {
		return false
	}
	for i := range c.to {
		if f.isName(i, "arguments") || f.isName(i, "eval") || f.isName(i, "native") || f.tokens[i].kind == tName && strings.Contains(f.tokens[i].text, `\`) {
			return false
		}
	}
	for i := 0; i < c.to && !f.tokens[i].is("("); i++ { // of a computed name, and not of parameters
		if f.tokens[i].is("[") {
			return false
		}
	}
	params := c.parameters()
	if slices.ContainsFunc(params, func(p span) bool { return f.tokens[p.key].is("...") }) {
		return false
	}
	if len(params) <= n {
		return true
	}
	p := params[n]
	switch first := f.tokens[p.key]; {
	case first.is("{"):
		return c.leavesOut(p.key, field)
	case first.kind == tName && p.end-p.key == 1:
		return c.onlyOthers(p, field)
	}
	return false
}

// leavesOut reports whether a pattern of an object, which begins at token i, takes named
// fields, and not that one.
func (c code) leavesOut(i int, field string) bool {
	for _, part := range c.f.parts(i) {
		t := c.f.tokens[part.key]
		if t.kind != tName || t.text == field {
			return false
		}
	}
	return true
}

// onlyOthers reports whether each mention of a parameter takes another field of it.
func (c code) onlyOthers(p span, field string) bool {
	name := c.f.tokens[p.key].text
	for i := 0; i < c.to; i++ { // also what is given to a parameter before it
		if i == p.key || !c.f.isName(i, name) || i > 0 && (c.f.tokens[i-1].is(".") || c.f.tokens[i-1].is("?.")) {
			continue
		}
		if i+2 >= c.to || !c.f.tokens[i+1].is(".") && !c.f.tokens[i+1].is("?.") {
			return false
		}
		if t := c.f.tokens[i+2]; t.kind != tName || t.text == field {
			return false
		}
	}
	return true
}

package workflow

import "slices"

// A code is the text of one function, as tokens of a file.
type code struct {
	f        *file
	from, to int // tokens

	// base is where the text begins if it is not the author's file but what
	// the engine kept of the function; columns are then those of the bundle.
	base Position
}

// position returns the place of token i.
func (c code) position(i int) Position {
	p := c.f.position(c.f.tokens[min(i, len(c.f.tokens)-1)].off)
	if c.base.IsZero() {
		return p
	}
	return Position{File: c.base.File, Line: c.base.Line + p.Line - 1, Column: p.Column}
}

// code returns the text of the function v at p: from the author's file if it can
// be found there, else what the engine kept of it.
func (fs *files) code(p location, v value) code {
	for _, a := range slices.Backward(p.anchors) {
		f := fs.open(a.at.File)
		if a.by == "" || f == nil {
			continue
		}
		if c, ok := f.functionAt(f.call(a.by, a.at), p.path[a.depth:]); ok {
			return c
		}
	}
	if f := fs.open(v.at.File); f != nil {
		if c, ok := f.functionNear(v.at); ok {
			return c
		}
	}
	f := newFile(v.at.File, v.source)
	return code{f: f, to: len(f.tokens), base: Position{v.at.File, max(1, v.at.Line), 1}}
}

// functionAt returns the function that the expression at token i has along way.
func (f *file) functionAt(i int, way []string) (code, bool) {
	var s span
	for _, step := range way {
		var ok bool
		if s, ok = f.step(i, step); !ok {
			return code{}, false
		}
		i = s.value
	}
	switch {
	case len(way) == 0:
		return code{}, false
	case s.end-s.value == 1: // a name: the function stands elsewhere
		return f.named(f.tokens[s.value].text)
	}
	return code{f: f, from: s.key, to: s.end}, true
}

// named returns the function that is declared under that name in f.
func (f *file) named(name string) (code, bool) {
	found, known := f.functions[name]
	if !known {
		found.code, found.ok = f.findNamed(name)
		f.functions[name] = found
	}
	return found.code, found.ok
}

func (f *file) findNamed(name string) (code, bool) {
	f.index()
	if i, ok := f.declaring[name]; ok {
		return code{f: f, from: i, to: f.functionEnd(i)}, true
	}
	if i := f.declared(name); i >= 0 && f.looksLikeFunction(i) {
		return code{f: f, from: i, to: f.functionEnd(i)}, true
	}
	return code{}, false
}

// functionNear returns the function at that place.
func (f *file) functionNear(at Position) (code, bool) {
	off := f.offset(at)
	for i, t := range f.tokens {
		if t.off >= off || t.off+len(t.text) > off {
			if f.lineOf(i) != at.Line {
				return code{}, false
			}
			return code{f: f, from: i, to: f.functionEnd(i)}, true
		}
	}
	return code{}, false
}

// isName reports whether token i is that name. Any i is fine, so that callers may
// look around without minding the ends.
func (f *file) isName(i int, text string) bool {
	return i >= 0 && i < len(f.tokens) && f.tokens[i].kind == tName && f.tokens[i].text == text
}

// looksLikeFunction reports whether a function expression begins at token i.
func (f *file) looksLikeFunction(i int) bool {
	if f.isName(i, "async") {
		i++
	}
	switch {
	case i+1 >= len(f.tokens):
		return false
	case f.isName(i, "function") || f.tokens[i+1].is("=>"):
		return true
	case f.tokens[i].is("("):
		end := f.match(i)
		return end+1 < len(f.tokens) && (f.tokens[end+1].is("=>") || f.tokens[end+1].is(":"))
	}
	return false
}

// functionEnd returns the token after the function that begins at token i, with
// its name, its keywords or its parameters.
func (f *file) functionEnd(i int) int {
	for i < len(f.tokens) && !f.tokens[i].is("(") && !f.tokens[i].is("=>") {
		i++
	}
	if i < len(f.tokens) && f.tokens[i].is("(") {
		i = f.match(i) + 1
	}
	for ; i < len(f.tokens); i++ {
		switch t := f.tokens[i]; {
		case t.is("{"):
			return f.match(i) + 1
		case t.is("=>") && i+1 < len(f.tokens) && !f.tokens[i+1].is("{"):
			return f.expressionEnd(i + 1)
		}
	}
	return len(f.tokens)
}

// expressionEnd returns the token after the expression that begins at token i.
func (f *file) expressionEnd(i int) int {
	for i < len(f.tokens) {
		t := f.tokens[i]
		switch {
		case t.opens():
			i = f.match(i)
		case t.closes() || t.is(",") || t.is(";"):
			return i
		}
		i++
	}
	return len(f.tokens)
}

// match returns the token that closes the bracket at token i, or the last one.
func (f *file) match(i int) int {
	if i >= len(f.pairs) {
		return len(f.tokens) - 1
	}
	return f.pairs[i]
}

// parameters returns the parameters of the function: what stands between the
// commas of its first bracket, or the one name before an arrow.
func (c code) parameters() []span {
	for i := c.from; i < c.to; i++ {
		if c.f.tokens[i].is("(") {
			return c.f.parts(i)
		}
		if i+1 < c.to && c.f.tokens[i+1].is("=>") {
			return []span{{key: i, value: i, end: i + 1}}
		}
	}
	return nil
}

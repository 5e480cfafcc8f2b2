package workflow

import (
	"slices"
	"sort"
	"strconv"
	"strings"
	"unicode/utf8"
)

// A Source holds the author's files as written: name, as positions say it, to
// text. It may be nil or lack files; then places are less exact.
type Source map[string]string

// A file is one file of a Source, cut into tokens.
type file struct {
	name   string
	text   string
	tokens []token
	sure   bool  // that these are its tokens
	lines  []int // offset of each line's first byte
	pairs  []int // of each opening bracket, the token that closes it
	opened []int // of each closing bracket, the token that opens it, or -1

	// What was looked up before, and where what is looked for stands: a script may be written so that
	// each of a hundred thousand names, all alike or all different, is looked for in all of it.
	declarations map[string]int // by name, what a const, let or var is given first
	declaring    map[string]int // by name, the first declaration of a function
	functions    map[string]foundFunction
	bound        map[string]bool
	stops        []int // of each token, the first from there on that is = or ; or a template

	lastOff, lastUnits int // the place that was asked for last, and its column from 0
}

// A foundFunction is what named returns.
type foundFunction struct {
	code code
	ok   bool
}

// files cuts files into tokens when they are first asked for.
type files struct {
	src    Source
	opened map[string]*file
}

// open returns a file cut into tokens, or nil if the Source lacks it.
func (fs *files) open(name string) *file {
	if f, ok := fs.opened[name]; ok {
		return f
	}
	var f *file
	if text, ok := fs.src[name]; ok {
		f = newFile(name, text)
	}
	if fs.opened == nil {
		fs.opened = make(map[string]*file)
	}
	fs.opened[name] = f
	return f
}

// only returns the file of a Source that has one, and nil otherwise.
func (fs *files) only() *file {
	if len(fs.src) != 1 {
		return nil
	}
	for name := range fs.src {
		return fs.open(name)
	}
	return nil
}

// newFile cuts text into tokens and lines.
func newFile(name, text string) *file {
	f := &file{name: name, text: text, lines: []int{0},
		functions: make(map[string]foundFunction), bound: make(map[string]bool)}
	f.tokens, f.sure = scan(text)
	f.pair()
	for i := range len(text) {
		if text[i] == '\n' {
			f.lines = append(f.lines, i+1)
		}
	}
	return f
}

// pair finds the end of each bracket. One that does not end is closed by the last token.
func (f *file) pair() {
	f.pairs, f.opened = make([]int, len(f.tokens)), make([]int, len(f.tokens))
	var open []int
	for i, t := range f.tokens {
		f.pairs[i], f.opened[i] = len(f.tokens)-1, -1
		switch {
		case t.opens():
			open = append(open, i)
		case t.closes() && len(open) > 0:
			f.pairs[open[len(open)-1]], f.opened[i] = i, open[len(open)-1]
			open = open[:len(open)-1]
		}
	}
}

// position returns the place of an offset.
func (f *file) position(off int) Position {
	line := sort.SearchInts(f.lines, off+1) - 1
	// A whole script may be one line, of which one place after another is asked for.
	from, units := f.lines[line], 0
	if from <= f.lastOff && f.lastOff <= off {
		from, units = f.lastOff, f.lastUnits
	}
	f.lastOff, f.lastUnits = off, units+utf16Len(f.text[from:off])
	return Position{File: f.name, Line: line + 1, Column: f.lastUnits + 1}
}

// offset returns the offset of a place, or of the nearest one that exists.
func (f *file) offset(p Position) int {
	if p.Line > len(f.lines) {
		return len(f.text)
	}
	start := f.lines[max(0, p.Line-1)]
	units := 1
	for i, r := range f.text[start:] {
		if r == '\n' || units >= p.Column {
			return start + i
		}
		units += runeUnits(r)
	}
	return len(f.text)
}

// utf16Len returns the length of s in the units that JavaScript counts in.
func utf16Len(s string) int {
	n := 0
	for _, r := range s {
		n += runeUnits(r)
	}
	return n
}

// runeUnits returns the UTF-16 units of r: emoji and the like have two.
func runeUnits(r rune) int {
	if r > 0xffff {
		return 2
	}
	return 1
}

// call returns the index of the token that begins the argument of the call of
// Keep's function by at that place, or -1. The engine may point at any part of
// the call up to its bracket.
func (f *file) call(by string, at Position) int {
	off := f.offset(at)
	// Engines differ in which part of a call they point at, and a line may have
	// several: the nearest one of that name is meant. If Keep's function was given
	// another name, any call on the line will do.
	best, bestDistance := -1, 0
	for i := 1; i+1 < len(f.tokens); i++ {
		if !f.tokens[i].is("(") {
			continue
		}
		named := f.tokens[i-1].kind == tName && f.tokens[i-1].text == by
		d := abs(f.tokens[i-1].off - off)
		if !named && f.lineOf(i) != at.Line {
			continue
		}
		if !named {
			d += len(f.text) // only if nothing has the name
		}
		if best < 0 || d < bestDistance {
			best, bestDistance = i+1, d
		}
	}
	return best
}

// abs returns n without its sign.
func abs(n int) int { return max(n, -n) }

// object returns the index of the brace that begins the object which the
// expression at token i is: itself, the argument of a call, or the literal that
// a name stands for. It returns -1 if that cannot be told.
func (f *file) object(i int, bracket string) int {
	// A name may stand for a name, and in a hostile script they may form a circle.
	const hops = 4
	for range hops {
		if i < 0 || i >= len(f.tokens) {
			return -1
		}
		if f.tokens[i].is(bracket) {
			return i
		}
		if f.tokens[i].kind != tName {
			return -1
		}
		end := i
		for end+2 < len(f.tokens) && f.tokens[end+1].is(".") {
			end += 2
		}
		switch {
		case end+2 < len(f.tokens) && f.tokens[end+1].is("("):
			i = end + 2
		case end == i:
			i = f.declared(f.tokens[i].text)
		default:
			return -1
		}
	}
	return -1
}

// declared returns the index of the first token of what a const, let or var of
// that name is given first, or -1.
func (f *file) declared(name string) int {
	f.index()
	if i, ok := f.declarations[name]; ok {
		return i
	}
	return -1
}

// index finds all declarations, once.
func (f *file) index() {
	if f.declarations != nil {
		return
	}
	f.declarations, f.declaring = make(map[string]int), make(map[string]int)
	for i := 1; i < len(f.tokens); i++ {
		if f.tokens[i].kind != tName {
			continue
		}
		name := f.tokens[i].text
		if _, known := f.declaring[name]; !known && (f.isName(i-1, "function") || f.tokens[i-1].is("*") && f.isName(i-2, "function")) {
			f.declaring[name] = i
		}
		if _, known := f.declarations[name]; known || i+2 >= len(f.tokens) || f.tokens[i-1].kind != tName ||
			!slices.Contains([]string{"const", "let", "var"}, f.tokens[i-1].text) {
			continue
		}
		if f.tokens[i+1].is("=") {
			f.declarations[name] = i + 2
		}
		if f.tokens[i+1].is(":") { // a TypeScript annotation
			if j := f.stop(i + 2); j+1 < len(f.tokens) && f.lineOf(j) == f.lineOf(i) && f.tokens[j].is("=") {
				f.declarations[name] = j + 1
			}
		}
	}
}

// stop returns the first token from i on that is = or ; or a template, or how many tokens there are.
func (f *file) stop(i int) int {
	if f.stops == nil {
		f.stops = make([]int, len(f.tokens)+1)
		f.stops[len(f.tokens)] = len(f.tokens)
		for i, t := range slices.Backward(f.tokens) {
			f.stops[i] = f.stops[i+1]
			if t.is("=") || t.is(";") || t.kind == tTemplate {
				f.stops[i] = i
			}
		}
	}
	return f.stops[min(i, len(f.tokens))]
}

// lineOf returns the line of token i.
func (f *file) lineOf(i int) int { return sort.SearchInts(f.lines, f.tokens[i].off+1) }

// A span is a property of an object literal, an item of an array, an argument or
// a parameter, as tokens.
type span struct {
	key   int // the token of the key, or of the item itself
	value int // the first token of the value; the key's for methods and shorthand
	end   int // after the last token
}

// property returns the property of that key in the object literal whose brace is
// token open.
func (f *file) property(open int, key string) (span, bool) {
	for _, s := range f.parts(open) {
		if f.keyText(f.keyOf(s)) == key {
			return f.keyed(s), true
		}
	}
	return span{}, false
}

// keyed returns a part of an object literal as a property.
func (f *file) keyed(s span) span {
	k := f.keyOf(s)
	s.key, s.value = k, k
	if k+1 < s.end && f.tokens[k+1].is(":") {
		s.value = k + 2
	}
	return s
}

// keyOf returns the token of the key of a property, after async, get and so on.
func (f *file) keyOf(s span) int {
	k := s.key
	for k+1 < s.end {
		next := f.tokens[k+1]
		modifier := f.tokens[k].is("*") || f.tokens[k].kind == tName &&
			slices.Contains([]string{"async", "get", "set"}, f.tokens[k].text)
		if !modifier || next.is(":") || next.is("(") {
			break
		}
		k++
	}
	if f.tokens[k].is("[") && k+1 < s.end { // a computed key
		k++
	}
	return k
}

// keyText returns the property name that token i writes, or nothing.
func (f *file) keyText(i int) string {
	t := f.tokens[i]
	switch t.kind {
	case tName, tNumber:
		return t.text
	case tString:
		return unquote(t.text)
	}
	return ""
}

// item returns the nth item of the array literal whose bracket is token open.
func (f *file) item(open, n int) (span, bool) {
	parts := f.parts(open)
	if n < 0 || n >= len(parts) {
		return span{}, false
	}
	return parts[n], true
}

// parts returns what stands between the commas within the bracket at token open.
func (f *file) parts(open int) []span { return f.partsUpTo(open, len(f.tokens)) }

// partsUpTo is parts for a bracket of which no token from limit on matters.
func (f *file) partsUpTo(open, limit int) []span {
	var out []span
	start := open + 1
	add := func(end int) {
		if end > start {
			out = append(out, span{key: start, value: start, end: end})
		}
		start = end + 1
	}
	limit = min(limit, len(f.tokens))
	for i := open + 1; i < limit; i++ {
		switch t := f.tokens[i]; {
		case t.opens():
			i = f.match(i)
		case t.closes():
			add(i)
			return out
		case t.is(","):
			add(i)
		}
	}
	add(limit)
	return out
}

// unquote returns the text of a string literal. Escapes other than the simple
// ones are left as they are.
func unquote(s string) string {
	if len(s) < 2 {
		return s
	}
	if s[0] == '\'' && !strings.ContainsAny(s, "\"\\") {
		s = `"` + s[1:len(s)-1] + `"`
	}
	if out, err := strconv.Unquote(s); err == nil && utf8.ValidString(out) {
		return out
	}
	return s[1 : len(s)-1]
}

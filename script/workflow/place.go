package workflow

import (
	"cmp"
	"encoding/json"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// A location is a value's way from the root of the declaration. A step into an
// array is written as "[n]".
type location struct {
	path []string

	// anchors are the calls of Keep's functions around it, outermost first,
	// and the function that it is, if it is one.
	anchors []anchor
}

// An anchor is a known position on the way.
type anchor struct {
	depth int    // length of the path there
	by    string // the function of Keep; empty: the value is a function
	at    Position
}

// key returns the place of a member.
func (p location) key(k string) location {
	return location{append(slices.Clone(p.path), k), p.anchors}
}

// item returns the place of the nth item.
func (p location) item(n int) location { return p.key("[" + strconv.Itoa(n) + "]") }

// of returns p with what v tells about its position.
func (p location) of(v value) location {
	if v.at.IsZero() {
		return p
	}
	return location{p.path, append(slices.Clone(p.anchors), anchor{len(p.path), v.keep, v.at})}
}

var plainKey = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z_$][A-Za-z0-9_$]*$`) })

// String writes the path as a script would.
func (p location) String() string {
	var b strings.Builder
	for _, step := range p.path {
		switch {
		case strings.HasPrefix(step, "["):
			b.WriteString(step)
		case !plainKey().MatchString(step):
			b.WriteString("[" + strconv.Quote(short(step)) + "]")
		case b.Len() > 0:
			b.WriteString("." + step)
		default:
			b.WriteString(step)
		}
	}
	return b.String()
}

// find returns the position of p in the author's text: of its key, or of the
// nearest thing around it that can be found.
func (fs *files) find(p location) Position {
	var known Position // of the function that p is
	for _, a := range slices.Backward(p.anchors) {
		if a.by == "" {
			known = a.at
			continue
		}
		f := fs.open(a.at.File)
		if f == nil {
			return cmp.Or(known, a.at)
		}
		// What can be found completely is exact. If not, a function knows its
		// own place; else the last key that was found encloses what is meant.
		way := p.path[a.depth:]
		at, found := f.follow(f.call(a.by, a.at), way)
		switch {
		case len(way) > 0 && found == len(way):
			return f.position(f.tokens[at].off)
		case !known.IsZero() || found == 0:
			return cmp.Or(known, a.at)
		}
		return f.position(f.tokens[at].off)
	}
	if !known.IsZero() {
		return known
	}
	return fs.guess(p.path)
}

// Locate returns where the function at path of a declaration is, or the nearest thing around it that
// can be found. src is as in Parse.
func Locate(decl json.RawMessage, src Source, path []string) Position {
	v, err := decode(decl)
	if err != nil {
		return Position{}
	}
	p := location{}.of(v)
	for _, step := range path {
		next, ok := v.get(step)
		if !ok {
			break
		}
		p, v = p.key(step).of(next), next
	}
	if f, ok := v.get("handler"); ok {
		p = p.key("handler").of(f)
	}
	fs := files{src: src}
	return fs.find(p)
}

// guess finds a path when no position is known at all, in the one file there is:
// from the first call of something named workflow, or else from line 1.
func (fs *files) guess(path []string) Position {
	f := fs.only()
	if f == nil {
		return Position{}
	}
	for i := 0; i+2 < len(f.tokens); i++ {
		if f.tokens[i].kind == tName && f.tokens[i].text == "workflow" && f.tokens[i+1].is("(") {
			at, _ := f.follow(i+2, path)
			return f.position(f.tokens[at].off)
		}
	}
	return Position{File: f.name, Line: 1, Column: 1}
}

// follow walks from the expression at token i along way, and returns the token
// of the last key that it found and the number of steps it took.
func (f *file) follow(i int, way []string) (at, steps int) {
	at = max(i, 0)
	for _, step := range way {
		s, ok := f.step(i, step)
		if !ok {
			return at, steps
		}
		at, i = s.key, s.value
		steps++
	}
	return at, steps
}

// step goes one step of a way from the expression at token i: to a property, or
// to an item if the step is written as "[n]".
func (f *file) step(i int, step string) (span, bool) {
	if n, ok := strings.CutPrefix(step, "["); ok {
		if n, err := strconv.Atoi(strings.TrimSuffix(n, "]")); err == nil {
			open := f.object(i, "[")
			if open < 0 {
				return span{}, false
			}
			return f.item(open, n)
		}
	}
	open := f.object(i, "{")
	if open < 0 {
		return span{}, false
	}
	return f.property(open, step)
}

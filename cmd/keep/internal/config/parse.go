package config

import (
	"errors"
	"fmt"
	"sort"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/pelletier/go-toml/v2"
	"github.com/pelletier/go-toml/v2/unstable"
)

// A node is one value of the configuration, with where it was written.
type node struct {
	at     place
	value  any    // string, int64, float64, bool, a time, []*node or map[string]*node
	raw    string // the text before secrets were put in; empty: there are none
	source string // the variable that set it; empty: keep.toml
	file   string // another file that it is from; empty: keep.toml
}

// A place is a position in keep.toml. The zero place is none.
type place struct{ line, column int }

// table returns the children of a table, or nil if n is none.
func (n *node) table() map[string]*node {
	if n == nil {
		return nil
	}
	t, _ := n.value.(map[string]*node)
	return t
}

// parse reads text into a tree. A mistake in the TOML itself is the only one
// that is reported alone: what follows it cannot be trusted.
func parse(text []byte) (root *node, p *Problem) {
	x := newIndex(text)
	if x.walk(); x.deep != (place{}) {
		return nil, &Problem{Line: x.deep.line, Column: x.deep.column, Message: fmt.Sprintf("tables are nested more than %d deep", maxDepth)}
	}
	var values map[string]any
	if err := toml.Unmarshal(text, &values); err != nil {
		if e, ok := errors.AsType[*toml.DecodeError](err); ok {
			line, column := e.Position()
			return nil, &Problem{Line: line, Column: column, Message: trimTOML(e.Error())}
		}
		return nil, &Problem{Message: trimTOML(err.Error())}
	}
	return x.annotate("", values), nil
}

// trimTOML takes the name of the library out of a message.
func trimTOML(s string) string { return strings.TrimPrefix(s, "toml: ") }

// An index knows where each key of a document is written.
type index struct {
	text   []byte
	starts []int            // offset of each line
	places map[string]place // by joined path
	arrays map[string]int   // tables of an array so far, by joined path
	parser unstable.Parser
	deep   place // the first key that is nested too deep; zero: none
}

// maxDepth bounds nesting (law: bounded): paths of what is deeper take time and
// space that grow with the square of the depth.
const maxDepth = 100

// newIndex returns an index of text that has no places yet; see walk.
func newIndex(text []byte) *index {
	x := &index{text: text, starts: []int{0}, places: make(map[string]place), arrays: make(map[string]int)}
	for i, c := range text {
		if c == '\n' {
			x.starts = append(x.starts, i+1)
		}
	}
	return x
}

// place returns the line and column of an offset.
func (x *index) place(offset int) place {
	line := sort.SearchInts(x.starts, offset+1)
	start := x.starts[line-1]
	offset = min(offset, len(x.text))
	return place{line, utf8.RuneCount(x.text[start:offset]) + 1}
}

// joined makes one string of a path and a key, so that no two paths are alike.
func joined(path, key string) string { return path + "\x00" + key }

// walk visits every key of the document in order.
func (x *index) walk() {
	x.parser.Reset(x.text)
	prefix := ""
	for x.deep == (place{}) && x.parser.NextExpression() {
		switch e := x.parser.Expression(); e.Kind {
		case unstable.Table:
			prefix = x.keys("", e.Key())
		case unstable.ArrayTable:
			path := x.keys("", e.Key())
			if i := strings.LastIndex(path, "\x00["); i >= 0 && x.arrays[path[:i]] > 0 {
				path = path[:i] // keys entered the newest table; this is the next one
			}
			prefix = joined(path, element(x.arrays[path]))
			x.arrays[path]++
			x.places[prefix] = x.places[path]
		case unstable.KeyValue:
			x.keyValue(prefix, e)
		}
	}
}

// keys records the parts of a dotted key and returns the path they lead to. A
// part that is an array of tables leads into its newest table.
func (x *index) keys(path string, it unstable.Iterator) string {
	for it.Next() {
		k := it.Node()
		if strings.Count(path, "\x00") >= maxDepth {
			x.deep = x.place(int(k.Raw.Offset))
			return path
		}
		path = joined(path, string(k.Data))
		if _, known := x.places[path]; !known {
			x.places[path] = x.place(int(k.Raw.Offset))
		}
		if n := x.arrays[path]; n > 0 {
			path = joined(path, element(n-1))
		}
	}
	return path
}

// keyValue records a key and what is inside its value.
func (x *index) keyValue(prefix string, e *unstable.Node) {
	path := x.keys(prefix, e.Key())
	x.inside(path, e.Value())
}

// inside visits the keys of a value that has some.
func (x *index) inside(path string, v *unstable.Node) {
	i := 0
	if strings.Count(path, "\x00") >= maxDepth {
		x.deep = x.places[path]
		return
	}
	switch v.Kind {
	case unstable.InlineTable:
		for it := v.Children(); it.Next(); {
			x.keyValue(path, it.Node())
		}
	case unstable.Array:
		for it := v.Children(); it.Next(); i++ {
			at := joined(path, element(i))
			x.places[at] = x.places[path]
			x.inside(at, it.Node())
		}
	}
}

// element is the last part of the path of an element.
func element(i int) string { return "[" + strconv.Itoa(i) + "]" }

// annotate joins decoded values with their places.
func (x *index) annotate(path string, v any) *node {
	n := &node{at: x.places[path], value: v}
	switch v := v.(type) {
	case map[string]any:
		t := make(map[string]*node, len(v))
		for k, child := range v {
			t[k] = x.annotate(joined(path, k), child)
		}
		n.value = t
	case []any:
		list := make([]*node, len(v))
		for i, child := range v {
			list[i] = x.annotate(joined(path, element(i)), child)
		}
		n.value = list
	}
	return n
}

// plain returns the value of n as TOML decoders do it, without places.
func (n *node) plain() any {
	switch v := n.value.(type) {
	case map[string]*node:
		m := make(map[string]any, len(v))
		for k, child := range v {
			m[k] = child.plain()
		}
		return m
	case []*node:
		list := make([]any, len(v))
		for i, child := range v {
			list[i] = child.plain()
		}
		return list
	}
	return n.value
}

// show returns the value as it was written, for a message: never a secret.
func (n *node) show() string {
	switch v := n.value.(type) {
	case map[string]*node:
		return "a table"
	case []*node:
		return "a list"
	case string:
		if n.raw != "" {
			v = n.raw
		}
		return "the string " + strconv.Quote(cut(v, 60))
	default:
		return fmt.Sprintf("%v", v)
	}
}

// cut shortens s to n bytes at a character.
func cut(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n] + "…"
}

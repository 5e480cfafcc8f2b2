package config

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/pelletier/go-toml/v2"
)

// Prefix begins the names of all variables that Keep reads.
const Prefix = "KEEP_"

// An environment is a set of variables, and which of them were of use.
type environment struct {
	vars map[string]string
	used map[string]bool
}

// newEnvironment takes variables as os.Environ has them.
func newEnvironment(environ []string) *environment {
	e := &environment{vars: make(map[string]string), used: make(map[string]bool)}
	for _, kv := range environ {
		if k, v, ok := strings.Cut(kv, "="); ok {
			e.vars[k] = v
		}
	}
	return e
}

// Variable returns the name of the variable that sets the key at a path.
func Variable(path string) string {
	return Prefix + strings.Map(func(r rune) rune {
		switch {
		case 'a' <= r && r <= 'z':
			return r - 'a' + 'A'
		case 'A' <= r && r <= 'Z', '0' <= r && r <= '9':
			return r
		}
		return '_'
	}, strings.ReplaceAll(path, `"`, ""))
}

// overlay returns n with what the environment says about the keys that a value
// of type t has. It returns nil if neither says anything.
//
// A map gets no new keys: which key a variable means could not be told from its name.
func (e *environment) overlay(t reflect.Type, n *node, path string) *node {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	name := Variable(path)
	if text := e.vars[name]; text != "" && path != "" {
		e.used[name] = true
		n = fromText(t, text)
		setSource(n, name)
	}
	switch t.Kind() {
	case reflect.Struct:
		fields := fieldsOf(t)
		for _, key := range slices.Sorted(maps.Keys(fields)) {
			n = e.child(t.FieldByIndex(fields[key]).Type, n, path, key)
		}
	case reflect.Map:
		for _, key := range slices.Sorted(maps.Keys(n.table())) {
			n = e.child(t.Elem(), n, path, key)
		}
	}
	return n
}

// child overlays one key of the table n, which may not be there yet.
func (e *environment) child(t reflect.Type, n *node, path, key string) *node {
	got := e.overlay(t, n.table()[key], dotted(path, key))
	switch {
	case got == nil:
		return n
	case n == nil:
		n = &node{value: make(map[string]*node), source: got.source}
	case n.table() == nil:
		return n // not a table: the binder says so
	}
	n.table()[key] = got
	return n
}

// fromText reads the text of a variable as a value of type t is written.
//
// It has no error: text that is no value of the type is left as text, and the binder says what is wrong
// with it, naming the variable.
func fromText(t reflect.Type, text string) *node {
	trimmed := strings.TrimSpace(text)
	switch t.Kind() {
	case reflect.String:
		return &node{value: text}
	case reflect.Slice:
		if !strings.HasPrefix(trimmed, "[") {
			return fromList(t, trimmed)
		}
	case reflect.Struct, reflect.Map, reflect.Bool, reflect.Int, reflect.Int32, reflect.Int64, reflect.Float64, reflect.Interface:
	default:
		return &node{value: text}
	}
	var doc struct{ V any }
	if err := toml.Unmarshal([]byte("V = "+trimmed+"\n"), &doc); err != nil || doc.V == nil {
		return &node{value: text} // if it does not fit, the binder says so
	}
	return newIndex(nil).annotate("", doc.V)
}

// fromList reads a list that is written with commas.
func fromList(t reflect.Type, text string) *node {
	list := []*node{}
	if text != "" {
		for part := range strings.SplitSeq(text, ",") {
			list = append(list, fromText(t.Elem(), strings.TrimSpace(part)))
		}
	}
	return &node{value: list}
}

// setSource marks n and all below it as coming from a variable.
func setSource(n *node, name string) {
	n.source = name
	switch v := n.value.(type) {
	case map[string]*node:
		for _, child := range v {
			setSource(child, name)
		}
	case []*node:
		for _, child := range v {
			setSource(child, name)
		}
	}
}

// sections are the tables whose variables are checked for mistakes.
var sections = []string{"policy", "sandbox", "notify", "connections", "llm", "repair", "write"}

// unused returns a warning for each variable that looks like a setting but set
// nothing.
func (e *environment) unused() []Problem {
	var out []Problem
	for _, name := range slices.Sorted(maps.Keys(e.vars)) {
		if e.used[name] || e.vars[name] == "" {
			continue
		}
		for _, s := range sections {
			if strings.HasPrefix(name, Variable(s)+"_") {
				out = append(out, Problem{File: name, Message: fmt.Sprintf("sets nothing: no key of [%s] has this name", s),
					Fix: "see keep help env"})
			}
		}
	}
	return out
}

// Variables returns the names of the variables that set what does not depend on
// the names of connections, sorted.
func Variables() []string {
	var out []string
	var walk func(t reflect.Type, path string)
	walk = func(t reflect.Type, path string) {
		if t.Kind() != reflect.Struct {
			out = append(out, Variable(path))
			return
		}
		fields := fieldsOf(t)
		for key, index := range fields {
			if f := t.FieldByIndex(index); f.Type.Kind() != reflect.Map {
				walk(f.Type, dotted(path, key))
			}
		}
	}
	walk(tablesType, "")
	slices.Sort(out)
	return out
}

package config

import (
	"cmp"
	"encoding"
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/keep-run/keep/connector"
)

// A size is a number of bytes that configuration writes with its unit.
type size int

// A binder puts a tree into structs by their toml tags, strictly, and collects
// everything that does not fit. What a tree does not say stays as it is in the
// struct, so defaults are put there before.
type binder struct {
	file     string
	problems []Problem
	warnings []Problem
	missing  []Problem // secrets that are not there

	budgetNames map[string]bool // of all tables of budgets, those with mistakes too

	libraries map[string]string // hashes of the packs and pairings that were read, by file
}

// problem returns a problem about n.
func (b *binder) problem(n *node, path, format string, args ...any) Problem {
	p := Problem{File: b.file, Path: path, Message: fmt.Sprintf(format, args...)}
	switch {
	case n == nil:
	case n.source != "":
		p.File = n.source
	default:
		p.Line, p.Column = n.at.line, n.at.column
		if n.file != "" {
			p.File = n.file
		}
	}
	return p
}

// addf adds a problem about n.
func (b *binder) addf(n *node, path, format string, args ...any) {
	b.problems = append(b.problems, b.problem(n, path, format, args...))
}

// dotted returns the path of a key as people write it.
func dotted(path, key string) string {
	if key == "" || strings.ContainsFunc(key, func(r rune) bool {
		return r != '_' && r != '-' && (r < '0' || r > '9') && (r|0x20 < 'a' || r|0x20 > 'z')
	}) {
		key = fmt.Sprintf("%q", key)
	}
	if path == "" {
		return key
	}
	return path + "." + key
}

// bind puts n into dst, which can be set.
//
// A value that does not fit is a problem and no error: the rest is bound, so that everything that is
// wrong is said at once.
func (b *binder) bind(dst reflect.Value, n *node, path string) {
	if dst.Type() == reflect.TypeFor[*node]() {
		dst.Set(reflect.ValueOf(n)) // bound later, by somebody who knows its type
		return
	}
	if b.bindText(dst, n, path) {
		return
	}
	switch dst.Kind() {
	case reflect.Pointer:
		if dst.IsNil() {
			dst.Set(reflect.New(dst.Type().Elem()))
		}
		b.bind(dst.Elem(), n, path)
	case reflect.Interface:
		dst.Set(reflect.ValueOf(n.plain()))
	case reflect.Struct:
		b.bindStruct(dst, n, path)
	case reflect.Map:
		b.bindMap(dst, n, path)
	case reflect.Slice:
		b.bindSlice(dst, n, path)
	case reflect.String:
		if s, ok := b.text(n, path, "a string"); ok {
			dst.SetString(s)
		}
	case reflect.Bool:
		if v, ok := n.value.(bool); ok {
			dst.SetBool(v)
			return
		}
		b.addf(n, path, "want true or false, not %s", n.show())
	case reflect.Int, reflect.Int64, reflect.Int32:
		if v, ok := n.value.(int64); ok && !dst.OverflowInt(v) {
			dst.SetInt(v)
			return
		}
		b.addf(n, path, "want a whole number, not %s", n.show())
	case reflect.Float64:
		b.bindFloat(dst, n, path)
	default:
		b.addf(n, path, "cannot be configured")
	}
}

// bindFloat takes whole numbers too, since TOML tells them apart.
func (b *binder) bindFloat(dst reflect.Value, n *node, path string) {
	switch v := n.value.(type) {
	case int64:
		dst.SetFloat(float64(v))
	case float64:
		if !math.IsNaN(v) && !math.IsInf(v, 0) {
			dst.SetFloat(v)
			return
		}
		b.addf(n, path, "want a number, not %v", v)
	default:
		b.addf(n, path, "want a number, not %s", n.show())
	}
}

// text returns the string in n, or adds a problem.
func (b *binder) text(n *node, path, want string) (string, bool) {
	s, ok := n.value.(string)
	if !ok {
		b.addf(n, path, "want %s, not %s", want, n.show())
	}
	return s, ok
}

// bindText binds what is written as text in a form of its own, and reports
// whether dst is such a value.
func (b *binder) bindText(dst reflect.Value, n *node, path string) bool {
	var set func(string) error
	var want string
	switch p := dst.Addr().Interface().(type) {
	case *time.Duration:
		want = `a duration such as "10s", "5m", "1h" or "1d"`
		set = func(s string) (err error) { *p, err = ParseDuration(s); return err }
	case *connector.Duration:
		want = `a duration such as "10s", "5m", "1h" or "1d"`
		set = func(s string) error {
			d, err := ParseDuration(s)
			*p = connector.Duration(d)
			return err
		}
	case *size:
		want = `a size such as "64MiB", "256KiB" or "512B"`
		set = func(s string) error {
			v, err := ParseSize(s)
			*p = size(v)
			return err
		}
	case encoding.TextUnmarshaler:
		want = "a string"
		set = func(s string) error { return p.UnmarshalText([]byte(s)) }
	default:
		return false
	}
	s, ok := b.text(n, path, want)
	if !ok {
		return true
	}
	if err := set(s); err != nil {
		if n.raw != "" {
			b.addf(n, path, "what %s stands for is not %s", n.raw, want) // err would quote it
			return true
		}
		b.addf(n, path, "%v", err)
	}
	return true
}

// bindStruct binds the keys that the struct has, and refuses all others.
func (b *binder) bindStruct(dst reflect.Value, n *node, path string) {
	t, ok := n.value.(map[string]*node)
	if !ok {
		b.addf(n, path, "want a table, not %s", n.show())
		return
	}
	fields := fieldsOf(dst.Type())
	for _, key := range slices.Sorted(maps.Keys(t)) {
		i, known := fields[key]
		if !known {
			p := b.problem(t[key], dotted(path, key), "unknown key")
			p.Fix = suggest(key, slices.Collect(maps.Keys(fields)))
			p.Fix = cmp.Or(p.Fix, "the keys here are "+strings.Join(slices.Sorted(maps.Keys(fields)), ", "))
			b.problems = append(b.problems, p)
			continue
		}
		b.bind(dst.FieldByIndex(i), t[key], dotted(path, key))
	}
}

// fieldsOf returns the fields of a struct by their toml names.
func fieldsOf(t reflect.Type) map[string][]int {
	fields := make(map[string][]int)
	for _, f := range reflect.VisibleFields(t) {
		if name, _, _ := strings.Cut(f.Tag.Get("toml"), ","); name != "" && name != "-" {
			fields[name] = f.Index
		}
	}
	return fields
}

// bindMap binds every key, in their order, so that problems have one too.
func (b *binder) bindMap(dst reflect.Value, n *node, path string) {
	t, ok := n.value.(map[string]*node)
	if !ok {
		b.addf(n, path, "want a table, not %s", n.show())
		return
	}
	m := reflect.MakeMapWithSize(dst.Type(), len(t))
	for _, key := range slices.Sorted(maps.Keys(t)) {
		v := reflect.New(dst.Type().Elem()).Elem()
		b.bind(v, t[key], dotted(path, key))
		m.SetMapIndex(reflect.ValueOf(key).Convert(dst.Type().Key()), v)
	}
	dst.Set(m)
}

// bindSlice binds the elements of a list. Of names one may stand alone.
func (b *binder) bindSlice(dst reflect.Value, n *node, path string) {
	list, ok := n.value.([]*node)
	ofTools := dst.Type() == reflect.TypeFor[connector.Names]()
	names := ofTools || dst.Type() == reflect.TypeFor[budgetNames]()
	if _, one := n.value.(string); one && names {
		list, ok = []*node{n}, true
	}
	switch {
	case !ok && names:
		b.addf(n, path, "want a name, or a list of names, not %s", n.show())
		return
	case !ok:
		b.addf(n, path, "want a list, not %s", n.show())
		return
	}
	s := reflect.MakeSlice(dst.Type(), len(list), len(list))
	for i, e := range list {
		at := path + element(i)
		if e == n {
			at = path
		}
		b.bind(s.Index(i), e, at)
		if name, text := e.value.(string); ofTools && text && !connector.IsName(name) {
			b.addf(e, at, "%q: want a name as keep.toml had it, without a dot", name)
		}
	}
	dst.Set(s)
}

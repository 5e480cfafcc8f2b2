package connector

import (
	"cmp"
	"encoding"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
)

// exact returns an error if an object in raw has a name that a tag of a field of t has in another case, or two names of one field. Package
// json takes each for the field, and a condition of a grant, an approval or a budget, which compares names, does not see it. A field
// without a tag may have any case.
func exact(raw json.RawMessage, t reflect.Type) error {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if reads(t) {
		return nil // by itself
	}
	switch t.Kind() {
	case reflect.Slice, reflect.Array:
		var list []json.RawMessage
		if json.Unmarshal(raw, &list) != nil {
			return nil // json says what is wrong
		}
		for _, e := range list {
			if err := exact(e, t.Elem()); err != nil {
				return err
			}
		}
	case reflect.Map, reflect.Struct:
		var members map[string]json.RawMessage
		if json.Unmarshal(raw, &members) != nil {
			return nil
		}
		fields := fieldsOf(t)
		given := make(map[string]bool)
		for _, name := range slices.Sorted(maps.Keys(members)) {
			f, known := fieldOf(fields, name)
			switch {
			case t.Kind() == reflect.Map:
				f.of = t.Elem()
			case !known:
				continue
			case f.tagged && f.name != name:
				return fmt.Errorf("there is no param %q: write %q", name, f.name)
			case given[f.name]:
				return fmt.Errorf("the param %q is there twice, in another case", f.name)
			}
			given[f.name] = true
			if err := exact(members[name], f.of); err != nil {
				return err
			}
		}
	}
	return nil
}

// reads reports whether a type reads its JSON by a method.
func reads(t reflect.Type) bool {
	p := reflect.PointerTo(t)
	return p.Implements(reflect.TypeFor[json.Unmarshaler]()) || p.Implements(reflect.TypeFor[encoding.TextUnmarshaler]())
}

// A field is one of a struct, by its name in JSON.
type field struct {
	name   string
	tagged bool // the name is that of its tag
	of     reflect.Type
}

// fieldsOf returns the fields of a struct with those of structs that it embeds; nil: t is none.
func fieldsOf(t reflect.Type) (fields []field) {
	if t.Kind() != reflect.Struct {
		return nil
	}
	for _, f := range reflect.VisibleFields(t) {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if !f.IsExported() || f.Tag.Get("json") == "-" || f.Anonymous && name == "" {
			continue
		}
		fields = append(fields, field{cmp.Or(name, f.Name), name != "", f.Type})
	}
	return fields
}

// fieldOf returns the field that package json takes a name for.
func fieldOf(fields []field, name string) (field, bool) {
	i := slices.IndexFunc(fields, func(f field) bool { return f.name == name })
	if i < 0 {
		i = slices.IndexFunc(fields, func(f field) bool { return strings.EqualFold(f.name, name) })
	}
	if i < 0 {
		return field{}, false
	}
	return fields[i], true
}

package workflow

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"
)

// A schema writes JSON Schemas as TypeScript types, as well as one can: what it
// does not understand becomes the fallback, which accepts everything.
type schema struct {
	root     value  // where "#/…" references lead
	fallback string // "unknown" for what scripts pass, "any" for what they get
	left     *int   // parts that may still be written
}

// Schemas that contain themselves end at a depth; those that do so more than
// once grow with each level, and end at a size.
const (
	maxSchemaDepth = 8
	maxSchemaParts = 2000
)

// newSchema reads a schema; nil allows anything.
func newSchema(raw json.RawMessage, fallback string) schema {
	left := maxSchemaParts
	s := schema{fallback: fallback, left: &left}
	if root, err := decode(raw); err == nil {
		s.root = root
	}
	return s
}

// object reports whether the schema describes an object with known properties.
func (s schema) object() bool {
	props, ok := s.root.get("properties")
	return ok && len(props.members) > 0
}

// required returns the names of the properties that must be there.
func required(v value) []string {
	list, _ := v.get("required")
	var out []string
	for _, item := range list.items {
		out = append(out, item.text)
	}
	return out
}

// write returns the type of v, whose lines after the first begin with indent.
func (s schema) write(v value, indent string, depth int) string {
	if *s.left--; v.kind != kObject || depth > maxSchemaDepth || *s.left < 0 {
		return s.fallback
	}
	if ref, ok := v.get("$ref"); ok {
		return s.write(s.resolve(ref.text), indent, depth+1)
	}
	if c, ok := v.get("const"); ok {
		return literal(c, s.fallback)
	}
	if list, ok := v.get("enum"); ok {
		return s.union(list.items, func(item value) string { return literal(item, s.fallback) })
	}
	for _, key := range []string{"oneOf", "anyOf"} {
		if list, ok := v.get(key); ok {
			return s.union(list.items, func(item value) string { return s.write(item, indent, depth+1) })
		}
	}
	if list, ok := v.get("allOf"); ok {
		return s.intersection(list.items, indent, depth)
	}
	types, _ := v.get("type")
	if types.kind == kArray {
		return s.union(types.items, func(item value) string { return s.named(item.text, v, indent, depth) })
	}
	return s.named(types.text, v, indent, depth)
}

// named returns the type of v if it is of that JSON type.
func (s schema) named(name string, v value, indent string, depth int) string {
	_, props := v.get("properties")
	switch {
	case name == "string" || name == "boolean" || name == "null":
		return name
	case name == "number" || name == "integer":
		return "number"
	case name == "array":
		return s.array(v, indent, depth)
	case name == "object" || name == "" && props:
		return s.properties(v, indent, depth, "")
	}
	return s.fallback
}

// array returns the type of an array. Tuples are written as arrays of anything:
// they are rare in APIs, and a wrong tuple would be worse.
func (s schema) array(v value, indent string, depth int) string {
	items, ok := v.get("items")
	if !ok {
		return s.fallback + "[]"
	}
	t := s.write(items, indent, depth+1)
	if strings.ContainsAny(t, "|&") {
		t = "(" + t + ")"
	}
	return t + "[]"
}

// properties returns the type of an object. extra is a line that is added to it.
func (s schema) properties(v value, indent string, depth int, extra string) string {
	props, _ := v.get("properties")
	must := required(v)
	inner := indent + "  "
	var b strings.Builder
	for _, m := range props.members {
		b.WriteString(doc(inner, text(m.value, "description")))
		optional := "?"
		if slices.Contains(must, m.key) {
			optional = ""
		}
		b.WriteString(inner + propertyKey(m.key) + optional + ": " + s.write(m.value, inner, depth+1) + ";\n")
	}
	if more, ok := v.get("additionalProperties"); ok && more.kind == kObject && len(props.members) == 0 {
		b.WriteString(inner + "[key: string]: " + s.write(more, inner, depth+1) + ";\n")
	} else if more.text != "false" && (len(props.members) == 0 || s.fallback == "unknown") {
		b.WriteString(inner + "[key: string]: " + s.fallback + ";\n") // what a schema does not forbid is allowed
	}
	b.WriteString(extra)
	if b.Len() == 0 {
		return "{}"
	}
	return "{\n" + b.String() + indent + "}"
}

// union returns the types of items with bars between, each once. One that is not
// understood makes the whole accept everything.
func (s schema) union(items []value, f func(value) string) string {
	var parts []string
	for _, item := range items {
		t := f(item)
		if t == s.fallback {
			return t
		}
		if !slices.Contains(parts, t) {
			parts = append(parts, t)
		}
	}
	if len(parts) == 0 {
		return s.fallback
	}
	return strings.Join(parts, " | ")
}

// intersection returns what satisfies all of items, as far as they are
// understood: those that are not would add nothing.
func (s schema) intersection(items []value, indent string, depth int) string {
	var parts []string
	for _, item := range items {
		t := s.write(item, indent, depth+1)
		if strings.Contains(t, " | ") {
			t = "(" + t + ")"
		}
		if t != s.fallback && !slices.Contains(parts, t) {
			parts = append(parts, t)
		}
	}
	if len(parts) == 0 {
		return s.fallback
	}
	return strings.Join(parts, " & ")
}

// resolve returns what a reference within the schema points at.
func (s schema) resolve(ref string) value {
	way, ok := strings.CutPrefix(ref, "#")
	if !ok {
		return value{}
	}
	v := s.root
	for step := range strings.SplitSeq(strings.TrimPrefix(way, "/"), "/") {
		if step == "" {
			continue
		}
		step = strings.NewReplacer("~1", "/", "~0", "~").Replace(step)
		if v, ok = v.get(step); !ok {
			return value{}
		}
	}
	return v
}

// literal writes a constant as a type.
func literal(v value, fallback string) string {
	switch v.kind {
	case kString:
		return quote(v.text)
	case kNumber, kBoolean, kNull:
		return v.text
	}
	return fallback
}

// quote writes s as a string literal. TypeScript reads those of JSON.
func quote(s string) string {
	out, err := json.Marshal(s)
	if err != nil {
		return strconv.Quote(s)
	}
	return string(out)
}

// propertyKey writes the name of a property, in quotes if it needs them.
func propertyKey(k string) string {
	if plainKey().MatchString(k) {
		return k
	}
	return quote(k)
}

// text returns a member that is a string.
func text(v value, key string) string {
	m, _ := v.get(key)
	if m.kind != kString {
		return ""
	}
	return m.text
}

// doc writes a documentation comment of the lines that are not empty.
func doc(indent string, lines ...string) string {
	var all []string
	for _, line := range lines {
		for part := range strings.SplitSeq(strings.ReplaceAll(line, "*/", "*\u200b/"), "\n") {
			if part = strings.TrimSpace(part); part != "" {
				all = append(all, part)
			}
		}
	}
	switch len(all) {
	case 0:
		return ""
	case 1:
		return indent + "/** " + all[0] + " */\n"
	}
	return indent + "/**\n" + indent + " * " + strings.Join(all, "\n"+indent+" * ") + "\n" + indent + " */\n"
}

package config

import (
	"encoding"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/keep-run/keep/api/hook"
	"github.com/keep-run/keep/connector"
	"github.com/keep-run/keep/connector/httpapi"
	"github.com/keep-run/keep/idempotency/proxy"
	"github.com/keep-run/keep/law/repair"
	"github.com/keep-run/keep/llm"
)

// A Describe returns the sentences about a field of a struct, by the name that it has in
// Go. They are in the source and not in the program, so whoever has that brings them.
type Describe func(of reflect.Type, field string) string

// Schema returns a JSON Schema (draft 7, which editors know) of keep.toml. It is made of
// the structs that keep.toml is put into, so it has the keys that Load takes and no
// others. It refuses what is wrong whatever the values of other keys are; Load finds more.
func Schema(describe Describe) map[string]any {
	m := newSchemaMaker(describe)
	root := m.object(tablesType, reflect.ValueOf(defaults()))
	root["properties"].(map[string]any)["connections"].(map[string]any)["additionalProperties"] = m.connection()
	return m.document("keep.toml", "Settings of a project of Keep", root)
}

// PackSchema returns a JSON Schema of the file of a pack.
func PackSchema(describe Describe) map[string]any {
	m := newSchemaMaker(describe)
	root := m.object(reflect.TypeFor[packTable](), reflect.Value{})
	m.merge(root, reflect.TypeFor[limitsTable]())
	return m.document("pack.toml", "A service as a set of tools for Keep", root)
}

// choices are the values of the fields that have a few, by type and key.
var choices = map[string][]string{
	"policyTable.on_item_blocked": {"stop", "continue"},
	"hookTable.verify":            schemes(),
	"PackAuth.style":              authStyles,
	"Tool.effect":                 {string(connector.List), string(connector.Get), string(connector.Mutate)},
	"Tool.body":                   {"json", "form", "multipart", "text"},
	"Tool.answer":                 {"json", "text"},
	"Start.body":                  {"json", "form", "multipart", "text"},
	"Start.gone_means":            {"applied"},
	"Token.format":                {"uuid", "base32hex", "hex32"},
	"OnResend.then":               {"lookup"},
	"Pages.style":                 {"cursor", "page", "link", "offset"},
	"Pages.in":                    {"query", "body"},
	"Route.policy":                {"at-most-once", "retry-5xx"},
	"llmTable.api":                {string(llm.Anthropic), string(llm.OpenAI)},
	"gatewayTable.repeat":         {"allow", "ask", "replay"},
	"gatewayToolTable.repeat":     {"allow", "ask", "replay"},
	"gatewayToolTable.effect":     {"mutate", "read"},
	"gatewayToolTable.errors":     {"unknown", "refused"},
	"ToolConfig.errors":           {"unknown", "refused"},
	"ToolConfig.effect":           {string(connector.List), string(connector.Get), string(connector.Mutate)},
	"repairTable.activate":        {string(repair.Ask), string(repair.WhenSafe)},
	"Route.after_crash":           {"unknown", "retry"},
}

// needed are the keys that a table must have, by type.
var needed = map[string][]string{
	"hookTable": {"workflow", "topic", "verify"}, "budgetTable": {"tools", "limit", "per"}, "grantTable": {"tools"},
	"pairingTable": {"name", "version", "title", "tools"}, "ToolConfig": {"effect"}, "packTable": {"name", "version", "title", "auth", "tools"}, "PackAuth": {"style"}, "webhookTable": {"url"},
	"packConnection": {"connector"}, "llmTable": {"api"},
}

// PairingSchema returns a JSON Schema of the file of a pairing.
func PairingSchema(describe Describe) map[string]any {
	m := newSchemaMaker(describe)
	return m.document("pairing.toml", "How the outcomes of an MCP server's tools can be known", m.object(reflect.TypeFor[pairingTable](), reflect.Value{}))
}

func schemes() (out []string) {
	for _, s := range hook.Schemes() {
		out = append(out, string(s))
	}
	return out
}

// Forms of texts. A reference to a variable or a secret fits every one.
const (
	durationForm = `^([0-9]{1,6}d([0-9.]+(ns|us|µs|μs|ms|s|m|h))*|([0-9.]+(ns|us|µs|μs|ms|s|m|h))+|0)$|\$\{`
	sizeForm     = `^[0-9]+ *(KiB|MiB|GiB|kB|MB|GB|B)$|\$\{`
)

// A schemaMaker makes schemas of types, and collects those that are used more than once.
type schemaMaker struct {
	describe    Describe
	definitions map[string]any
}

func newSchemaMaker(describe Describe) *schemaMaker {
	return &schemaMaker{describe, map[string]any{}}
}

// document returns a schema that stands alone.
func (m *schemaMaker) document(file, title string, root map[string]any) map[string]any {
	root["$schema"] = "http://json-schema.org/draft-07/schema#"
	root["$id"] = "https://keep.run/schema/" + strings.TrimSuffix(file, ".toml") + ".schema.json"
	root["title"], root["description"] = file, title
	root["definitions"] = m.definitions
	return root
}

// of returns the schema of a type. without is the value where nothing is said; it may be
// invalid.
func (m *schemaMaker) of(t reflect.Type, without reflect.Value) map[string]any {
	if t.Kind() == reflect.Pointer && t != reflect.TypeFor[*node]() {
		return m.of(t.Elem(), reflect.Value{})
	}
	switch t {
	case reflect.TypeFor[*node](): // bound by who knows its type: here, a tool
		return m.of(reflect.TypeFor[httpapi.Tool](), reflect.Value{})
	case reflect.TypeFor[time.Duration](), reflect.TypeFor[connector.Duration](), reflect.TypeFor[proxy.Duration]():
		return map[string]any{"type": "string", "pattern": durationForm}
	case reflect.TypeFor[size](), reflect.TypeFor[proxy.Size]():
		return map[string]any{"type": "string", "pattern": sizeForm}
	case reflect.TypeFor[connector.Names](), reflect.TypeFor[budgetNames]():
		one := map[string]any{"type": "string"}
		return map[string]any{"anyOf": []any{one, map[string]any{"type": "array", "items": one}}}
	}
	if reflect.PointerTo(t).Implements(reflect.TypeFor[encoding.TextUnmarshaler]()) {
		return map[string]any{"type": "string"}
	}
	switch t.Kind() {
	case reflect.Struct:
		return m.structure(t, without)
	case reflect.Map:
		return map[string]any{"type": "object", "additionalProperties": m.of(t.Elem(), reflect.Value{})}
	case reflect.Slice:
		return map[string]any{"type": "array", "items": m.of(t.Elem(), reflect.Value{})}
	case reflect.Bool:
		return map[string]any{"type": "boolean"}
	case reflect.Int, reflect.Int32, reflect.Int64:
		return map[string]any{"type": "integer"}
	case reflect.Float64:
		return map[string]any{"type": "number"}
	case reflect.Interface:
		return map[string]any{}
	}
	return map[string]any{"type": "string"}
}

// structure returns the schema of a table: in place where it has defaults, which are those
// of one place, and else by a name.
func (m *schemaMaker) structure(t reflect.Type, without reflect.Value) map[string]any {
	if without.IsValid() {
		return m.object(t, without)
	}
	if _, known := m.definitions[t.Name()]; !known {
		m.definitions[t.Name()] = nil // it may be part of itself
		m.definitions[t.Name()] = m.object(t, without)
	}
	return map[string]any{"$ref": "#/definitions/" + t.Name()}
}

// object returns the schema of a table with the keys of a struct and no others.
func (m *schemaMaker) object(t reflect.Type, without reflect.Value) map[string]any {
	out := map[string]any{"type": "object", "additionalProperties": false, "properties": map[string]any{}}
	m.fields(out, t, without)
	if keys := needed[t.Name()]; keys != nil {
		out["required"] = keys
	}
	return out
}

// merge adds the keys of a struct to the schema of a table.
func (m *schemaMaker) merge(into map[string]any, t reflect.Type) { m.fields(into, t, reflect.Value{}) }

func (m *schemaMaker) fields(into map[string]any, t reflect.Type, without reflect.Value) {
	properties := into["properties"].(map[string]any)
	fields := fieldsOf(t)
	for _, key := range slices.Sorted(maps.Keys(fields)) {
		field := t.FieldByIndex(fields[key])
		value := reflect.Value{}
		if without.IsValid() {
			value = without.FieldByIndex(fields[key])
		}
		p := m.of(field.Type, value)
		if values := choices[t.Name()+"."+key]; values != nil {
			p = map[string]any{"anyOf": []any{map[string]any{"enum": values}, map[string]any{"type": "string", "pattern": `\$\{`}}}
		}
		of := t
		if i := fields[key]; len(i) > 1 { // of a struct that is embedded
			of = t.FieldByIndex(i[:len(i)-1]).Type
		}
		text := m.describe(of, field.Name)
		if key == "connector" {
			text = "the kind of service: " + strings.Join(Kinds(), ", ") + ", or the name of a pack (keep packs)"
		}
		if text != "" {
			if p["$ref"] != nil { // editors pass over what stands beside one
				p = map[string]any{"allOf": []any{p}}
			}
			p["description"] = text
		}
		if v := shownDefault(value); v != nil {
			p["default"] = v
		}
		properties[key] = p
	}
}

// shownDefault returns a default as keep.toml writes it, or nil if there is none to show.
func shownDefault(v reflect.Value) any {
	if !v.IsValid() || v.IsZero() {
		return nil
	}
	switch x := v.Interface().(type) {
	case time.Duration:
		return durationText(x)
	case size:
		return sizeText(x)
	}
	switch v.Kind() {
	case reflect.String, reflect.Bool, reflect.Int, reflect.Slice:
		return v.Interface()
	}
	return nil
}

// connection returns the schema of a connection, which depends on its connector.
func (m *schemaMaker) connection() map[string]any {
	var cases []any
	for _, name := range Kinds() {
		cases = append(cases, map[string]any{
			"if":   map[string]any{"properties": map[string]any{"connector": map[string]any{"const": name}}},
			"then": m.connectionOf(name, kinds[name].settings),
		})
	}
	cases = append(cases, map[string]any{
		"if":   map[string]any{"properties": map[string]any{"connector": map[string]any{"not": map[string]any{"enum": Kinds()}}}},
		"then": m.connectionOf("pack", reflect.TypeFor[packConnection]()),
	})
	m.definitions["connection"] = map[string]any{
		"type": "object", "required": []string{"connector"},
		"properties": map[string]any{"connector": map[string]any{"type": "string"}},
		"allOf":      cases,
	}
	return map[string]any{"$ref": "#/definitions/connection"}
}

// connectionOf returns the schema of a connection of one kind, with what every kind takes.
func (m *schemaMaker) connectionOf(name string, settings reflect.Type) map[string]any {
	o := m.object(settings, reflect.Value{})
	for _, t := range []reflect.Type{reflect.TypeFor[formerNames](), reflect.TypeFor[limitsTable](), reflect.TypeFor[approvedTools]()} {
		m.merge(o, t)
	}
	delete(o, "required")
	m.definitions["connection."+name] = o
	return map[string]any{"$ref": "#/definitions/connection." + name}
}

// durationText returns a duration as keep.toml writes it.
func durationText(d time.Duration) string {
	const day = 24 * time.Hour
	if d%day == 0 {
		return strconv.Itoa(int(d/day)) + "d"
	}
	text := d.String()
	if rest, ok := strings.CutSuffix(text, "m0s"); ok {
		text = rest + "m"
	}
	if rest, ok := strings.CutSuffix(text, "h0m"); ok {
		text = rest + "h"
	}
	return text
}

// sizeText returns a size as keep.toml writes it.
func sizeText(n size) string {
	for _, u := range units {
		if int64(n)%u.size == 0 {
			return strconv.FormatInt(int64(n)/u.size, 10) + u.name
		}
	}
	return strconv.Itoa(int(n)) + "B"
}

package httpapi

import (
	"encoding/json"
	"slices"

	"github.com/keep-run/keep/connector"
	"github.com/keep-run/keep/internal/schema"
)

// schemas sets the schemas of t's spec: those of the configuration, or one
// made of what the request needs.
func (b *builder) schemas(t *tool) {
	params, err := rawOf(b.cfg.Params)
	if err != nil {
		b.addf("params", "%v", err)
		return
	}
	if params == nil {
		params = t.derivedSchema()
	} else {
		b.compile("params", params)
		b.covers(t)
	}
	if t.pages != nil {
		params = withListParams(params)
	}
	t.spec.Params = params
	if b.cfg.Example != nil {
		if t.spec.Example, err = rawOf(b.cfg.Example); err != nil {
			b.addf("example", "%v", err)
		}
	}
	if t.spec.Result, err = rawOf(b.cfg.Result); err != nil {
		b.addf("result", "%v", err)
	} else if t.spec.Result != nil {
		b.compile("result", t.spec.Result)
	}
}

// compile adds a problem if raw is not a JSON Schema.
func (b *builder) compile(key string, raw json.RawMessage) {
	if _, err := schema.Compile(raw); err != nil {
		b.addf(key, "is not a JSON Schema: %v", err)
	}
}

// covers adds a problem for each param that the request needs and the schema
// doesn't know.
func (b *builder) covers(t *tool) {
	properties, ok := b.cfg.Params["properties"].(map[string]any)
	if !ok {
		return // says nothing about properties here, so it allows them
	}
	need := slices.Concat(t.path.params(), t.query.params(), t.fixedParams(), t.spec.Identity, t.needs)
	slices.Sort(need)
	for _, p := range slices.Compact(need) {
		if _, ok := properties[p]; !ok {
			b.addf("params.properties", "lacks %q, which path, query, identity or reconcile names", p)
		}
	}
}

// derivedSchema describes the params that a request can't do without. Further
// ones are allowed where there is a body to put them into.
func (t *tool) derivedSchema() json.RawMessage {
	scalar := map[string]any{"type": []string{"string", "number", "boolean"}}
	properties := map[string]any{}
	for _, p := range slices.Concat(t.query.params(), t.fixedParams()) {
		properties[p] = map[string]any{}
	}
	for _, p := range t.spec.Identity {
		properties[p] = map[string]any{}
	}
	for _, p := range slices.Concat(t.path.params(), t.needs) {
		properties[p] = scalar
	}
	required := slices.Concat(t.path.params(), t.spec.Identity, t.needs)
	slices.Sort(required)
	s := map[string]any{"type": "object", "properties": properties}
	if required = slices.Compact(required); len(required) > 0 {
		s["required"] = required
	}
	if !t.hasBody() && t.spec.Effect != connector.Mutate {
		s["additionalProperties"] = false
	}
	raw, _ := json.Marshal(s) // of strings only
	return raw
}

// withListParams adds what every list in pages takes to a schema of params.
func withListParams(raw json.RawMessage) json.RawMessage {
	var s map[string]any
	if json.Unmarshal(raw, &s) != nil {
		return raw
	}
	properties, ok := s["properties"].(map[string]any)
	if !ok {
		properties = map[string]any{}
	}
	properties[limitParam] = map[string]any{"type": "integer", "minimum": 1, "maximum": maxItems}
	properties[cursorParam] = map[string]any{"type": []string{"string", "null"}}
	s["properties"] = properties
	out, err := json.Marshal(s)
	if err != nil {
		return raw
	}
	return out
}

package schema_test

import (
	"strconv"
	"strings"
	"testing"

	"github.com/keep-run/keep/internal/schema"
)

// TestMisfit compares values with schemas as servers of tools list them.
func TestMisfit(t *testing.T) {
	t.Parallel()
	pay := `{"$schema":"http://json-schema.org/draft-07/schema#","type":"object","required":["to"],"additionalProperties":false,"$defs":{"sum":{"type":"integer","minimum":1}},
		"properties":{"to":{"type":"string","minLength":1,"format":"email"},"amount":{"$ref":"#/$defs/sum"},"how":{"anyOf":[{"enum":["fast","slow"]},{"type":"null"}]},
		"tags":{"type":"array","items":{"type":"string"}},"more":{"type":"object","additionalProperties":{"type":"number"}}}}`
	fan := `{"$defs":{"d0":{"type":"object"}`
	for i := range 60 {
		ref := `{"$ref":"#/$defs/d` + strconv.Itoa(i) + `"}`
		fan += `,"d` + strconv.Itoa(i+1) + `":{"allOf":[` + ref + `,` + ref + `]}`
	}
	fan += `},"$ref":"#/$defs/d60"}`
	for _, c := range []struct{ schema, value, why string }{
		{pay, `{"to":"bob","amount":5,"how":null,"tags":["a"],"more":{"x":1.5}}`, ""}, // no format is compared
		{pay, `{}`, "missing property 'to'"},
		{pay, `{"to":7}`, "/to: got number, want string"},
		{pay, `{"to":""}`, "/to: minLength: got 0, want 1"},
		{pay, `{"to":"bob","amonut":5}`, `there is no "amonut"`},
		{pay, `{"to":"bob","amount":"5"}`, "/amount: got string, want integer"},
		{pay, `{"to":"bob","amount":1.5}`, "/amount: got number, want integer"},
		{pay, `{"to":"bob","amount":0}`, "/amount: minimum: got 0, want 1"},
		{pay, `{"to":"bob","how":"later"}`, "/how: got string, want null"},
		{pay, `{"to":"bob","tags":["a",1]}`, "/tags/1: got number, want string"},
		{pay, `{"to":"bob","more":{"x":"y"}}`, "/more/x: got string, want number"},
		{`{"type":"object","if":{"required":["a"]},"then":{"required":["b"]}}`, `{"a":1}`, ""},
		{`{"patternProperties":{"^x":{}},"additionalProperties":false}`, `{"a":1}`, ""},
		{fan, `{}`, ""}, // it would never end
		{`{"$ref":"#"}`, `{}`, ""},
		{`true`, `{}`, ""}, {`false`, `{}`, "false schema"},
	} {
		s, err := schema.Compile([]byte(c.schema))
		if err != nil {
			t.Fatal(err)
		}
		v, err := schema.Value([]byte(c.value))
		if err != nil {
			t.Fatal(err)
		}
		if why := schema.Misfit(s, v); why != c.why && (c.why == "" || !strings.Contains(why, c.why)) {
			t.Errorf("%.60s of %.60s: %q, want %q", c.value, c.schema, why, c.why)
		}
	}
}

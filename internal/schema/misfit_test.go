package schema_test

import (
	"runtime"
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

// What is compared takes memory of the size of the value, however deep that is and however long its names are.
func TestMisfitOfADeepValue(t *testing.T) {
	s, err := schema.Compile([]byte(`{"type":"object","additionalProperties":{"$ref":"#"}}`))
	if err != nil {
		t.Fatal(err)
	}
	const depth = 1000
	name := strings.Repeat("k", 3_900)
	for end, want := range map[string]bool{"{}": false, "7": false} { // deeper than is compared
		v, err := schema.Value([]byte(strings.Repeat(`{"`+name+`":`, depth) + end + strings.Repeat("}", depth)))
		if err != nil {
			t.Fatal(err)
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		why := schema.Misfit(s, v)
		runtime.ReadMemStats(&after)
		if used := after.TotalAlloc - before.TotalAlloc; used > 8<<20 || (why != "") != want {
			t.Errorf("%s: %d bytes, %.100q", end, used, why)
		}
	}
	v, err := schema.Value([]byte(strings.Repeat(`{"`+name+`":`, 50) + "7" + strings.Repeat("}", 50)))
	if err != nil {
		t.Fatal(err)
	}
	if why := schema.Misfit(s, v); len(why) > 10_000 || !strings.HasSuffix(why, ": got number, want object") || !strings.HasPrefix(why, "/kkk") {
		t.Errorf("%d bytes: %.200q", len(why), why)
	}
}

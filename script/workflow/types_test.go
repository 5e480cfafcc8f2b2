package workflow_test

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/keep-run/keep/connector"
	"github.com/keep-run/keep/script/workflow"
)

// The types of the test's connections, as a person reads them.
func TestTypes(t *testing.T) {
	golden(t, "testdata/types.d.ts", workflow.Types(connections()))
}

func TestTypesOfNothing(t *testing.T) {
	got := workflow.Types(nil)
	for _, want := range []string{"interface NextCtx extends Ctx, Publish {}", "interface ItemCtx extends Ctx, InItem {}"} {
		if !strings.Contains(got, want) {
			t.Errorf("Types(nil) lacks %q", want)
		}
	}
}

// Odd names and schemas give types that are valid, if not precise.
func TestTypesOfOddities(t *testing.T) {
	odd := []connector.Connection{
		{Name: "my-crm", Tools: []connector.Tool{
			tool{Name: "do.it", Effect: connector.Get, Params: json.RawMessage(`{"$ref":"#"}`)},
			tool{Name: "bad", Effect: connector.Get, Params: json.RawMessage(`{`), Result: json.RawMessage(`true`)},
			tool{Name: "all", Effect: connector.Mutate, Params: json.RawMessage(`{"allOf":[{"properties":{"a":{"type":"string"}}},{"anyOf":[{"type":"null"},{"enum":["b"]}]}]}`),
				Result: json.RawMessage(`{"type":["array","null"],"items":{"enum":["x","y"]}}`)},
		}},
		{Name: "my.crm", Tools: []connector.Tool{tool{Name: "x", Effect: connector.Get}}},
		{Name: "1", Tools: []connector.Tool{tool{Name: "x", Effect: connector.List}}},
		{Name: "publish", Tools: []connector.Tool{tool{Name: "never", Effect: connector.List}}},
		{Name: "empty"},
	}
	golden(t, "testdata/types_odd.d.ts", workflow.Types(odd))
}

func readFile(t *testing.T, path string) string {
	t.Helper()
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

// Whatever the schema, Types returns.
func FuzzTypes(f *testing.F) {
	f.Add(`{"type":"object","properties":{"a":{"$ref":"#/properties/a"}}}`)
	f.Add(`{"oneOf":[{"$ref":"#"},{"$ref":"#"}]}`)
	f.Fuzz(func(t *testing.T, schema string) {
		workflow.Types([]connector.Connection{{Name: "c", Tools: []connector.Tool{
			tool{Name: "t", Effect: connector.Mutate, Params: json.RawMessage(schema), Result: json.RawMessage(schema)},
		}}})
	})
}

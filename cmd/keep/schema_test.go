package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pelletier/go-toml/v2"
	"github.com/santhosh-tekuri/jsonschema/v6"
)

// schemaOf returns a schema that keep guide prints for editors.
func schemaOf(t *testing.T, name string) *jsonschema.Schema {
	t.Helper()
	text, talk, status := runCommand(t, "guide", "--schema", name)
	if status != 0 {
		t.Fatalf("keep guide --schema %s: %d %s", name, status, talk)
	}
	doc, err := jsonschema.UnmarshalJSON(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("keep:"+name, doc); err != nil {
		t.Fatal(err)
	}
	s, err := c.Compile("keep:" + name)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// validate returns what an editor would underline in a text of TOML.
func validate(t *testing.T, s *jsonschema.Schema, text []byte) error {
	t.Helper()
	var tables map[string]any
	if err := toml.Unmarshal(text, &tables); err != nil {
		t.Fatal(err)
	}
	raw, err := json.Marshal(tables)
	if err != nil {
		t.Fatal(err)
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(raw))
	if err != nil {
		t.Fatal(err)
	}
	return s.Validate(doc)
}

// TestSchemas holds what an editor says by the schemas to the files that Keep takes: each
// keep.toml of the repository, each setting of the guide, each pack and each pairing.
func TestSchemas(t *testing.T) {
	t.Parallel()
	for name, globs := range map[string][]string{
		"keep":    {"../../examples/*/keep.toml", "../../deploy/*/*/keep.toml", "sample/keep.toml", "testdata/*/keep.toml", "internal/demo/files/keep.toml"},
		"pack":    {"../../connector/packs/*.toml"},
		"pairing": {"../../connector/pairings/*.toml"},
	} {
		s, n := schemaOf(t, name), 0
		for _, glob := range globs {
			files, err := filepath.Glob(glob)
			if err != nil || len(files) == 0 {
				t.Errorf("%s: no files, %v", glob, err)
			}
			for _, file := range files {
				text, err := os.ReadFile(file)
				if err != nil {
					t.Fatal(err)
				}
				n++
				if err := validate(t, s, text); err != nil {
					t.Errorf("%s: %v", file, err)
				}
				if err := validate(t, s, append([]byte("no_such_key = 1\n"), text...)); err == nil {
					t.Errorf("%s: a key that there is not is in order", file)
				}
			}
		}
		if n < 5 {
			t.Errorf("%s: only %d files were tried", name, n)
		}
	}
	keep := schemaOf(t, "keep")
	for _, b := range blocks() {
		if b.file == "keep.toml" {
			if err := validate(t, keep, []byte(b.text)); err != nil {
				t.Errorf("%s: %v\n%s", b.section, err, b.text)
			}
		}
	}
	for _, wrong := range []string{
		"[repair]\nactivate = \"always\"", "[repair]\nattempts = \"three\"", "[llm.x]\napi = \"other\"", "[policy.retry]\nfirst = \"soon\"",
		"[connections.x]\nconnector = 1", "[gateway]\nrepeat = \"never\"", "[budgets.x]\nlimit = \"much\"", "[write]\nquestion = 3",
	} {
		if err := validate(t, keep, []byte(wrong)); err == nil {
			t.Errorf("%q is in order", wrong)
		}
	}
}

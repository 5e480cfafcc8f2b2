package schema_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/keep-run/keep/internal/schema"
)

func TestCompile(t *testing.T) {
	t.Parallel()
	s, err := schema.Compile([]byte(`{"$defs":{"id":{"type":"integer"}},"properties":{"id":{"$ref":"#/$defs/id"}},"required":["id"]}`))
	if err != nil {
		t.Fatal(err)
	}
	for text, fits := range map[string]bool{
		`{"id":9007199254740993}`: true,
		`{"id":"1"}`:              false,
		`{}`:                      false,
	} {
		v, err := schema.Value([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Validate(v); (err == nil) != fits {
			t.Errorf("Validate(%s) = %v, want it to fit: %t", text, err, fits)
		}
	}
	for _, text := range []string{``, `{`, `{} {}`, `{"type":"nothing"}`, `{"properties":1}`} {
		if s, err := schema.Compile([]byte(text)); err == nil {
			t.Errorf("Compile(%q) = %v, want an error", text, s)
		}
	}
}

// TestCompileLoadsNothing has schemas that refer to what is elsewhere: to a file that is a good schema, and would
// do, and to addresses.
func TestCompileLoadsNothing(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "schema.json")
	if err := os.WriteFile(file, []byte(`{"type":"string"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, at := range []string{"file://" + filepath.ToSlash(file), "file:///dev/zero", "http://127.0.0.1:1/schema.json"} {
		for _, text := range []string{`{"$ref":%q}`, `{"$schema":%q}`, `{"properties":{"a":{"$ref":%q}}}`} {
			s, err := schema.Compile(fmt.Appendf(nil, text, at))
			if err == nil || strings.Contains(err.Error(), "no such file") {
				t.Errorf("Compile of a schema that refers to %s = %v, %v, want that it is not loaded", at, s, err)
			}
		}
	}
}

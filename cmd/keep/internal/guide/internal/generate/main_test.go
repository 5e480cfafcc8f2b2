package main

import (
	"bytes"
	"encoding/json"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/pelletier/go-toml/v2"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/keep-run/keep/cmd/keep/internal/guide"
)

const repository = "../../../../../.."

// TestGeneratedIsFresh fails if go generate in the package guide would change a file.
func TestGeneratedIsFresh(t *testing.T) {
	made, err := references(repository)
	if err != nil {
		t.Fatal(err)
	}
	maps.Copy(made, documents())
	for name, want := range made {
		got, err := os.ReadFile(filepath.Join(repository, name))
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s is stale (%v): run go generate ./cmd/keep/internal/guide", name, err)
		}
	}
}

// TestEveryKeyIsDescribed holds the source to a comment for each key of keep.toml.
func TestEveryKeyIsDescribed(t *testing.T) {
	for _, name := range guide.Schemas() {
		raw, _ := guide.Schema(name)
		var schema any
		if err := json.Unmarshal(raw, &schema); err != nil {
			t.Fatal(err)
		}
		var walk func(at string, v any)
		walk = func(at string, v any) {
			object, ok := v.(map[string]any)
			if !ok {
				return
			}
			properties, _ := object["properties"].(map[string]any)
			for key, p := range properties {
				if of := p.(map[string]any); of["description"] == nil && !strings.Contains(at, ".if") && at != name+".definitions.connection" {
					t.Errorf("%s.%s has no description: write a comment to its field", at, key)
				}
			}
			for key, child := range object {
				walk(at+"."+key, child)
			}
		}
		walk(name, schema)
	}
}

// schemaOf compiles a schema as editors do.
func schemaOf(t *testing.T, name string) *jsonschema.Schema {
	t.Helper()
	raw, ok := guide.Schema(name)
	if !ok {
		t.Fatalf("no schema %s", name)
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(raw))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource(name, doc); err != nil {
		t.Fatal(err)
	}
	s, err := c.Compile(name)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// validate reports what a schema objects to in a text of TOML.
func validate(t *testing.T, s *jsonschema.Schema, text []byte) error {
	t.Helper()
	var v any
	if err := toml.Unmarshal(text, &v); err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	raw, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(raw))
	if err != nil {
		t.Fatal(err)
	}
	return s.Validate(doc)
}

// TestSchemasTakeWhatKeepTakes validates every keep.toml, pack and pairing of the repository, and the settings of the
// guide. With a key that there is not, each is refused.
func TestSchemasTakeWhatKeepTakes(t *testing.T) {
	settings, packs, pairings := schemaOf(t, "keep"), schemaOf(t, "pack"), schemaOf(t, "pairing")
	found := map[string]int{}
	err := filepath.WalkDir(repository, func(file string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || filepath.Ext(file) != ".toml" {
			return err
		}
		var s *jsonschema.Schema
		switch {
		case d.Name() == "keep.toml":
			s = settings
		case filepath.Base(filepath.Dir(file)) == "packs" && !strings.Contains(file, "testdata"):
			s = packs
		case filepath.Base(filepath.Dir(file)) == "pairings" && !strings.Contains(file, "testdata"):
			s = pairings
		default:
			return nil
		}
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		found[map[*jsonschema.Schema]string{settings: "keep.toml", packs: "packs", pairings: "pairings"}[s]]++
		if err := validate(t, s, text); err != nil {
			t.Errorf("%s: %v", file, err)
		}
		if err := validate(t, s, append([]byte("no_such_key = 1\n"), text...)); err == nil {
			t.Errorf("%s: a key that there is not is taken", file)
		}
		return nil
	})
	if err != nil || found["keep.toml"] < 8 || found["packs"] < 10 || found["pairings"] < 8 {
		t.Errorf("found %v: %v", found, err)
	}
	for _, section := range guide.Sections() {
		for _, block := range regexp.MustCompile("(?ms)^```toml\n# keep.toml\n(.*?)^```$").FindAllStringSubmatch(section.Text, -1) {
			found["guide"]++
			if err := validate(t, settings, []byte(block[1])); err != nil {
				t.Errorf("%s: %v\n%s", section.Name, err, block[1])
			}
		}
	}
	if found["guide"] < 4 {
		t.Errorf("found %d settings in the guide", found["guide"])
	}
}

// TestSchemasRefuse tries what an editor should underline, and says where.
func TestSchemasRefuse(t *testing.T) {
	for _, test := range []struct{ schema, text, at string }{
		{"keep", `dbb = "x"`, "dbb"},
		{"keep", `db = 7`, "/db"},
		{"keep", `workflows = "*.js"`, "/workflows"},
		{"keep", `[policy.retry]` + "\n" + `first = "ten seconds"`, "/policy/retry/first"},
		{"keep", `[policy.retry]` + "\n" + `first = ""`, "/policy/retry/first"},
		{"keep", `[policy]` + "\n" + `on_item_blocked = "maybe"`, "/policy/on_item_blocked"},
		{"keep", `[sandbox]` + "\n" + `memory = "64 megabytes"`, "/sandbox/memory"},
		{"keep", `[connections.x]` + "\n" + `root = "in"`, "connector"},
		{"keep", `[connections.x]` + "\n" + `connector = "files"` + "\n" + `rot = "in"`, "rot"},
		{"keep", `[connections.x]` + "\n" + `connector = "http"` + "\n" + `[connections.x.tools.t]` + "\n" + `effect = "change"`, "/connections/x/tools/t/effect"},
		{"keep", `[connections.x]` + "\n" + `connector = "http"` + "\n" + `[connections.x.tools.t.reconcile]` + "\n" + `apply = [200]`, "apply"},
		{"keep", `[connections.x]` + "\n" + `connector = "slack"` + "\n" + `token = "plain"`, "token"},
		{"keep", `[hooks.x]` + "\n" + `workflow = "w"` + "\n" + `verify = "github"`, "topic"},
		{"keep", `[hooks.x]` + "\n" + `workflow = "w"` + "\n" + `topic = "t"` + "\n" + `verify = "trust"`, "/hooks/x/verify"},
		{"keep", `[budgets.x]` + "\n" + `tools = ["a.b"]` + "\n" + `limit = "many"` + "\n" + `per = "24h"`, "/budgets/x/limit"},
		{"keep", `[grants.x]` + "\n" + `workflow = "w"`, "tools"},
		{"keep", `[proxy]` + "\n" + `[[proxy.routes]]` + "\n" + `policy = "always"`, "/proxy/routes/0/policy"},
		{"keep", `[repair]` + "\n" + `activate = "always"`, "/repair/activate"},
		{"keep", `[repair]` + "\n" + `attempts = "three"`, "/repair/attempts"},
		{"keep", `[llm.x]` + "\n" + `api = "other"`, "/llm/x/api"},
		{"keep", `[connections.x]` + "\n" + `connector = 1`, "/connections/x"},
		{"keep", `[gateway]` + "\n" + `repeat = "never"`, "/gateway/repeat"},
		{"keep", `[write]` + "\n" + `question = 3`, "question"},
		{"pack", `name = "x"`, "version"},
		{"pack", `name = "x"` + "\n" + `version = "1"` + "\n" + `title = "X"` + "\n" + `[auth]` + "\n" + `style = "magic"` + "\n" + `[tools]`, "/auth/style"},
		{"pack", `name = "x"` + "\n" + `version = "1"` + "\n" + `title = "X"` + "\n" + `auth = { style = "bearer" }` + "\n" + `[tools.t]` + "\n" + `paht = "/x"`, "paht"},
	} {
		if err := validate(t, schemaOf(t, test.schema), []byte(test.text)); err == nil || !strings.Contains(err.Error(), test.at) {
			t.Errorf("%s of\n%s\nsays %v, want something about %s", test.schema, test.text, err, test.at)
		}
	}
}

// TestWhatIsNotDocumentedIsFound gives the readers of the source a package with what no document
// has: that is what makes go generate fail where the code has more than the documents.
func TestWhatIsNotDocumentedIsFound(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "x.go")
	if err := os.WriteFile(file, []byte(`package x
import "os"
type Kind string
const (
	KindA Kind = "brand-new" // it is new
	Found = 7
)
const Name = Prefix + "FRESH"
var a = problemOf(http.StatusConflict, KindA, os.Getenv("STRANGE"))
var b = refusal{http.StatusGone, "gone", ""}
var c = []string{"KEEP_MORE", "KEEP_"}
`), 0o644); err != nil {
		t.Fatal(err)
	}
	kinds := map[string]*kind{}
	if err := kindsIn(dir, kinds); err != nil {
		t.Fatal(err)
	}
	if k := kinds["brand-new"]; k == nil || k.comment != "it is new" || len(k.statuses) != 1 || k.statuses[0] != 409 {
		t.Errorf("the kind brand-new is %+v", k)
	}
	if k := kinds["gone"]; k == nil || len(k.statuses) != 1 || k.statuses[0] != 410 {
		t.Errorf("the kind gone is %+v", k)
	}
	var names []string
	if err := variablesIn(file, func(name string) { names = append(names, name) }); err != nil {
		t.Fatal(err)
	}
	if want := []string{"KEEP_FRESH", "STRANGE", "KEEP_MORE"}; !slices.Equal(names, want) {
		t.Errorf("the variables are %q, want %q", names, want)
	}
	if statuses, err := constantsOf(file); err != nil || len(statuses) != 1 {
		t.Errorf("the statuses are %q: %v", statuses, err)
	}
}

package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/keep-run/keep/cmd/keep/internal/config"
)

// TestEveryKeyIsInTheReference holds the reference to each key of each table of keep.toml, and to no
// other: the schema has the keys that Load takes, since it is made of what they are put into.
func TestEveryKeyIsInTheReference(t *testing.T) {
	c := comments{root: repository, packages: map[string]map[string]string{}}
	schema := config.Schema(c.of)
	text := reference(schema)
	listed := map[string]int{} // lines about a key
	for _, m := range regexp.MustCompile("(?m)^- `([^`]+)` \\(").FindAllStringSubmatch(text, -1) {
		listed[m[1]]++
	}
	tables := map[string]int{} // tables that have the key
	var walk func(v map[string]any)
	walk = func(v map[string]any) {
		properties, _ := v["properties"].(map[string]any)
		for key, p := range properties {
			p := p.(map[string]any)
			if p["properties"] != nil {
				walk(p) // a table of its own, which its heading names
				continue
			}
			tables[key]++
		}
	}
	walk(schema)
	for name, d := range schema["definitions"].(map[string]any) {
		if name != "connection" { // it chooses among connection.KIND by their keys
			walk(d.(map[string]any))
		}
	}
	for key, n := range tables {
		if listed[key] < n {
			t.Errorf("%d tables have the key %s, and the reference has it in %d", n, key, listed[key])
		}
	}
	for key := range listed {
		if tables[key] == 0 {
			t.Errorf("the reference has the key %s, and no table has it", key)
		}
	}
	if len(tables) < 150 {
		t.Errorf("only %d keys were looked at", len(tables))
	}
}

// TestEveryCallIsInTheReference holds the types that scripts see, which the reference has, to the calls that
// the engine answers, and to no others.
func TestEveryCallIsInTheReference(t *testing.T) {
	f, err := parser.ParseFile(token.NewFileSet(), filepath.Join(repository, "engine/host.go"), nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	answered := []string{"log", "now", "item"} // which the engine is not asked for
	ast.Inspect(f, func(n ast.Node) bool {
		if fn, ok := n.(*ast.FuncDecl); ok && fn.Name.Name != "lookup" {
			return false
		}
		if c, ok := n.(*ast.CaseClause); ok {
			for _, e := range c.List {
				if l, ok := e.(*ast.BasicLit); ok && l.Kind == token.STRING {
					answered = append(answered, regexp.MustCompile(`^item\..*`).ReplaceAllString(text(l), "withItem"))
				}
			}
		}
		return true
	})
	types, err := os.ReadFile(filepath.Join(repository, home, "text/90-script-reference.md"))
	if err != nil {
		t.Fatal(err)
	}
	var documented []string
	for _, name := range []string{"Ctx", "Publish", "Topics", "Ingress", "Items", "InItem"} {
		_, body, found := strings.Cut(string(types), "\n  interface "+name+" {\n")
		body, _, ended := strings.Cut(body, "\n  }\n")
		if !found || !ended {
			t.Fatalf("the reference has no interface %s", name)
		}
		for _, m := range regexp.MustCompile(`(?m)^    (?:readonly )?(\w+)[(<:]`).FindAllStringSubmatch(body, -1) {
			documented = append(documented, m[1])
		}
		for _, m := range regexp.MustCompile(`(?m)^      (get|set|delete)\(key`).FindAllStringSubmatch(body, -1) {
			documented = append(documented, "kv."+m[1])
		}
	}
	documented = slices.DeleteFunc(documented, func(name string) bool { return name == "kv" })
	slices.Sort(answered)
	slices.Sort(documented)
	if answered = slices.Compact(answered); len(answered) < 9 || !slices.Equal(answered, slices.Compact(documented)) {
		t.Errorf("ctx answers %q, and the reference has %q", answered, documented)
	}
}

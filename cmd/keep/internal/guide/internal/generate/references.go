package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"path"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/keep-run/keep/cmd/keep/internal/config"
	"github.com/keep-run/keep/cmd/keep/internal/guide"
	"github.com/keep-run/keep/connector"
	"github.com/keep-run/keep/connector/httpapi"
	"github.com/keep-run/keep/connector/sqldb"
	"github.com/keep-run/keep/law/policy"
	"github.com/keep-run/keep/script/workflow"
)

const home = "cmd/keep/internal/guide/"

// documents returns what is made of the whole guide, by file.
func documents() map[string][]byte {
	return map[string][]byte{
		"docs/guide.md": []byte(guide.Generated + "\n" + guide.Whole()),
		"llms.txt":      []byte(guide.LLMs()),
	}
}

// references returns the schemas and the sections that are made of the code, by file.
func references(root string) (map[string][]byte, error) {
	c := comments{root: root, packages: map[string]map[string]string{}}
	settings, pack, pairing := config.Schema(c.of), config.PackSchema(c.of), config.PairingSchema(c.of)
	if c.err != nil {
		return nil, c.err
	}
	out := map[string][]byte{
		home + "text/80-keep-toml-reference.md": []byte(guide.Generated + reference(settings)),
		home + "text/90-script-reference.md":    []byte(guide.Generated + scripts()),
	}
	of, err := manual(root)
	if err != nil {
		return nil, err
	}
	maps.Copy(out, of)
	for name, schema := range map[string]any{"keep": settings, "pack": pack, "pairing": pairing} {
		var b bytes.Buffer
		e := json.NewEncoder(&b)
		e.SetEscapeHTML(false)
		e.SetIndent("", " ")
		if err := e.Encode(schema); err != nil {
			return nil, err
		}
		out[home+"schema/"+name+".schema.json"] = b.Bytes()
	}
	return out, nil
}

// comments finds what the source says about fields.
type comments struct {
	root     string
	packages map[string]map[string]string // by path of the package, by Type.Field
	err      error                        // the first one
}

// of returns the comment of a field, of its struct in the source.
func (c *comments) of(t reflect.Type, field string) string {
	const module = "github.com/keep-run/keep"
	pkg := strings.TrimPrefix(strings.TrimPrefix(t.PkgPath(), module), "/")
	if c.packages[pkg] == nil {
		found, err := read(filepath.Join(c.root, filepath.FromSlash(pkg)))
		if err != nil && c.err == nil {
			c.err = err
		}
		c.packages[pkg] = found
	}
	return sentence(t, c.packages[pkg][t.Name()+"."+field])
}

// read returns the comments of the fields of all structs of a package.
func read(dir string) (map[string]string, error) {
	out := map[string]string{}
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil || len(files) == 0 {
		return out, fmt.Errorf("%s: no source: %w", dir, fs.ErrNotExist)
	}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		set := token.NewFileSet()
		f, err := parser.ParseFile(set, file, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return out, err
		}
		ast.Inspect(f, func(n ast.Node) bool {
			if spec, ok := n.(*ast.TypeSpec); ok {
				if s, ok := spec.Type.(*ast.StructType); ok {
					fields(out, set, spec.Name.Name, s)
				}
			}
			return true
		})
	}
	return out, nil
}

// fields notes the comments of the fields of a struct. One that has none, and stands right
// below one with a comment above it, is of the same block.
func fields(out map[string]string, set *token.FileSet, of string, s *ast.StructType) {
	block, last := "", 0
	for _, f := range s.Fields.List {
		line := set.Position(f.Pos()).Line
		text := f.Doc.Text() + f.Comment.Text()
		switch {
		case f.Doc != nil:
			block = text
		case text != "" || line != last+1:
			block = ""
		default:
			text = block
		}
		last = line
		for _, name := range f.Names {
			out[of+"."+name.Name] = text
		}
	}
}

// sentence makes the comment of a field one for people who write TOML: on one line, with
// the names that keys have there.
func sentence(t reflect.Type, text string) string {
	text = strings.Join(strings.Fields(constants(t).Replace(text)), " ")
	for f := range t.Fields() {
		if key, _, _ := strings.Cut(f.Tag.Get("toml"), ","); key != "" && key != "-" {
			text = regexp.MustCompile(`\b`+f.Name+`\b`).ReplaceAllString(text, key)
		}
	}
	return text
}

// constants puts values in the place of their names in Go.
func constants(t reflect.Type) *strings.Replacer {
	settle := httpapi.DefaultSettle
	if t == reflect.TypeFor[sqldb.Config]() {
		settle = sqldb.DefaultSettle
	}
	return strings.NewReplacer("connector.DefaultTimeout", connector.DefaultTimeout.String(), "DefaultSettle", settle.String(),
		"DefaultKeyLasts", httpapi.DefaultKeyLasts.String(), "DefaultSetLasts", httpapi.DefaultSetLasts.String(),
		"DefaultLedger", sqldb.DefaultLedger, "Nil and empty:", "Left out:", "Nil:", "Left out:", "nil:", "left out:")
}

// reference returns the section about the keys of keep.toml.
func reference(schema map[string]any) string {
	var b strings.Builder
	b.WriteString("# Every key of keep.toml\n\nThe keys that keep.toml takes, with their types and defaults. An unknown key is an error.\n" +
		"`keep guide --schema keep` prints the same as a JSON Schema, `--schema pack` that of packs, `--schema pairing` that of pairings.\n")
	x := referrer{b: &b, definitions: schema["definitions"].(map[string]any), written: map[string]bool{}}
	x.table("the top level", schema)
	x.tables("", schema)
	for _, name := range slices.Sorted(maps.Keys(x.definitions)) {
		if kind, ok := strings.CutPrefix(name, "connection."); ok {
			title := fmt.Sprintf("[connections.NAME] with connector = %q", kind)
			if kind == "pack" {
				title = "[connections.NAME] with a pack as connector"
			}
			x.written[name] = true
			x.table(title, x.definitions[name].(map[string]any))
		}
	}
	for _, name := range slices.Concat(parts, slices.Sorted(maps.Keys(x.definitions))) {
		if d, ok := x.definitions[name].(map[string]any); ok && !x.written[name] && name != "connection" {
			x.written[name] = true
			x.table(partName(name), d)
		}
	}
	return b.String()
}

// parts are the tables that tools are made of, in the order in which they are explained; what else is a part of
// something follows them.
var parts = []string{"Tool", "Token", "Append", "Reconcile", "Pages", "Condition", "OnResend", "Start", "Gone", "Mail"}

// partName is what a table is called that is a part of others: as in Go, but for what says nothing to people.
func partName(definition string) string {
	switch definition {
	case "ToolConfig":
		return "MCPTool"
	case "LookupConfig":
		return "MCPReconcile"
	case "TokenConfig":
		return "MCPToken"
	case "PackClient":
		return "Client"
	case "gatewayToolTable":
		return "GatewayTool"
	case "priceTable":
		return "Price"
	}
	return definition
}

// A referrer writes tables of keys.
type referrer struct {
	b           *strings.Builder
	definitions map[string]any
	written     map[string]bool // definitions that have their section
}

// table writes the keys of one table.
func (x *referrer) table(title string, schema map[string]any) {
	heading := map[string]string{"Tool": "[connections.NAME.tools.TOOL]"}[title]
	heading = cmp.Or(heading, title)
	fmt.Fprintf(x.b, "\n## %s\n\n", heading)
	properties := schema["properties"].(map[string]any)
	for _, key := range slices.Sorted(maps.Keys(properties)) {
		p := properties[key].(map[string]any)
		if p["properties"] != nil {
			continue // a table of its own
		}
		fmt.Fprintf(x.b, "- `%s` (%s", key, x.kind(p))
		if d := p["default"]; d != nil {
			text, _ := json.Marshal(d)
			fmt.Fprintf(x.b, ", default `%s`", text)
		}
		x.b.WriteString(")")
		if d, _ := p["description"].(string); d != "" {
			x.b.WriteString(": " + strings.TrimSuffix(d, ".") + ".")
		}
		x.b.WriteString("\n")
	}
}

// tables writes the tables below a table.
func (x *referrer) tables(at string, schema map[string]any) {
	properties := schema["properties"].(map[string]any)
	for _, key := range slices.Sorted(maps.Keys(properties)) {
		p, name := properties[key].(map[string]any), strings.TrimPrefix(at+"."+key, ".")
		if p["properties"] != nil {
			x.table("["+name+"]", p)
			x.tables(name, p)
			continue
		}
		of, _ := p["additionalProperties"].(map[string]any)
		if ref, _ := of["$ref"].(string); ref != "" && name != "connections" {
			x.written[path.Base(ref)] = true
			x.table("["+name+".NAME]", x.definitions[path.Base(ref)].(map[string]any))
		}
	}
}

// kind says what a value is.
func (x *referrer) kind(p map[string]any) string {
	if all, ok := p["allOf"].([]any); ok {
		return x.kind(all[0].(map[string]any))
	}
	if some, ok := p["anyOf"].([]any); ok {
		var out []string
		values, few := some[0].(map[string]any)["enum"].([]string)
		for _, v := range values {
			out = append(out, fmt.Sprintf("%q", v))
		}
		for i := 0; !few && i < len(some); i++ {
			out = append(out, x.kind(some[i].(map[string]any)))
		}
		return strings.Join(out, " or ")
	}
	if ref, _ := p["$ref"].(string); ref != "" {
		return "table " + partName(path.Base(ref))
	}
	switch p["type"] {
	case "array":
		return "list of " + plural(x.kind(p["items"].(map[string]any)))
	case "object":
		if of, ok := p["additionalProperties"].(map[string]any); ok {
			return "table of " + plural(x.kind(of))
		}
		return "table"
	case "string":
		if form, _ := p["pattern"].(string); strings.Contains(form, "KiB") {
			return "size"
		} else if form != "" {
			return "duration"
		}
		return "text"
	case "boolean":
		return "true or false"
	case "integer", "number":
		return "number"
	}
	return "any value"
}

func plural(s string) string {
	if strings.Contains(s, " ") {
		return s
	}
	return s + "s"
}

// scripts returns the section about what a script can use.
func scripts() string {
	var b strings.Builder
	b.WriteString("# Everything a script can use\n\nThe types of scripts, which calls each phase may make, and the limits. `keep types` prints the same types with\n" +
		"the tools of the project's connections.\n\n## Calls by phase\n\n| |")
	for _, c := range policy.Calls() {
		fmt.Fprintf(&b, " %s |", c)
	}
	b.WriteString("\n| --- |" + strings.Repeat(" --- |", len(policy.Calls())) + "\n")
	for _, p := range policy.Places() {
		fmt.Fprintf(&b, "| %s |", p)
		for _, c := range policy.Calls() {
			fmt.Fprintf(&b, " %s |", map[bool]string{true: "yes", false: ""}[policy.Allowed(p, c)])
		}
		b.WriteString("\n")
	}
	l := policy.Default().Limits
	fmt.Fprintf(&b, "\n`ctx.log` and `ctx.now` are allowed everywhere. A call that is not allowed fails the run as a mistake of the script.\n\n"+
		"## Limits\n\n- payload of an event, and params of a call: %d bytes\n- events that one run reserves: %d\n- events that one run publishes: %d, of %d bytes together\n"+
		"- a checkpoint value: %d bytes; all of a producer: %d\n- events of one peek: %d\n- log of one run: %d lines, %d bytes\n\n"+
		"Memory, time and calls of a phase: `[sandbox]` of keep.toml.\n\n## Types\n\n```ts\n%s```\n",
		l.Payload, l.Reservations, l.Publishes, l.PublishBytes, l.KVValue, l.KVTotal, l.Peek, l.LogLines, l.LogBytes, workflow.Types(nil))
	return b.String()
}

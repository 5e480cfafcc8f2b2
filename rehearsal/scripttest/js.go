package scripttest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/keep-run/keep/law/given"
	"github.com/keep-run/keep/script/sandbox"
)

// scriptSuffixes end the names of files of tests in JavaScript and TypeScript.
var scriptSuffixes = []string{".test.js", ".test.ts"}

// IsScript reports whether a file of tests is in JavaScript or TypeScript: ReadScript reads it.
func IsScript(name string) bool {
	return slices.ContainsFunc(scriptSuffixes, func(s string) bool { return strings.HasSuffix(name, s) })
}

// collect hands what a file of tests exports to the sandbox as if it were a workflow.
const collect = "\n__keep_module = { default: Keep.workflow({ script: __keep_module.script, test: __keep_module.default }) };\n"

// ReadScript is ReadFile for tests in JavaScript or TypeScript: their default export is the list
// of tests, with the keys of [[test]], and the export script is the file of their script. It is
// evaluated once, in the sandbox: it imports only what is below root, and reaches nothing outside.
// What is wrong with its code is an error of the sandbox.
func ReadScript(ctx context.Context, rt *sandbox.Runtime, root, name string) (*File, error) {
	abs, err := filepath.Abs(name)
	if err != nil {
		return nil, err
	}
	b, err := sandbox.Build(root, abs)
	if err != nil {
		return nil, err
	}
	b.Code = append(bytes.Clone(b.Code), collect...)
	p, err := rt.Load(ctx, b)
	if err != nil {
		return nil, err
	}
	declaration := p.Declaration()
	if err := p.Close(); err != nil {
		return nil, err
	}
	f, err := parseDeclared(declaration, func(test string) int { return lineOf(b.Files[b.Entry], test) })
	if err != nil {
		return nil, fmt.Errorf("%s:%w", name, err)
	}
	return f, f.locate(name)
}

// parseDeclared checks what a file of tests exports. Errors begin as those of Parse.
func parseDeclared(declaration json.RawMessage, line func(test string) int) (*File, error) {
	var exported struct {
		Script any
		Test   []json.RawMessage
	}
	var whole map[string]any
	if err := json.Unmarshal(declaration, &whole); err != nil {
		return nil, err
	}
	if _, ok := whole["test"].([]any); !ok || json.Unmarshal(declaration, &exported) != nil {
		return nil, errors.New(" the default export is no list of tests: write export default [{ name: \"…\", handler: \"…\", … }]")
	}
	f := &File{}
	if exported.Script != nil {
		s, ok := exported.Script.(string)
		if !ok || s == "" {
			return nil, errors.New(" the export script is no name of a file")
		}
		f.Script = s
	}
	for i, raw := range exported.Test {
		t, err := parseTest(raw)
		if err != nil {
			at := " "
			if n := line(t.Name); n > 0 {
				at = fmt.Sprintf("%d: ", n)
			}
			return nil, fmt.Errorf("%stest %d (%s): %w", at, i+1, t.Name, err)
		}
		f.Tests = append(f.Tests, t)
	}
	return f, nil
}

func parseTest(raw json.RawMessage) (Test, error) {
	var named struct{ Name string }
	_ = json.Unmarshal(raw, &named) // what is wrong is said below
	t := Test{Name: named.Name}
	var tree any
	if err := json.Unmarshal(raw, &tree); err != nil {
		return t, err
	}
	if err := plainData(tree, ""); err != nil {
		return t, err
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	var strict Test
	if err := d.Decode(&strict); err != nil {
		if wrong := given.Mismatch(raw, &strict); wrong != nil {
			return t, wrong
		}
		return t, errors.New(strings.TrimPrefix(strings.Replace(err.Error(), "unknown field", "unknown key", 1), "json: "))
	}
	return strict, strict.validate()
}

// plainData refuses what is no data: a test says what happens, and does nothing.
func plainData(v any, path string) error {
	switch v := v.(type) {
	case []any:
		for i, x := range v {
			if err := plainData(x, fmt.Sprintf("%s[%d]", path, i)); err != nil {
				return err
			}
		}
	case map[string]any:
		if _, is := v["$function"]; is {
			return fmt.Errorf("%s is a function; tests are data", path)
		}
		if kind, is := v["$type"]; is {
			return fmt.Errorf("%s is a %v, which is no data; write it as text, or as what JSON has", path, kind)
		}
		for k, x := range v {
			if err := plainData(x, strings.TrimPrefix(path+"."+k, ".")); err != nil {
				return err
			}
		}
	}
	return nil
}

// lineOf returns the line on which a test is named; 0 if the name is put together.
func lineOf(source []byte, name string) int {
	if name == "" {
		return 0
	}
	quoted, err := json.Marshal(name)
	if err != nil {
		return 0
	}
	for _, spelled := range []string{string(quoted), "'" + name + "'", "`" + name + "`"} {
		if i := bytes.Index(source, []byte(spelled)); i >= 0 {
			return 1 + bytes.Count(source[:i], []byte("\n"))
		}
	}
	return 0
}

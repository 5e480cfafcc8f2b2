package sandbox_test

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"strings"
	"testing"

	"github.com/keep-run/keep/script/sandbox"
)

// What a script says of its own source map counts for nothing: no file is read for it, and what people are shown, of files and
// of places, is what was bundled. Laws: no-ambient-power, explained.
func TestSourceMapOfTheScript(t *testing.T) {
	t.Parallel()
	outside := project(t, map[string]string{"secret.txt": "the key of the bank", "secret.map": `{"version":3,"sources":["key.js"],"sourcesContent":["the key of the bank"],"names":[],"mappings":"AAAA"}`})
	address := func(name string) string {
		return (&url.URL{Scheme: "file", Path: filepath.ToSlash(filepath.Join(outside, name))}).String()
	}
	inline := func(source, content string) string {
		text, err := json.Marshal(map[string]any{"version": 3, "sources": []string{source}, "sourcesContent": []any{nil}, "names": []string{}, "mappings": "AAAA;AAAA;AAAA;AAAA"})
		if err != nil {
			t.Fatal(err)
		}
		if content != "" {
			text = []byte(strings.Replace(string(text), "[null]", fmt.Sprintf("[%q]", content), 1))
		}
		return "data:application/json;base64," + base64.StdEncoding.EncodeToString(text)
	}
	const code = "import { b } from './b';\nexport default [b, '//# sourceMappingURL=x'];\n"
	clean, err := sandbox.BuildFiles("flow.js", map[string][]byte{"flow.js": []byte(code), "b.ts": []byte("export const b: number = 1;\n")})
	if err != nil {
		t.Fatal(err)
	}
	for what, where := range map[string]string{"a file": inline(address("secret.txt"), ""), "a map": address("secret.map"), "other text": inline("flow.js", "it sends nothing")} {
		for _, form := range []string{"//# sourceMappingURL=%s\n", "//@ sourceMappingURL=%s", "/*# sourceMappingURL=%s */", "//# sourceMappingURL=%s\n//# sourceMappingURL=none:x\n/* the end */ // of it"} {
			comment := fmt.Sprintf(form, where)
			files := map[string]string{"flow.js": code + comment, "b.ts": comment + "\nexport const b: number = 1;\n"}
			fromMemory := make(map[string][]byte)
			for name, text := range files {
				fromMemory[name] = []byte(text)
			}
			there, err := sandbox.Build(project(t, files), "flow.js")
			if err != nil {
				t.Fatal(err)
			}
			here, err := sandbox.BuildFiles("flow.js", fromMemory)
			if err != nil {
				t.Fatal(err)
			}
			for _, b := range []*sandbox.Bundle{there, here} {
				var m struct{ Sources, SourcesContent []string }
				if err := json.Unmarshal(b.Map, &m); err != nil {
					t.Fatal(err)
				}
				if b.Hash() != clean.Hash() || len(m.Sources) != 2 {
					t.Errorf("%s, %.20q: %d sources, and the hash %s", what, form, len(m.Sources), b.Hash())
				}
				for i, name := range m.Sources {
					if m.SourcesContent[i] != files[name] {
						t.Errorf("%s, %.20q: %s is shown as %q", what, form, name, m.SourcesContent[i])
					}
				}
			}
		}
	}
}

// What is missing at the end of a script is missing in its last line.
func TestEndOfTheScriptHasAPlace(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]struct {
		line, column int
		source       string
	}{
		"export default {\n":           {2, 1, ""},
		"export default {":             {1, 17, "export default {"},
		"export default {\r\n  // x\r": {3, 1, ""},
		"export default `\u2028  a":    {2, 4, "  a"},
		"export default 1; /* a\nb":    {2, 2, "b"},
		"":                             {},
	} {
		_, err := sandbox.BuildSource("a.js", []byte(text))
		e, ok := errors.AsType[*sandbox.BuildError](err)
		if text == "" && err == nil {
			continue
		}
		if !ok {
			t.Errorf("%q: %v", text, err)
			continue
		}
		if p := e.Problems[0]; p.Line != want.line || p.Column != want.column || p.Source != want.source {
			t.Errorf("%q: %d:%d, %q; want %d:%d, %q", text, p.Line, p.Column, p.Source, want.line, want.column, want.source)
		}
	}
}

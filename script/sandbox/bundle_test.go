package sandbox_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/keep-run/keep/script/sandbox"
)

// project writes files into a new directory and returns it.
func project(tb testing.TB, files map[string]string) string {
	tb.Helper()
	dir := tb.TempDir()
	for name, text := range files {
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			tb.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			tb.Fatal(err)
		}
	}
	return dir
}

func TestBuildFollowsLocalImports(t *testing.T) {
	dir := project(t, map[string]string{
		"flows/a.ts":         "import { b } from './lib/b';\nimport { c } from '../shared/c.js';\nimport data from './data.json';\nimport { d } from './dir';\nimport type { T } from 'some-package';\nimport { e } from './lib/e.mjs';\nexport default Keep.workflow({ name: 'a', f(ctx: T) { return [b, c, data.n, d, e] } });\n",
		"flows/lib/b.ts":     "export const b: number = 1;\n",
		"shared/c.ts":        "export const c = 2 as const;\n",
		"flows/data.json":    `{"n":3}`,
		"flows/dir/index.js": "export const d = 4;\n",
		"flows/lib/e.mjs":    "export const e = 5;\n",
		"tsconfig.json":      `{"compilerOptions":{"paths":{"./lib/b":["/etc/passwd"]}, "target":"es5"}}`,
	})
	b, err := sandbox.Build(dir, "flows/a.ts")
	if err != nil {
		t.Fatal(err)
	}
	if b.Entry != "flows/a.ts" {
		t.Errorf("Entry = %q, want flows/a.ts", b.Entry)
	}
	rt := openRuntime(t, sandbox.Config{})
	p, err := rt.Load(t.Context(), b)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := call(p, nil); got != "[1,2,3,4,5]" || err != nil {
		t.Errorf("call = %s, %v, want [1,2,3,4,5]", got, err)
	}
	abs, err := sandbox.Build(dir, filepath.Join(dir, "flows", "a.ts"))
	if err != nil || abs.Hash() != b.Hash() || !bytes.Equal(abs.Map, b.Map) {
		t.Errorf("Build with an absolute path differs: %v", err)
	}
	if bytes.Contains(b.Code, []byte(dir)) || bytes.Contains(b.Map, []byte(dir)) {
		t.Errorf("the bundle names the directory %s", dir)
	}
}

func TestBuildRefuses(t *testing.T) {
	outside := project(t, map[string]string{"secret.js": "export const s = 1;"})
	dir := project(t, map[string]string{
		"package.js": "\nimport x from 'lodash';\nimport '@scope/pkg/file';",
		"node.js":    "import fs from 'node:fs';\nconst p = require('path');\nimport 'fs/promises'",
		"url.js":     "import 'https://example.com/x.js';\nimport('data:text/javascript,1')",
		"up.js":      "import '../x.js'",
		"abs.js":     "import '/etc/passwd'",
		"link.js":    "import './inside/secret.js'",
		"linked.js":  "import './secret-link.js'",
		"missing.js": "import './nope'",
		"css.js":     "import './style.css'",
		"dir.js":     "import './sub'",
		"sub/x.txt":  "",
		"style.css":  "a {}",
		"syntax.ts":  "const a: = 1;\nlet b = ;\n",
		"await.ts":   "const x = await 1; export default x",
		"large.js":   "//" + strings.Repeat("x", 3<<20),
		"dynamic.js": "const n = 'x'; import(n)",
	})
	if err := os.Symlink(outside, filepath.Join(dir, "inside")); err != nil {
		t.Skipf("no symbolic links here: %v", err)
	}
	if err := os.Symlink(filepath.Join(outside, "secret.js"), filepath.Join(dir, "secret-link.js")); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ entry, want string }{
		{"package.js", `package.js:2:15: import "lodash": scripts cannot use packages; copy the code into the project and import it as "./lodash"` + "\n" + `package.js:3:8: import "@scope/pkg/file": scripts cannot use packages; copy the code into the project and import it as "./file"`},
		{"node.js", `node.js:1:16: import "node:fs": scripts have no built-in modules of Node` + "\n" + `node.js:2:19: import "path": scripts have no built-in modules of Node` + "\n" + `node.js:3:8: import "fs/promises": scripts have no built-in modules of Node`},
		{"up.js", `up.js:1:8: import "../x.js": leaves the project directory`},
		{"abs.js", `abs.js:1:8: import "/etc/passwd": imports must be relative ("./…")`},
		{"link.js", `link.js:1:8: import "./inside/secret.js": inside/secret.js leaves the project directory through a symbolic link`},
		{"linked.js", `linked.js:1:8: import "./secret-link.js": secret-link.js leaves the project directory through a symbolic link`},
		{"missing.js", `missing.js:1:8: import "./nope": no such file in the project`},
		{"css.js", `css.js:1:8: import "./style.css": style.css: a script is a .js or .ts file, not ".css"`},
		{"dir.js", `dir.js:1:8: import "./sub": no such file in the project`},
		{"sub", `sub: sub: a script is a .js or .ts file, not ""`},
		{"nope.js", `nope.js: nope.js does not exist`},
		{"../x.js", `../x.js: leaves the project directory`},
		{"large.js", `large.js: large.js is larger than 2 MiB`},
		{"syntax.ts", "syntax.ts:1:10: Unexpected \"=\""},
		{"await.ts", `await.ts:1:11: Top-level await is currently not supported with the "iife" output format`},
		{"url.js", `url.js:1:8: import "https://example.com/x.js": scripts cannot load code from a URL` + "\n" + `url.js:2:8: import "data:text/javascript,1": scripts cannot load code from a URL`},
	} {
		_, err := sandbox.Build(dir, tt.entry)
		e, ok := errors.AsType[*sandbox.BuildError](err)
		if !ok || e.Error() != tt.want {
			t.Errorf("Build(%s):\n%v, want\n%s", tt.entry, err, tt.want)
			continue
		}
		if e.Problems[0].Line > 0 && e.Problems[0].Source == "" {
			t.Errorf("Build(%s): no source line", tt.entry)
		}
	}
	if _, err := sandbox.BuildSource("a.ts", []byte("import './b'")); err == nil || !strings.Contains(err.Error(), "single file") {
		t.Errorf("BuildSource with an import: %v, want one about a single file", err)
	}
}

func TestBuildIsReproducible(t *testing.T) {
	src := []byte("export default Keep.workflow({ name: 'a' })")
	a, err := sandbox.BuildSource("a.ts", src)
	if err != nil {
		t.Fatal(err)
	}
	b, err := sandbox.BuildSource("a.ts", src)
	if err != nil || a.Hash() != b.Hash() || len(a.Hash()) != 64 {
		t.Errorf("hashes %s and %s, %v, want the same 64 digits", a.Hash(), b.Hash(), err)
	}
	c, err := sandbox.BuildSource("a.ts", append(src, "; console.log(1)"...))
	if err != nil || a.Hash() == c.Hash() {
		t.Errorf("other code has the same hash: %v", err)
	}
}

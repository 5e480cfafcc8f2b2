package sandbox_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/keep-run/keep/script/sandbox"
)

// No import reads, or lists, what lies beside the process or out of the project, whatever a script computes of its name. Law: no-ambient-power.
func TestComputedImport(t *testing.T) {
	t.Parallel()
	outside := project(t, map[string]string{"secret.json": `"the key of the bank" of mine`, "secret.go": "", "secret.txt": "the key of the bank"})
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	away, err := filepath.Rel(here, outside)
	if err != nil {
		t.Skipf("no way from here to %s: %v", outside, err) // another volume
	}
	dir := "./" + filepath.ToSlash(away) + "/"
	for _, form := range []string{
		"export default [import('%s' + globalThis.x)];", "export default [import(/* a */ `%s${globalThis.x}.json`)];",
		"export default [require('%s' + globalThis.x)];", "export default [r\\u0065quire(`%s${globalThis.x}`)];",
		"export default [import\n('%s' + globalThis.x + '.txt')];", "export default [import/* ( */('%s' + globalThis.x)];",
		"if (false) require(('%s') + globalThis.x); export default 1", "try { require(globalThis.y ? '%s' + y : 'b') } catch {} export default 1",
		"enum E { a = '%s' } export default [import(E.a + globalThis.x)];", "export default [import('%s' + globalThis.x, { with: { type: 'json' } })];",
		"export default [import\u2003('%s' + globalThis.x)];", "export default [import.defer('%s' + globalThis.x)];",
		"enum E { a = '%s', b = require(a + x) } export default E", "const a = '%s'; export default [import(a + globalThis.x)];",
		"x = 1;\nimport(y)\u2028export default [import('%s' + globalThis.x)];", "import(y), import('%s' + globalThis.x); export default 1",
		"export default [import('.' + ('/' + '%s' + globalThis.x))];",
	} {
		code := fmt.Sprintf(form, dir)
		for _, files := range []map[string]string{{"flow.ts": code}, {"flow.ts": "export { default } from './b'", "b.ts": code}} {
			fromMemory := make(map[string][]byte)
			for name, text := range files {
				fromMemory[name] = []byte(text)
			}
			b, err := sandbox.BuildFiles("flow.ts", fromMemory)
			wrong, ok := errors.AsType[*sandbox.BuildError](err)
			if !ok {
				t.Errorf("%s: bundled as %v, %v, want a BuildError", code, b, err)
				continue
			}
			for _, p := range wrong.Problems {
				if shown := p.String() + p.Source; strings.Contains(strings.ReplaceAll(shown, dir, ""), "secret") || strings.Contains(shown, "the key") || p.Line == 0 {
					t.Errorf("%s: %s\n%s", code, p, p.Source)
				}
			}
		}
	}
}

// What only looks like a computed import is none.
func TestImportOfAName(t *testing.T) {
	t.Parallel()
	for _, code := range []string{
		"import { b } from './b'; export default [b, \"import('./' + x)\", '\\u0061'];", "// import('./' + x)\nexport { b as default } from './b';",
		"export default [import('./b'), import(`./b`), require('./b')];", "export default { import(x) { return x }, require: (x) => x }.import(1);",
		"const b = './b'; export default () => [import(b), require( b )];", "const require = (x) => x; export default require('./' + globalThis.x);", "export default [/import(.\\/a)/, import.meta]",
	} {
		if _, err := sandbox.BuildFiles("flow.ts", map[string][]byte{"flow.ts": []byte(code), "b.ts": []byte("export const b = 1")}); err != nil {
			t.Errorf("%s: %v", code, err)
		}
	}
}

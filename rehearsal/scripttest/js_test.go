package scripttest_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/keep-run/keep/rehearsal/scripttest"
)

// Tests in JavaScript are the same as those in TOML.
func TestReadScript(t *testing.T) {
	t.Parallel()
	cfg := config(t)
	rt, err := sharedRuntime()
	if err != nil {
		t.Fatal(err)
	}
	const one = `import { order } from "./lib/order.js";
const made = [1, 2, 3].map((n) => ({ name: "order " + n, handler: "send", events: [order(n)],
  answer: [{ tool: "shop.send", says: "applied", result: { ref: null, n } }],
  expect: { calls: [{ tool: "shop.send", params: { id: "o" + n, amount: n } }], questions: [] } }));
export default [...made, { name: "a call too many", handler: "send", now: "2026-01-01T00:00:00Z", events: [order(1)], expect: { calls: [] } }];
`
	for _, test := range []struct {
		name, text string
		want       string // part of the error; empty: it is read
	}{
		{"data", one, ""},
		{"typescript", one, ""},
		{"no default export", "export const a = 1;", "write export default ["},
		{"no list", "export default { name: 'a' };", "write export default ["},
		{"a key that there is not", "export default [\n  { name: 'a' },\n  { name: 'b', handlr: 'send' }];", `orders.test.js:3: test 2 (b): unknown key "handlr"`},
		{"a function", "export default [{ name: 'a', expect: { calls: [{ params: () => 1 }] } }];", "orders.test.js:1: test 1 (a): expect.calls[0].params is a function"},
		{"a date", "export default [{ name: 'a', now: new Date(0) }];", "now is a Date"},
		{"another type", "export default [{ name: 'a', handler: 7 }];", "handler: want a text, got the number 7"},
		{"no name", "export default [{ handler: 'send' }];", "test 1 (): name required"},
		{"throws", "export default [];\n\nthrow new Error('no');", "orders.test.js:3:"},
		{"does not parse", "export default [", "orders.test.js:1:"},
		{"reaches outside", "export default [{ name: String(fetch('http://127.0.0.1')) }];", "fetch is not defined"},
		{"imports what is outside", "import x from '../../x.js'; export default [];", "orders.test.js:1:"},
		{"script of another name", "export const script = 'none.js'; export default [];", "none.js"},
	} {
		t.Run(test.name, func(t *testing.T) {
			dir := t.TempDir()
			file := filepath.Join(dir, "orders.test.js")
			if test.name == "typescript" {
				file = filepath.Join(dir, "orders.test.ts")
			}
			for name, text := range map[string]string{file: test.text, filepath.Join(dir, "orders.js"): orders,
				filepath.Join(dir, "lib", "order.js"): `export const order = (n) => ({ topic: "order.new", messageId: "o" + n, payload: { id: "o" + n, amount: n } });`} {
				if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			f, err := scripttest.ReadScript(t.Context(), rt, dir, file)
			if test.want != "" {
				if err == nil || !strings.Contains(err.Error(), test.want) {
					t.Errorf("ReadScript = %v, want %q", err, test.want)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if len(f.Tests) != 4 || filepath.Base(f.Script) != "orders.js" {
				t.Fatalf("%d tests of %s", len(f.Tests), f.Script)
			}
			for i, test := range f.Tests {
				v, err := scripttest.Run(t.Context(), cfg, test)
				if err != nil {
					t.Fatal(err)
				}
				if passed := len(v.Problems) == 0; passed != (i < 3) {
					t.Errorf("%s: %q", v.Name, v.Problems)
				}
			}
		})
	}
}

package sandbox_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/keep-run/keep/internal/ceiling"
	"github.com/keep-run/keep/script/sandbox"
)

// nest returns open n times, inner, and end n times.
func nest(open, inner, end string, n int) string {
	return strings.Repeat(open, n) + inner + strings.Repeat(end, n)
}

// numbered returns what f makes of 0 to n-1.
func numbered(n int, f string) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, f, i)
	}
	return b.String()
}

// greedy are scripts of up to a megabyte that overflow the stack of a parser, take
// much memory, or much time, each in a way of its own.
func greedy() []struct{ name, file, code string } {
	const n = 300_000
	return []struct{ name, file, code string }{
		{"brackets", "w.js", strings.Repeat("[", 1<<20)},
		{"closed brackets", "w.js", "x = " + nest("[", "", "]", n)},
		{"braces", "w.js", nest("{", "", "}", n)},
		{"objects", "w.js", "x = " + nest("{a:", "1", "}", n/2)},
		{"parens", "w.js", "x = " + nest("(", "1", ")", n)},
		{"unary", "w.js", "x = " + strings.Repeat("!", 1<<20) + "1"},
		{"typeof", "w.js", "x = " + strings.Repeat("typeof ", n/2) + "1"},
		{"template", "w.js", "x = " + nest("`${", "1", "}`", n/2)},
		{"arrows", "w.ts", "x = " + strings.Repeat("a=>", n) + "1"},
		{"few arrows", "w.ts", "x = " + strings.Repeat("a=>", 1500) + "1"},
		{"ternary", "w.js", "x = " + strings.Repeat("a?b:", n/2) + "1"},
		{"assignments", "w.js", "x = " + strings.Repeat("a=", n) + "1"},
		{"powers", "w.js", "x = " + strings.Repeat("a**", n) + "1"},
		{"commas", "w.js", "x=1" + strings.Repeat(",1", 1<<19)},
		{"commas in brackets", "w.js", "x=a[1" + strings.Repeat(",1", 1<<19) + "]"},
		{"properties", "w.js", "x = a" + strings.Repeat(".a", n)},
		{"calls", "w.js", "x = a" + strings.Repeat("()", n)},
		{"jsx", "w.js", "x = " + nest("<a>", "", "</a>", n/4)},
		{"types", "w.ts", "let x: " + nest("A<", "b", ">", n)},
		{"keyof", "w.ts", "let x: " + strings.Repeat("keyof ", n/2) + "a"},
		{"comments", "w.js", "x = " + nest("/*a*/[", "", "]", n/4)},
		{"regular expressions", "w.js", "x = " + nest("/]/,[", "", "]", n/4)},
		{"ifs", "w.js", strings.Repeat("if(a)", n/2) + "b"},
		{"elses", "w.js", strings.Repeat("if(a)b;else\n", n/4) + "b"},
		{"labels", "w.js", numbered(n/4, "a%d:\n") + "b"},
		{"functions", "w.js", nest("function f(){", "", "}", n/8)},
		{"classes", "w.js", "x = " + nest("class extends ", "a", "{}", n/8)},
		{"namespaces", "w.ts", "namespace a" + strings.Repeat(".a", 5000) + "{export let x=1}"},
		{"cases", "w.js", "switch(a){" + strings.Repeat("case 1:", n/4) + "}"},
		{"JSON", "w.json", nest("[", "", "]", n)},
		{"one line", "w.js", strings.Repeat("x", 5<<20)},
	}
}

// A script that would overflow the bundler's stack, or take it more memory or time
// than a limit, is refused with its file; this process stays small and lives.
func TestGreedySource(t *testing.T) {
	ceiling.Need(t)
	const limit = 3 * time.Second
	defer sandbox.SetBundlerTime(limit)()
	const allowed = limit + 3*time.Second // on a busy machine
	before := resident(t)
	for _, g := range greedy() {
		t.Run(g.name, func(t *testing.T) {
			start := time.Now()
			files := map[string][]byte{g.file: []byte(g.code)}
			entry := g.file
			if g.file == "w.json" {
				entry = "w.js"
				files[entry] = []byte("import x from './w.json'; export default x")
			}
			_, err := sandbox.BuildFiles(entry, files)
			e, ok := errors.AsType[*sandbox.BuildError](err)
			if err != nil && (!ok || len(e.Problems) == 0 || e.Problems[0].File == "") {
				t.Errorf("error %v, want a *BuildError with a file", err)
			}
			if took := time.Since(start); took > allowed {
				t.Errorf("it took %v, want at most %v", took, allowed)
			}
			t.Logf("%v: %.200v", time.Since(start).Round(time.Millisecond), err)
		})
	}
	if grown := resident(t) - before; grown > 256<<20 {
		t.Errorf("this process has grown by %d MiB, want at most 256", grown>>20)
	}
	if _, err := sandbox.BuildSource("good.js", []byte("export default Keep.workflow({ name: 'good' })")); err != nil {
		t.Errorf("a good script afterwards: %v", err)
	}
}

// A script whose bundle would be gigabytes, of the white space before each line, is
// refused by the memory that it takes.
func TestGreedyMemory(t *testing.T) {
	ceiling.Need(t)
	defer sandbox.SetBundlerTime(10 * time.Minute)() // memory is to be what refuses it, on a busy machine too
	_, err := sandbox.BuildSource("w.js", []byte(nest("{", strings.Repeat("a;", 1<<18), "}", 1900)))
	if e, ok := errors.AsType[*sandbox.BuildError](err); !ok || !strings.Contains(e.Error(), "512 MiB of memory") {
		t.Errorf("error %v, want that it takes too much memory", err)
	}
}

// What stands in front of it does not hide that a script is deep: a comment ends where the compiler ends it, and a
// regular expression begins where it does.
func TestHiddenDepth(t *testing.T) {
	for _, front := range []string{"", "//\r", "//\u2028", "//\u2029", "class A extends /'/ {};", "export default /'/;"} {
		_, err := sandbox.BuildSource("w.js", []byte(front+"x="+nest("[", "1", "]", 2100)))
		if err == nil || !strings.Contains(err.Error(), "nested deeper than 2000 levels") {
			t.Errorf("behind %q: %.200v, want that it is too deep", front, err)
		}
	}
}

// resident returns the memory that this process takes; 0 if the system does not tell.
func resident(t *testing.T) int {
	t.Helper()
	text, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0
	}
	var pages, rss int
	if _, err := fmt.Sscan(string(text), &pages, &rss); err != nil {
		t.Fatal(err)
	}
	return rss * os.Getpagesize()
}

// Scripts that are long, and not deep, are bundled.
func TestLongSourceIsBundled(t *testing.T) {
	defer sandbox.SetBundlerTime(10 * time.Minute)() // how long it takes on a busy machine is not asked
	n := 20_000                                      // test.sh has them without the race detector, too
	if ceiling.Race {
		n = 2000
	}
	for _, c := range []struct{ name, file, code string }{
		{"statements", "w.js", strings.Repeat("x = f(1) + 2;\n", n)},
		{"statements without semicolons", "w.js", "let x\n" + strings.Repeat("x = f(1) + 2\nf()\n", n)},
		{"array", "w.js", "export const x = [" + strings.Repeat("1, 'a', -2.5,\n", n) + "]"},
		{"array of objects", "w.js", "export const x = [" + strings.Repeat("{ a: 1, 'b c': [2], d: { e } },\n", n) + "]"},
		{"object", "w.js", "export const x = {" + numbered(n, "a%d: 1,\n// one (of [ them\n'b.%[1]d': `}${1}{`,\n") + "}"},
		{"functions", "w.js", numbered(n, "function f%d(a, b) {\n  if (a) return b / 2 / a\n  return /[{(]/.test(a)\n}\n")},
		{"class", "w.ts", "export class A {\n" + numbered(n/10, "  private a%d?: Map<string, number[]> = new Map()\n  get b%[1]d() { return 1 }\n") + "}"},
		{"else ifs", "w.js", "if (a) b()\n" + strings.Repeat("else if (a) {\n  b()\n}\n", 500)},
		{"interfaces", "w.ts", numbered(n/10, "interface A%d { a: string; b?: number }\ntype B%[1]d = A%[1]d | keyof A%[1]d\n")},
		{"nested", "w.js", "export const x = " + nest("[", "1", "]", 1990)},
	} {
		t.Run(c.name, func(t *testing.T) {
			if _, err := sandbox.BuildSource(c.file, []byte(c.code)); err != nil {
				t.Errorf("%.300v", err)
			}
		})
	}
}

// The limit of nesting has a place.
func TestNestingHasAPlace(t *testing.T) {
	_, err := sandbox.BuildSource("w.js", []byte("const a = 1;\nconst b = "+strings.Repeat("[", 3000)))
	e, ok := errors.AsType[*sandbox.BuildError](err)
	if !ok || e.Problems[0].Line != 2 || e.Problems[0].Column != 2011 || !strings.Contains(e.Problems[0].Text, "deeper than 2000 levels") {
		t.Errorf("error %v, want a place in line 2", err)
	}
}

// What is bundled in this process is bundled in another one in the same way.
func TestBundlersAgree(t *testing.T) {
	dir := project(t, map[string]string{"a.ts": "import { b } from './b'\nexport default Keep.workflow({ name: b })", "b.js": "export const b = 'x'"})
	defer sandbox.BundleApart()()
	apart, err := sandbox.Build(dir, "a.ts")
	if err != nil {
		t.Fatal(err)
	}
	defer sandbox.BundleHere()()
	here, err := sandbox.Build(dir, "a.ts")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(here.Code, apart.Code) || !bytes.Equal(here.Map, apart.Map) || len(here.Files) != 2 || !bytes.Equal(here.Files["b.js"], apart.Files["b.js"]) {
		t.Errorf("bundles differ:\n%s\nand\n%s", here.Code, apart.Code)
	}
}

// In this process, too, brackets cannot overflow the stack.
func TestNestingIsRefusedHere(t *testing.T) {
	defer sandbox.BundleHere()()
	for _, g := range greedy() {
		switch g.name {
		case "brackets", "closed brackets", "braces", "objects", "parens", "unary", "typeof", "template", "arrows", "ternary", "assignments",
			"properties", "calls", "types", "keyof", "comments", "ifs", "elses", "labels", "functions", "classes", "cases", "commas", "commas in brackets", "JSON":
			entry, files := g.file, map[string][]byte{g.file: []byte(g.code)}
			if g.file == "w.json" {
				entry = "w.js"
				files[entry] = []byte("import x from './w.json'; export default x")
			}
			if _, err := sandbox.BuildFiles(entry, files); err == nil || !strings.Contains(err.Error(), "nested ") {
				t.Errorf("%s: error %.300v, want that it is nested too deeply", g.name, err)
			}
		}
	}
}

// A script reads no hidden files.
func TestBuildReadsNothingHidden(t *testing.T) {
	dir := project(t, map[string]string{"a.js": "import x from './.secrets/x.json'; export default x", ".secrets/x.json": `"s3cret"`,
		"b.js": "import x from './lib/.x.js'; export default x", "lib/.x.js": "export default 1"})
	for _, entry := range []string{"a.js", "b.js"} {
		if _, err := sandbox.Build(dir, entry); err == nil || !strings.Contains(err.Error(), "hidden") {
			t.Errorf("%s: error %v, want that it is hidden", entry, err)
		}
	}
}

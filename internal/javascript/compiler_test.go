package javascript_test

import (
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/evanw/esbuild/pkg/api"

	"github.com/keep-run/keep/internal/javascript"
)

// A fragment begins a program, in front of a slash; end closes what it opens.
type fragment struct{ text, end string }

// fragments are what a slash means something else behind.
var fragments = func() (list []fragment) {
	for _, text := range []string{
		"a", "a.b", "a.if", "a?.of", "a.return", "this", "1", "1.", ".5", "0x1", "1e+5", "'s'", "`t`", "/r/g", "ctx\u2003", "\\u0061b", "#x", "x.#y",
		"if(a)", "while(a)", "for(;;)", "for(a in b)", "for await(a of b)", "else", "if(a){}else", "do", "do;while(a)", "do a();while(b)", "with(a)", "a.if(b)", "a.for(b)", "f(a)",
		"break", "continue", "debugger", "return", "throw", "case 1:", "default:", "default", "l:", "typeof", "void", "delete", "new", "new.target", "import.meta", "in", "instanceof",
		"of", "await", "yield", "async", "let", "let x", "var x", "var x,y", "const", "using", "static", "get", "set", "extends", "class A extends", "class A{}", "function f(){}", "function f()",
		"a=>", "a=>{}", "()=>", "()=>{}", "(a)", "[a]", "({})", "{}", "a={}", "a[0]", "export", "export default", "export{}", "export*from'a'", "import'a'", "import a from'a'", "import('a')",
		"++", "--", "a++", "a\n++", "!", "a!", "a++!", "-", "+", "~", "*", "**", "%", "=", "==", "!=", "===", ">", "<", ">=", "<=", ">>", ">>>", "&&", "||", "??", "?", "?.", ":", ",", ";", ".", "...", "=>", "@", "&", "|", "^",
		"as any", "a as any", "a as void", "a as B<c>", "a as B[]", "a as B|void", "a as const", "a satisfies B", "a as {b:c}", "a as[b]", "a as()=>void", "a as B.if", "a as'b'", "a as`b`", "a as-1", "a as typeof b", "a as unique symbol",
		"a as B!", "a as B?", "a as?B", "a as keyof B", "a as B extends C?D:E", "a as import('b')", "a as new()=>B", "a as(b)", "a as this", "a as null", "f<T>", "f<A<B>>", "<T>", "<void>", "a<b", "a<!b", "a<!--b", "-->", "a-->b",
		"type T=X", "type T=X[]", "type T=void", "type T={}", "type T=()=>void", "interface I{}", "enum E{a}", "declare let x", "declare function f()", "abstract class A{}", "let x:T", "let x:T[]", "let x:void", "let x!:T", "namespace N{}",
		"x is", "asserts x", "type", "declare", "abstract", "module", "namespace", "is", "infer", "keyof", "readonly", "accessor", "override", "out", "satisfies", "import a=b", "import a=require('b')", "export=", "export as namespace a",
		"\n", "\r", "\r\n", "\u2028", " ", "\u2003", "\u3000", "\ufeff", "/*c*/", "/*\n*/", "//c\n", "//c\r", "//c\u2029", "#!h\n", "'\\\r\n'", "'\u2028'", "`\\``", "`${a}`", "`${`${a}`}`",
	} {
		list = append(list, fragment{text, ""})
	}
	return append(list, fragment{"(", ")"}, fragment{"[", "]"}, fragment{"{", "}"}, fragment{"if(a){", "}"}, fragment{"f(", ")"}, fragment{"`${", "}`"}, fragment{"function f(){", "}"}, fragment{"async function f(){", "}"},
		fragment{"async()=>{", "}"}, fragment{"function*f(){", "}"}, fragment{"for(;;){", "}"}, fragment{"class A{", "}"}, fragment{"class A{static{", "}}"}, fragment{"class A{b=", "}"}, fragment{"class A{b(){", "}}"}, fragment{"switch(a){", "}"},
		fragment{"({a:", "})"}, fragment{"({a(){", "}})"}, fragment{"({get a(){", "}})"}, fragment{"for(a of", ")b"}, fragment{"for(a in", ")b"}, fragment{"while(", ")b"}, fragment{"a?", ":b"}, fragment{"try{", "}catch{}"}, fragment{"try{}catch{", "}"})
}()

// tail hides .mark if the slash that it begins with divides, and is one more regular expression if not.
const tail = `/[/*]/i;o.mark;/[*/0]/i`

// program returns a program that begins with fragments.
func program(list ...fragment) string {
	var b strings.Builder
	for _, f := range list {
		b.WriteString(f.text + " ")
	}
	text := strings.TrimSuffix(b.String(), " ")
	if last := list[len(list)-1].text; strings.TrimSpace(last) == "" || strings.HasSuffix(last, "*/") || strings.HasPrefix(last, "//") {
		text = strings.ReplaceAll(b.String(), last+" ", last)
	}
	text += tail
	for _, f := range slices.Backward(list) {
		text += f.end
	}
	return text
}

// compiled returns the members whose names begin with mark that a compiler sees in a program, for both languages; it may not compile.
func compiled(text string) (names []map[string]bool) {
	for _, l := range []api.Loader{api.LoaderJS, api.LoaderTS} {
		out := api.Transform(text, api.TransformOptions{Loader: l, MangleProps: "^mark", MangleCache: map[string]any{}, Target: api.ESNext, LogLevel: api.LogLevelSilent})
		if len(out.Errors) == 0 {
			names = append(names, map[string]bool{})
			for name := range out.MangleCache {
				names[len(names)-1][name] = true
			}
		}
	}
	return names
}

// seen returns the names that begin with mark among the tokens of a text, and whether all of them are certain.
func seen(text string) (names map[string]bool, certain bool) {
	names, certain = map[string]bool{}, true
	for t := range javascript.Tokens(text) {
		certain = certain && t.Doubt == ""
		if t.Kind == javascript.Name && strings.HasPrefix(t.Text, "mark") {
			names[t.Text] = true
		}
	}
	return names, certain
}

// agree checks that a text whose tokens are certain has those that the compiler sees, and reports whether it compiles and is certain.
func agree(t *testing.T, text string) (compiles, certain bool) {
	t.Helper()
	want := compiled(text)
	got, certain := seen(text)
	for _, names := range want {
		if strings.Contains(text, "declare") { // what is declared is left out
			maps.Copy(names, got)
		}
		if certain && !maps.Equal(got, names) {
			t.Errorf("%q: the compiler sees %v, the tokens have %v, without a doubt", text, names, got)
		}
	}
	return len(want) > 0, certain
}

// Where the tokens of a program are certain, what they say of a slash behind anything is what the compiler makes of it.
func TestSlashes(t *testing.T) {
	compiles, certain := 0, 0
	try := func(list ...fragment) {
		c, sure := agree(t, program(list...))
		if c {
			compiles++
		}
		if c && sure {
			certain++
		}
	}
	for _, f := range fragments {
		try(f)
	}
	r := rand.New(rand.NewPCG(1, 2))
	for range 3000 { // all pairs and 100,000 longer ones were tried once
		list := make([]fragment, 2+r.IntN(4))
		for i := range list {
			list[i] = fragments[r.IntN(len(fragments))]
		}
		try(list...)
	}
	if compiles < 300 || certain < 200 {
		t.Errorf("%d compile, %d of them are certain: the test says little", compiles, certain)
	}
}

// The same of programs that a fuzzer puts together.
func FuzzSlashes(f *testing.F) {
	f.Add([]byte{1, 2, 3})
	f.Add([]byte{200, 100})
	f.Fuzz(func(t *testing.T, which []byte) {
		var list []fragment
		for _, b := range which[:min(len(which), 8)] {
			list = append(list, fragments[int(b)%len(fragments)])
		}
		if len(list) > 0 {
			agree(t, program(list...))
		}
	})
}

// The same of any text. Members whose names begin with mark are what both look for.
func FuzzCompiler(f *testing.F) {
	for _, s := range []string{"o.mark1/o.mark2", "`${o.mark}`/1", "a\n/o.mark1/g.mark2", "o.mark!/o.mark1/1", "#!\nx?.mark?.5:o.mark2", "'\\\r\n';o.mark", "o/*\n*/-->mark"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if strings.Contains(text, `\`) || !strings.Contains(text, ".mark") { // another spelling of a name
			return
		}
		want := compiled(text)
		got, certain := seen(text)
		for _, names := range want {
			for name := range names {
				if certain && !got[name] {
					t.Errorf("%q: the compiler sees %s, the tokens have %v, without a doubt", text, name, got)
				}
			}
		}
	})
}

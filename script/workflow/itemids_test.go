package workflow_test

import (
	"slices"
	"testing"

	"github.com/keep-run/keep/script/workflow"
)

func TestItemPatterns(t *testing.T) {
	for _, tt := range []struct {
		name, source string
		want         []workflow.ItemPattern // nil: not known
	}{
		{"Template", "async (ctx) => { await ctx.withItem(`invoice:${row.id}`, row.title, f) }", []workflow.ItemPattern{"invoice:*"}},
		{"Literal", `(ctx) => ctx.withItem("daily", "t", f)`, []workflow.ItemPattern{"daily"}},
		{"Two", "(ctx) => { ctx.withItem(`a:${x}:b`, t, f); ctx.withItem( 'c', t, f) }", []workflow.ItemPattern{"a:*:b", "c"}},
		{"Concatenated", `(ctx) => ctx.withItem("a:" + row.id + ":" + row.list[0].name, "t", f)`, []workflow.ItemPattern{"a:*:*"}},
		{"ConcatenatedWithACall", `(ctx) => ctx.withItem("a:" + String(row.id, ")"), "t", f)`, []workflow.ItemPattern{"a:*"}},
		{"Constant", `var prefix = "invoice:"; f = (ctx) => ctx.withItem(prefix + row.id, "t", f)`, []workflow.ItemPattern{"invoice:*"}},
		{"ConstantInATemplate", "const kind = 'inv'; f = (ctx) => ctx.withItem(`${kind}:${row.id}`, \"t\", f)", []workflow.ItemPattern{"inv:*"}},
		{"ConstantOfConstants", `const a = "x", n = 1; const b = a + ":"; f = (ctx) => ctx.withItem(b + row.id, "t", f)`, []workflow.ItemPattern{"x:*"}},
		{"Function", "function idOf(row) {\n  return `invoice:${row.id}`;\n}\nf = (ctx) => ctx.withItem(idOf(row), 't', f)", []workflow.ItemPattern{"invoice:*"}},
		{"Arrow", `const idOf = (row) => "invoice:" + row.id; f = (ctx) => ctx.withItem(idOf(row), "t", f)`, []workflow.ItemPattern{"invoice:*"}},
		{"ArrowWithABody", `const idOf = row => { return "invoice:" + row.id }; f = (ctx) => ctx.withItem(idOf(row), "t", f)`, []workflow.ItemPattern{"invoice:*"}},
		{"CallInAFunction", `async function remind(ctx, row) { await ctx.withItem("invoice:" + row.id, "t", f) } j = (ctx) => remind(ctx)`, []workflow.ItemPattern{"invoice:*"}},
		{"NestedTemplate", "(ctx) => ctx.withItem(`a:${f(\"}\")}:b`, t, f)", []workflow.ItemPattern{"a:*:b"}},

		{"Computed", `(ctx) => ctx.withItem(id(row), "t", f)`, nil},
		{"Variable", `(ctx) => ctx.withItem(row.id, "t", f)`, nil},
		{"Parameter", `const id = "x"; f = (ctx, id) => ctx.withItem(id, "t", f)`, nil},
		{"Assigned", `let id = "x"; id = "y"; f = (ctx) => ctx.withItem(id, "t", f)`, nil},
		{"AppendedTo", `let id = "x"; id += "y"; f = (ctx) => ctx.withItem(id, "t", f)`, nil},
		{"TwoOfAName", `const id = "x"; { const id = "y"; f = (ctx) => ctx.withItem(id, "t", f) }`, nil},
		{"LongFunction", `function idOf(row) { const a = row.id; return "x" + a } f = (ctx) => ctx.withItem(idOf(row), "t", f)`, nil},
		{"Choice", `(ctx) => ctx.withItem(a ? "x" : "y", "t", f)`, nil},
		{"Method", `(ctx) => ctx.withItem("x".repeat(3), "t", f)`, nil},
		{"OtherName", `(ctx) => { const w = ctx.withItem; w("x", "t", f); ctx.withItem("y", "t", f) }`, nil},
		{"None", `(ctx) => remind(ctx)`, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, known := workflow.ItemPatterns([]byte(tt.source))
			if !slices.Equal(got, tt.want) || known != (tt.want != nil) {
				t.Errorf("ItemPatterns(%s) = %q, %t; want %q", tt.source, got, known, tt.want)
			}
		})
	}
}

func TestItemPatternMatches(t *testing.T) {
	for _, tt := range []struct {
		pattern workflow.ItemPattern
		id      string
		want    bool
	}{
		{"invoice:*", "invoice:17", true},
		{"invoice:*", "inv-17", false},
		{"a:*:b", "a:1:b", true},
		{"a:*:b", "a:b", false},
		{"*-*-*", "1-2-3", true},
		{"daily", "daily", true},
		{"daily", "daily2", false},
		{"aa*aa", "aaa", false},
	} {
		if got := tt.pattern.Matches(tt.id); got != tt.want {
			t.Errorf("%q.Matches(%q) = %t, want %t", tt.pattern, tt.id, got, tt.want)
		}
	}
}

func FuzzItemPatterns(f *testing.F) {
	f.Add("withItem(`a${b}`,", "a1")
	f.Fuzz(func(t *testing.T, source, id string) {
		ps, _ := workflow.ItemPatterns([]byte(source))
		for _, p := range ps {
			p.Matches(id)
		}
	})
}

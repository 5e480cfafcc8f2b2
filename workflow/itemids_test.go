package workflow_test

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/keep-run/keep/workflow"
)

func TestItemPatterns(t *testing.T) {
	for _, tt := range []struct {
		name, source string
		want         []workflow.ItemPattern
		known        bool
	}{
		{"Template", "async (ctx) => { await ctx.withItem(`invoice:${row.id}`, row.title, f) }", []workflow.ItemPattern{"invoice:*"}, true},
		{"Literal", `(ctx) => ctx.withItem("daily", "t", f)`, []workflow.ItemPattern{"daily"}, true},
		{"Two", "(ctx) => { ctx.withItem(`a:${x}:b`, t, f); ctx.withItem( 'c', t, f) }", []workflow.ItemPattern{"a:*:b", "c"}, true},
		{"Computed", `(ctx) => ctx.withItem(id(row), "t", f)`, nil, false},
		{"Concatenated", `(ctx) => ctx.withItem("a" + row.id, "t", f)`, nil, false},
		{"Elsewhere", `(ctx) => remind(ctx)`, nil, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			decl, err := json.Marshal(map[string]any{"name": "w", "jobs": map[string]any{"j": map[string]any{
				"$function": map[string]any{"at": map[string]any{"file": "w.js", "line": 1, "column": 1}, "params": 1, "source": tt.source}}}})
			if err != nil {
				t.Fatal(err)
			}
			got, known := workflow.ItemPatterns(decl)
			if !slices.Equal(got, tt.want) || known != tt.known {
				t.Errorf("ItemPatterns(%s) = %q, %t; want %q, %t", tt.source, got, known, tt.want, tt.known)
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
		decl, _ := json.Marshal(map[string]any{"jobs": map[string]any{"j": map[string]any{"$function": map[string]any{"source": source}}}})
		ps, _ := workflow.ItemPatterns(decl)
		for _, p := range ps {
			p.Matches(id)
		}
	})
}

package policytest

import (
	"go/ast"
	"slices"
	"strings"
	"testing"
)

// A concept is a name of the vocabulary that few files should know.
type concept struct {
	name string // as the root package exports it
	most int    // files outside the law and the stores that may name it
}

// concepts are the states of the ledger and the parts of a run. A state is named where it
// is decided (law), kept (store) and in few places more: everybody else asks the law what
// it means (lifecycle.Unknown, lifecycle.Doubts). Raising a number is a decision about
// the design: see "Where a change goes" in docs/ARCHITECTURE.md.
var concepts = []concept{
	{"InFlight", 4}, {"NeedsReconcile", 4}, {"Applied", 6}, {"Failed", 6}, {"Indeterminate", 4},
	{"SeenSeq", 3}, {"Crashes", 3}, {"Retries", 5}, {"WakeAt", 8}, {"RetryAt", 8}, {"RetryOf", 6},
}

// TestConceptsStayAtHome counts the files that name a concept outside of the law, the
// stores, the test kits and what is for tests.
func TestConceptsStayAtHome(t *testing.T) {
	named := make(map[string][]string)
	for _, f := range sources(t) {
		if f.test || f.pkg == "." || slices.ContainsFunc([]string{"law/", "store/", "testkit/", "internal/"}, func(p string) bool { return strings.HasPrefix(f.pkg, p) }) {
			continue
		}
		for _, name := range conceptsIn(f) {
			named[name] = append(named[name], f.path)
		}
	}
	for _, c := range concepts {
		if n := len(named[c.name]); n > c.most {
			t.Errorf("%d files name %s, more than %d: %s", n, c.name, c.most, strings.Join(named[c.name], ", "))
		}
	}
}

// conceptsIn returns the concepts that a file names, once each. States are named with
// their package; a part of a run is named as a field.
func conceptsIn(f sourceFile) []string {
	var found []string
	state := func(name string) bool {
		return slices.Contains([]string{"InFlight", "NeedsReconcile", "Applied", "Failed", "Indeterminate"}, name)
	}
	ast.Inspect(f.syntax, func(n ast.Node) bool {
		var name string
		switch n := n.(type) {
		case *ast.SelectorExpr:
			x, ok := n.X.(*ast.Ident)
			if ofKeep := ok && x.Name == "keep"; state(n.Sel.Name) && !ofKeep {
				return true
			}
			name = n.Sel.Name
		case *ast.KeyValueExpr:
			if key, ok := n.Key.(*ast.Ident); ok && !state(key.Name) {
				name = key.Name
			}
		}
		if slices.ContainsFunc(concepts, func(c concept) bool { return c.name == name }) && !slices.Contains(found, name) {
			found = append(found, name)
		}
		return true
	})
	return found
}

// The count sees what it must: a state by its package, a field, and no other word.
func TestConceptsInAFile(t *testing.T) {
	f, err := parse("api/x.go", `package api
		import "github.com/keep-run/keep"
		var a = keep.Applied
		var b = scripttest.Applied
		var c = keep.Run{RetryOf: "x"}
		func d(r keep.Run) int { return r.Crashes }`)
	if err != nil {
		t.Fatal(err)
	}
	got := conceptsIn(f)
	slices.Sort(got)
	if want := []string{"Applied", "Crashes", "RetryOf"}; !slices.Equal(got, want) {
		t.Errorf("found %v, want %v", got, want)
	}
}

package policytest

import (
	"go/ast"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestPathOfACall holds to this: what happens to a call of a mutate tool reads top to bottom,
// as one page. makeCall names the steps in its comment and calls them in that order, and
// below it they are declared in that order, in the same file.
func TestPathOfACall(t *testing.T) {
	f, err := parse("engine/call.go", textOf(t, "engine/call.go"))
	if err != nil {
		t.Fatal(err)
	}
	if wrong := unlikeAPage(f, "makeCall"); wrong != "" {
		t.Errorf("engine/call.go: %s", wrong)
	}
}

// textOf returns a file of the module.
func textOf(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("../..", filepath.FromSlash(path)))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// step is a line of a comment that names a step and says what it does.
var step = regexp.MustCompile(`(?m)^\t(\w+) +\S`)

// unlikeAPage returns why the steps of a function of f are not read from top to bottom;
// empty: they are.
func unlikeAPage(f sourceFile, name string) string {
	var declared []string // below the function
	var path *ast.FuncDecl
	for _, d := range f.syntax.Decls {
		fn, ok := d.(*ast.FuncDecl)
		switch {
		case !ok:
		case fn.Name.Name == name:
			path = fn
		case path != nil:
			declared = append(declared, fn.Name.Name)
		}
	}
	if path == nil {
		return "there is no " + name
	}
	var named, called []string
	for _, m := range step.FindAllStringSubmatch(path.Doc.Text(), -1) {
		named = append(named, m[1])
	}
	returns := 0
	ast.Inspect(path.Body, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.ReturnStmt:
			returns++
		case *ast.CallExpr:
			if sel, ok := n.Fun.(*ast.SelectorExpr); ok && slices.Contains(named, sel.Sel.Name) {
				called = append(called, sel.Sel.Name)
			}
		}
		return true
	})
	declared = slices.DeleteFunc(declared, func(s string) bool { return !slices.Contains(named, s) })
	switch {
	case len(named) < 3 || len(named) > 7:
		return name + " names " + strings.Join(named, ", ") + "; want three to seven steps"
	case !slices.Equal(called, named):
		return name + " calls " + strings.Join(called, ", ") + ", and says that it calls " + strings.Join(named, ", ")
	case !slices.Equal(declared, named):
		return "below " + name + " stand " + strings.Join(declared, ", ") + "; want " + strings.Join(named, ", ")
	case returns > len(named):
		return name + " returns from more places than it has steps"
	}
	return ""
}

// The check sees a step that is out of order, missing, or elsewhere.
func TestPathFinds(t *testing.T) {
	const page = "package p\n\n// way is it.\n//\n//\tone   x\n//\ttwo   y\n//\tthree z\nfunc (x *t) way() { x.one(); x.two(); x.three() }\n"
	const steps = "func (x *t) one() {}\nfunc (x *t) two() {}\nfunc (x *t) three() {}\n"
	for name, c := range map[string]struct{ src, want string }{
		"as it should be": {page + steps, ""},
		"called out of order": {strings.Replace(page, "x.one(); x.two()", "x.two(); x.one()", 1) + steps,
			"way calls two, one, three, and says that it calls one, two, three"},
		"declared out of order": {page + strings.Replace(steps, "one() {}\nfunc (x *t) two", "two() {}\nfunc (x *t) one", 1),
			"below way stand two, one, three; want one, two, three"},
		"in another file":        {page + "func (x *t) one() {}\n", "below way stand one; want one, two, three"},
		"with too many ways out": {strings.Replace(page, "x.one()", "if a { return }; if b { return }; if c { return }; if d { return }; x.one()", 1) + steps, "way returns from more places than it has steps"},
	} {
		f, err := parse("p/p.go", c.src)
		if err != nil {
			t.Fatal(err)
		}
		if got := unlikeAPage(f, "way"); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

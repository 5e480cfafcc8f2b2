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

// What tests leave out under the race detector test.sh runs without it, by name: a name that no test has any more
// would leave it out of both.
func TestWholeNamesTests(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "test.sh"))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, m := range regexp.MustCompile(`whole\+?='\|?([^']*)'`).FindAllStringSubmatch(string(text), -1) {
		names = append(names, strings.Split(m[1], "|")...)
	}
	_, rest, _ := strings.Cut(string(text), `-run "$whole"`)
	rest, _, _ = strings.Cut(rest, "||")
	dirs := regexp.MustCompile(`\./[a-z0-9/]+`).FindAllString(rest, -1)
	if len(names) < 5 || len(dirs) < 5 {
		t.Fatalf("test.sh names %q in %q", names, dirs)
	}
	var tests strings.Builder
	for _, dir := range dirs {
		files, _ := filepath.Glob(filepath.Join("..", "..", dir, "*_test.go"))
		if len(files) == 0 {
			t.Errorf("test.sh names %s, which has no tests", dir)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			tests.Write(text)
		}
	}
	for _, name := range names {
		if prefix, exact := strings.CutSuffix(name, "$"); exact && !strings.Contains(tests.String(), "\nfunc "+prefix+"(") || !strings.Contains(tests.String(), "\nfunc "+prefix) {
			t.Errorf("test.sh runs %s without the race detector, and there is no such test", name)
		}
	}
}

// What test.sh tests without the race detector has nothing to watch.
func TestUnwatchedHaveNoGoroutines(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "test.sh"))
	if err != nil {
		t.Fatal(err)
	}
	var pattern strings.Builder
	for _, m := range regexp.MustCompile(`alone\+?='([^']*)'`).FindAllStringSubmatch(string(text), -1) {
		pattern.WriteString(m[1])
	}
	alone := regexp.MustCompile(pattern.String())
	found := map[string]bool{}
	for _, f := range sources(t) {
		if f.test || !alone.MatchString(module+"/"+f.pkg) {
			continue
		}
		found[f.pkg] = true
		if what := shared(f); what != "" {
			t.Errorf("%s: %s is for goroutines: test.sh must test %s with the race detector", f.path, what, f.pkg)
		}
	}
	if len(found) < 20 {
		t.Errorf("test.sh tests %v without the race detector", found)
	}
}

// shared returns what a file has for goroutines that share memory; empty: nothing.
func shared(f sourceFile) (what string) {
	if slices.Contains(f.imports, "sync/atomic") {
		return "sync/atomic"
	}
	ast.Inspect(f.syntax, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GoStmt:
			what = "go"
		case *ast.SelectorExpr:
			if x, ok := n.X.(*ast.Ident); ok && x.Name == "sync" && !strings.HasPrefix(n.Sel.Name, "Once") {
				what = "sync." + n.Sel.Name
			}
		}
		return what == ""
	})
	return what
}

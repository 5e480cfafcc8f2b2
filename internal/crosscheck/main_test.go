package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// What builds on one platform alone is found, in tests as well.
func TestCheck(t *testing.T) {
	for name, c := range map[string]struct{ file, text, want string }{
		"nothing is wrong":   {"a_darwin.go", "package a\n\nfunc f() int { return g() }\n", ""},
		"another type":       {"a_windows.go", "package a\n\nfunc f() string { return g() }\n", "cannot use g()"},
		"a variable too few": {"a_windows.go", "package a\n\nfunc f() { unknown = 1 }\n", "undefined: unknown"},
		"a test":             {"a_windows_test.go", "package a\n\nvar _ string = g()\n", "cannot use g()"},
		"a test beside it":   {"b_windows_test.go", "package a_test\n\nimport \"example.com/a\"\n\nvar _ = a.G()\n", "undefined: a.G"},
		"a call of others":   {"a_windows.go", "package a\n\nimport \"os\"\n\nvar _ = os.Getuid(1)\n", "too many arguments"},
		"no such package":    {"a_windows.go", "package a\n\nimport _ \"nowhere\"\n", "nowhere"},
		"no syntax":          {"a_windows.go", "package a\n\nfunc {\n", "expected"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			for file, text := range map[string]string{
				"go.mod": "module example.com/a\n\ngo 1.26\n",
				"a.go":   "package a\n\nfunc g() int { return 1 }\n",
				c.file:   c.text,
			} {
				if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := check("linux", "amd64", dir, "./..."); err != nil {
				t.Errorf("on linux: %v", err)
			}
			own, err := check("windows", "amd64", dir, "./...")
			if c.want == "" && (err != nil || own == 0) {
				t.Errorf("%d packages, %v", own, err)
			}
			if c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
}

package policytest

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// TestIdempotencyIsImportableAlone holds to a promise: who wants idempotency keys
// only pays for no JavaScript engine, no bundler and no command line, and with one
// store not for the other's driver.
func TestIdempotencyIsImportableAlone(t *testing.T) {
	if testing.Short() {
		t.Skip("asks the go command")
	}
	guard := []string{"github.com/dunglas/httpsfv", "github.com/gowebpki/jcs"}
	for _, test := range []struct {
		packages []string
		deps     []string // modules of others; nil: any but those below
	}{
		{[]string{"/idempotency"}, guard},
		{[]string{"/idempotency", "/store/memory"}, append([]string{"golang.org/x/text"}, guard...)}, // its searches ignore diacritics
		{[]string{"/idempotency/proxy", "/idempotency/acceptance"}, guard},
		{[]string{"/idempotency", "/store/sqlite"}, nil},
		{[]string{"/idempotency", "/store/postgres"}, nil},
	} {
		args := []string{"list", "-deps", "-f", "{{with .Module}}{{.Path}} {{end}}{{.ImportPath}}"}
		for _, p := range test.packages {
			args = append(args, module+p)
		}
		out, err := exec.Command("go", args...).Output()
		if err != nil {
			t.Fatalf("go %s: %v", strings.Join(args, " "), err)
		}
		for line := range strings.Lines(string(out)) {
			words := strings.Fields(line)
			if len(words) != 2 || words[0] == module && allowedBeside(test.packages, strings.TrimPrefix(words[1], module)) {
				continue // the standard library, or ours
			}
			if problem := forbidden(words[0], words[1], test.packages, test.deps); problem != "" {
				t.Errorf("%v: %s", test.packages, problem)
			}
		}
	}
}

// allowedBeside reports whether a package of ours may come with others: the nouns,
// what stores are moved by, sockets, and what is about keys.
func allowedBeside(packages []string, pkg string) bool {
	if slices.Contains(packages, pkg) || slices.Contains([]string{"", "/idempotency", "/store/transfer", "/internal/dbclock", "/internal/room", "/internal/socket"}, pkg) {
		return true
	}
	return strings.HasPrefix(pkg, "/law/") || strings.HasPrefix(pkg, "/store/internal/") || strings.HasPrefix(pkg, "/idempotency/")
}

// forbidden says what is wrong with a dependency; "" if nothing is.
func forbidden(mod, pkg string, packages, deps []string) string {
	for name, why := range map[string]string{
		"wazero": "runs JavaScript", "esbuild": "bundles JavaScript", "cobra": "is for commands", "go-toml": "is for configuration files",
	} {
		if strings.Contains(mod, name) {
			return pkg + " " + why
		}
	}
	for driver, store := range map[string]string{"modernc.org/": "/store/sqlite", "github.com/jackc/": "/store/postgres"} {
		if strings.HasPrefix(mod, driver) && !slices.Contains(packages, store) {
			return pkg + " belongs to " + store
		}
	}
	if mod == module || deps != nil && !slices.Contains(deps, mod) {
		return pkg + " is not needed"
	}
	return ""
}

// TestCommandLinksNoTests holds to this: who installs the command gets no test kit, no
// simulation and not package testing.
func TestCommandLinksNoTests(t *testing.T) {
	if testing.Short() {
		t.Skip("asks the go command")
	}
	out, err := exec.Command("go", "list", "-deps", module+"/cmd/keep").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	for pkg := range strings.Lines(string(out)) {
		pkg = strings.TrimSpace(pkg)
		if pkg == "testing" || strings.HasPrefix(pkg, "testing/") || strings.HasPrefix(pkg, module+"/testkit") || strings.HasPrefix(pkg, module+"/internal/simtest") {
			t.Errorf("cmd/keep links %s", pkg)
		}
	}
}

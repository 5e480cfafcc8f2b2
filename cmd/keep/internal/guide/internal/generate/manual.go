package main

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/keep-run/keep/cmd/keep/internal/config"
	"github.com/keep-run/keep/cmd/keep/internal/exit"
	"github.com/keep-run/keep/cmd/keep/internal/guide"
	"github.com/keep-run/keep/cmd/keep/internal/metrics"
)

// manual returns what keep docs has that is made of the code, by file.
func manual(root string) (map[string][]byte, error) {
	readme, err := os.ReadFile(filepath.Join(root, "README.md"))
	if err != nil {
		return nil, err
	}
	types, err := problems(root)
	if err != nil {
		return nil, err
	}
	reference, err := operating(root)
	return map[string][]byte{
		"cmd/keep/internal/manual/text/readme.markdown": append([]byte(guide.Generated), readme...),
		"docs/problems.md":  types,
		"docs/reference.md": reference,
	}, err
}

// operating returns the document about exit codes, variables and figures.
func operating(root string) ([]byte, error) {
	var b strings.Builder
	b.WriteString(guide.Generated + "\n# Exit codes, environment, metrics\n\nWhat scripts, supervisors and scrapers depend on. The keys of keep.toml and what a script can use are in\n" +
		"[the guide](guide.md#every-key-of-keeptoml), the errors of the API in [problems.md](problems.md).\n")
	b.WriteString("\n## Exit codes\n\nOf every command. `keep help exit-codes` prints the same. `keep status --exit-code` ends with 4 if a question is open,\n" +
		"else with 1 if something fails, is in doubt or is late, a change of `keep.toml` is not in force, or events wait that no consumer will handle; without the flag it ends with 0.\n\n" +
		"With `--json`, what went wrong is one object on stderr: `exit_code`; `errors`, each with `code`, `message` and `hint`; and `problems` of scripts\n" +
		"and keep.toml with their places. A command whose result says it, such as the questions of `keep run` or the tests of `keep test` that fail,\n" +
		"ends with the exit code alone. A `code` keeps its meaning: it is the kind of a problem in [problems.md](problems.md), or the name below.\n\n" +
		"| code | name | meaning |\n| --: | --- | --- |\n")
	for _, c := range exit.Codes() {
		fmt.Fprintf(&b, "| %d | `%s` | %s |\n", c.Status, c.Name, c.Meaning)
	}
	b.WriteString("\n## Environment\n\nEvery setting of keep.toml can come from the environment, which wins: `KEEP_` and its path in upper case, with `_` for every\n" +
		"character that is not a letter or a digit. A list is written with commas, a table as in TOML. `keep help env` prints the same.\n\n" +
		"Beside settings these are read:\n\n| variable | what it is |\n| --- | --- |\n")
	for _, v := range config.ProcessVariables() {
		fmt.Fprintf(&b, "| `%s` | %s |\n", v.Name, v.About)
	}
	b.WriteString("\n### Settings\n\nConnections, hooks, budgets and other tables with names have variables of the same form: `connections.crm.base_url` is\n`KEEP_CONNECTIONS_CRM_BASE_URL`.\n\n")
	for _, name := range config.Variables() {
		fmt.Fprintf(&b, "- `%s`\n", name)
	}
	b.WriteString("\n## Metrics\n\nOf a host, at `/metrics` ([monitoring.md](monitoring.md) says who gets it and how to sum several hosts).\n\n| figure, with its labels | type | what it is |\n| --- | --- | --- |\n")
	for _, f := range metrics.New(metrics.Config{}).Figures() {
		figure(&b, f.Name, f.Labels, f.Type, f.Help)
	}
	b.WriteString("\nOf `keep proxy`, at its admin address ([idempotency.md](idempotency.md)).\n\n| figure, with its labels | type | what it is |\n| --- | --- | --- |\n")
	figures, err := proxyFigures(root)
	if err != nil {
		return nil, err
	}
	for _, f := range figures {
		figure(&b, f[1], []string{"route", "outcome", "kind"}, "counter", f[2])
	}
	figure(&b, "keep_keys_unknown", nil, "gauge", "Keys whose outcome nobody knows.")
	return []byte(b.String()), errors.Join(complete(root)...)
}

func figure(b *strings.Builder, name string, labels []string, kind, help string) {
	if len(labels) > 0 {
		name += "{" + strings.Join(labels, ",") + "}"
	}
	fmt.Fprintf(b, "| `%s` | %s | %s |\n", name, kind, help)
}

// proxyFigures returns the names and texts of the figures of a proxy.
func proxyFigures(root string) ([][]string, error) {
	text, err := os.ReadFile(filepath.Join(root, "idempotency", "proxy", "admin.go"))
	if err != nil {
		return nil, err
	}
	found := regexp.MustCompile(`"(keep_idempotency_[a-z_]+)", "([^"]+)"`).FindAllStringSubmatch(string(text), -1)
	if len(found) == 0 {
		err = errors.New("idempotency/proxy/admin.go has no figures: where are they?")
	}
	return found, err
}

// complete compares what the document has with what the code has.
func complete(root string) (wrong []error) {
	read, err := variablesRead(root)
	if err != nil {
		return []error{err}
	}
	documented := map[string]bool{}
	for _, v := range config.ProcessVariables() {
		documented[v.Name] = true
	}
	for _, name := range slices.Sorted(maps.Keys(read)) {
		if !documented[name] {
			wrong = append(wrong, fmt.Errorf("%s reads %s, which config.ProcessVariables does not name", read[name], name))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(documented)) {
		// os.UserCacheDir reads the one, and the other is a form.
		if read[name] == "" && name != "XDG_CACHE_HOME" && name != "KEEP_SECRET_NAME" {
			wrong = append(wrong, fmt.Errorf("config.ProcessVariables names %s, which nothing reads", name))
		}
	}
	statuses, err := constantsOf(filepath.Join(root, "cmd", "keep", "internal", "exit", "exit.go"))
	if err != nil {
		return append(wrong, err)
	}
	if len(statuses) != len(exit.Codes()) {
		wrong = append(wrong, fmt.Errorf("package exit has the statuses %v, and exit.Codes returns %d", statuses, len(exit.Codes())))
	}
	return wrong
}

// aside are the folders whose programs nobody installs.
var aside = []string{"internal", "examples", "testkit", "tools", "deploy", "docs", "node_modules"}

// own has the names that are a variable of Keep or of a standard that it follows.
var own = regexp.MustCompile(`^((KEEP|OTEL|XDG)_[A-Z_]*[A-Z]|NO_COLOR|CREDENTIALS_DIRECTORY)$`)

// variablesRead returns the variables of the environment that the program reads by name, each with
// a file that does.
func variablesRead(root string) (map[string]string, error) {
	out := map[string]string{}
	settings := config.Variables()
	err := filepath.WalkDir(root, func(file string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, file)
		switch {
		case err != nil:
			return err
		case d.IsDir() && (slices.Contains(aside, rel) || d.Name() == "testdata" || len(d.Name()) > 2 && d.Name()[0] == '.'):
			return fs.SkipDir
		case d.IsDir() || filepath.Ext(file) != ".go" || strings.HasSuffix(file, "_test.go"):
			return nil
		case filepath.Base(file) == "process.go" || strings.Contains(filepath.ToSlash(rel), "/generate/"):
			return nil // the lists themselves
		}
		return variablesIn(file, func(name string) {
			if !slices.Contains(settings, name) {
				out[name] = filepath.ToSlash(rel)
			}
		})
	})
	return out, err
}

// variablesIn calls found with each variable that a file names: an argument of os.Getenv or
// os.LookupEnv that is constant, and what looks like one of ours.
func variablesIn(file string, found func(string)) error {
	f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CallExpr:
			if s, ok := n.Fun.(*ast.SelectorExpr); ok && len(n.Args) > 0 && (s.Sel.Name == "Getenv" || s.Sel.Name == "LookupEnv") {
				if l, ok := n.Args[0].(*ast.BasicLit); ok {
					found(text(l))
				}
			}
		case *ast.BinaryExpr:
			if l, ok := n.Y.(*ast.BasicLit); ok && n.Op == token.ADD && textOf(n.X) == "Prefix" {
				if name := config.Prefix + text(l); own.MatchString(name) {
					found(name)
				}
			}
		case *ast.BasicLit:
			if name := text(n); own.MatchString(name) {
				found(name)
			}
		}
		return true
	})
	return nil
}

// constantsOf returns the constants of a file that are numbers.
func constantsOf(file string) ([]string, error) {
	f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	var out []string
	for _, d := range f.Decls {
		if g, ok := d.(*ast.GenDecl); ok && g.Tok == token.CONST {
			for _, s := range g.Specs {
				if v := s.(*ast.ValueSpec); len(v.Values) == 1 {
					if l, ok := v.Values[0].(*ast.BasicLit); ok && l.Kind == token.INT {
						out = append(out, v.Names[0].Name+" = "+strconv.Quote(l.Value))
					}
				}
			}
		}
	}
	return out, nil
}

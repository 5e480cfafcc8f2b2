package policytest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// module is the path of this module.
const module = "github.com/keep-run/keep"

// A sourceFile is one Go file of the module, for whatever system it is.
type sourceFile struct {
	path    string // from the root of the module, with slashes
	pkg     string // directory from there; "." is the root
	test    bool
	imports []string
	syntax  *ast.File
	fset    *token.FileSet
}

// parse reads a file of that path with that text.
func parse(path, text string) (sourceFile, error) {
	fset := token.NewFileSet()
	syntax, err := parser.ParseFile(fset, path, text, parser.SkipObjectResolution|parser.ParseComments)
	if err != nil {
		return sourceFile{}, err
	}
	f := sourceFile{
		path: path, pkg: filepath.ToSlash(filepath.Dir(path)), test: strings.HasSuffix(path, "_test.go"),
		syntax: syntax, fset: fset,
	}
	for _, spec := range syntax.Imports {
		name, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			return sourceFile{}, err
		}
		f.imports = append(f.imports, name)
	}
	return f, nil
}

// load reads every Go file of the module once.
var load = sync.OnceValues(func() ([]sourceFile, error) {
	const root = "../.."
	var out []sourceFile
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && path != root && skipped(path, d.Name()):
			return filepath.SkipDir
		case d.IsDir() || filepath.Ext(path) != ".go":
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		f, err := parse(filepath.ToSlash(rel), string(text))
		if err != nil {
			return err
		}
		out = append(out, f)
		return nil
	})
	return out, err
})

// skipped reports whether a directory is not part of the module.
func skipped(path, name string) bool {
	if name == "testdata" || name == "vendor" || name == "node_modules" || name[0] == '.' || name[0] == '_' {
		return true
	}
	_, err := os.Stat(filepath.Join(path, "go.mod"))
	return err == nil
}

// sources returns every Go file of the module.
func sources(t testing.TB) []sourceFile {
	t.Helper()
	files, err := load()
	if err != nil {
		t.Fatal(err)
	}
	if len(files) < 50 {
		t.Fatalf("found %d Go files, want all of the module", len(files))
	}
	return files
}

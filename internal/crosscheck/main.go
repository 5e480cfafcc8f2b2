// Command crosscheck type-checks Keep, tests included, for other platforms than this machine's,
// from source: go run ./internal/crosscheck windows/amd64 darwin/arm64. Compiling for one costs
// what compiling for this machine does, and says only a little more: this takes a twentieth.
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
)

func main() {
	failed := false
	for _, platform := range os.Args[1:] {
		system, processor, _ := strings.Cut(platform, "/")
		n, err := check(system, processor, ".", "./...")
		if err == nil && n == 0 {
			err = errors.New("there is no package")
		}
		if err != nil {
			fmt.Fprintf(os.Stderr, "crosscheck %s: %v\n", platform, err)
			failed = true
		}
	}
	if failed {
		os.Exit(1)
	}
}

// A source is a package as go list says it.
type source struct {
	ImportPath, Dir, Name string
	GoFiles, Imports      []string
	ImportMap             map[string]string
	Standard              bool
	Module                *struct {
		Main      bool
		GoVersion string
	}
	Error *struct{ Err string }

	checked chan struct{} // closed when types and errs are there
	types   *types.Package
	errs    []error
}

// own reports whether bodies of its functions are checked: others made those of dependencies.
func (s *source) own() bool { return s.Module != nil && s.Module.Main }

// check checks the packages in a directory that patterns name, and returns how many of the
// module's own there are.
func check(system, processor, dir string, patterns ...string) (own int, err error) {
	args := append([]string{"list", "-e", "-deps", "-test", "-json=ImportPath,Dir,Name,GoFiles,Imports,ImportMap,Standard,Module,Error"}, patterns...)
	cmd := exec.Command("go", args...)
	cmd.Dir, cmd.Stderr = dir, os.Stderr
	cmd.Env = append(os.Environ(), "GOOS="+system, "GOARCH="+processor, "CGO_ENABLED=0")
	out, err := cmd.Output()
	if err != nil {
		return 0, fmt.Errorf("go list: %w", err)
	}
	all, list := make(map[string]*source), []*source{}
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		s := &source{checked: make(chan struct{})}
		if err := d.Decode(s); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return 0, err
		}
		if s.Name == "main" && strings.HasSuffix(s.ImportPath, ".test") {
			continue // what go test generates
		}
		all[s.ImportPath], list = s, append(list, s)
	}
	c := &checker{files: token.NewFileSet(), all: all, sizes: types.SizesFor("gc", processor)}
	// What a package imports is before it in the list, so that one at work never waits for one
	// that had no turn.
	var work sync.WaitGroup
	turns := make(chan struct{}, runtime.GOMAXPROCS(0))
	for _, s := range list {
		turns <- struct{}{}
		work.Go(func() {
			c.check(s)
			close(s.checked)
			<-turns
		})
	}
	work.Wait()
	for _, s := range list {
		if s.own() {
			own++
		}
		err = errors.Join(err, errors.Join(s.errs...))
	}
	return own, err
}

// A checker checks the packages of one platform.
type checker struct {
	files *token.FileSet
	all   map[string]*source
	sizes types.Sizes
}

// check checks a package after those that it imports.
func (c *checker) check(s *source) {
	if s.ImportPath == "unsafe" {
		s.types = types.Unsafe
		return
	}
	if s.Error != nil {
		s.errs = append(s.errs, fmt.Errorf("%s: %s", s.ImportPath, s.Error.Err))
	}
	var files []*ast.File
	for _, name := range s.GoFiles {
		if !filepath.IsAbs(name) {
			name = filepath.Join(s.Dir, name)
		}
		f, err := parser.ParseFile(c.files, name, nil, parser.SkipObjectResolution)
		if err != nil {
			s.errs = append(s.errs, err)
			continue
		}
		files = append(files, f)
	}
	cfg := types.Config{
		IgnoreFuncBodies: !s.own(),
		Sizes:            c.sizes,
		Importer:         importer{c, s},
		Error:            func(err error) { s.errs = append(s.errs, err) },
	}
	if s.Module != nil && s.Module.GoVersion != "" {
		cfg.GoVersion = "go" + s.Module.GoVersion
	}
	path, _, _ := strings.Cut(s.ImportPath, " ") // a package with its tests is "path [path.test]"
	s.types, _ = cfg.Check(path, c.files, files, nil)
}

// An importer finds what a package imports.
type importer struct {
	c *checker
	s *source
}

// Import returns the package that is meant by a path.
func (i importer) Import(path string) (*types.Package, error) {
	if to, ok := i.s.ImportMap[path]; ok {
		path = to
	}
	s, ok := i.c.all[path]
	if !ok {
		return nil, fmt.Errorf("go list does not have it")
	}
	<-s.checked
	return s.types, nil
}

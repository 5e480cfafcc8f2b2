package project

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/keep-run/keep/cmd/keep/internal/exit"
	"github.com/keep-run/keep/cmd/keep/internal/terminal"
	"github.com/keep-run/keep/rehearsal/scripttest"
)

// A PathError says that a path on the command line names nothing to work on.
type PathError struct {
	Next string // what to do, in sentences
	what string
	err  error // which decides the status of the process
}

// Error says what is wrong with the path.
func (e *PathError) Error() string { return e.what }

// Unwrap returns why.
func (e *PathError) Unwrap() error { return e.err }

// errNotScript is why a file is no workflow.
var errNotScript = exit.Misusef("this is no script")

// Look returns the absolute path of a file or a directory that a person named. Of one that is
// not there, the error says where it was looked for, and which scripts are there.
func Look(name string) (abs string, info fs.FileInfo, err error) {
	if abs, err = filepath.Abs(name); err != nil {
		return "", nil, err
	}
	info, err = os.Stat(abs)
	switch {
	case err == nil:
		return abs, info, nil
	case !errors.Is(err, fs.ErrNotExist):
		return "", nil, fmt.Errorf("find the workflow: %w", err)
	}
	if to, linkErr := os.Readlink(abs); linkErr == nil {
		return "", nil, &PathError{what: fmt.Sprintf("%s is a link to %s, which does not exist", name, to), err: err}
	}
	missing, dir := abs, filepath.Dir(abs)
	for !isDir(dir) && dir != filepath.Dir(dir) {
		missing, dir = dir, filepath.Dir(dir)
	}
	kind := "file or directory"
	switch {
	case missing != abs:
		kind = "directory"
	case isScript(abs):
		kind = "file"
	}
	return "", nil, &PathError{what: fmt.Sprintf("%s does not exist: there is no %s %s in %s", name, kind, filepath.Base(missing), dir), Next: nextIn(dir), err: err}
}

// LookForScripts is Look for what must be a script or a directory.
func LookForScripts(name string) (abs string, info fs.FileInfo, err error) {
	abs, info, err = Look(name)
	if err != nil || info.IsDir() || isScript(abs) {
		return abs, info, err
	}
	return "", nil, &PathError{what: name + " is no workflow: that is a file that ends in .js or .ts", Next: nextIn(filepath.Dir(abs)), err: errNotScript}
}

// LookForScript is Look for what must be a script.
func LookForScript(name string) (string, error) {
	abs, info, err := LookForScripts(name)
	if err == nil && info.IsDir() {
		return "", &PathError{what: name + " is a directory: name one script", Next: nextIn(abs), err: errNotScript}
	}
	return abs, err
}

// noScripts says that a directory has no workflows.
func noScripts(name, dir string, patterns []string) error {
	return &PathError{what: fmt.Sprintf("%s has no workflows: no file there matches %s", name, strings.Join(patterns, ", ")), Next: nextIn(dir), err: errNotScript}
}

// maxNamed is how many scripts an error names.
const maxNamed = 5

// nextIn names the scripts in a directory, or else those of the directories in it, or says how to begin.
func nextIn(dir string) string {
	for _, pattern := range []string{"*", "*/*"} {
		found, _ := fs.Glob(os.DirFS(dir), pattern) // only a pattern can be wrong
		found = slices.DeleteFunc(found, func(f string) bool {
			return !isScript(f) || strings.HasPrefix(f, ".") || notWorkflow(path.Base(f)) || !isFile(filepath.Join(dir, f))
		})
		if len(found) == 0 {
			continue
		}
		more := ""
		if len(found) > maxNamed {
			more = fmt.Sprintf(" and %s more", terminal.Number(len(found)-maxNamed))
			found = found[:maxNamed]
		}
		for i := range found {
			found[i] = terminal.Short(filepath.Join(dir, filepath.FromSlash(found[i])))
		}
		return "Scripts there: " + strings.Join(found, ", ") + more
	}
	return "No scripts are there. To make a project with a first workflow: keep init DIR"
}

func isDir(name string) bool {
	info, err := os.Stat(name)
	return err == nil && info.IsDir()
}

func isFile(name string) bool {
	info, err := os.Stat(name)
	return err == nil && info.Mode().IsRegular()
}

// isScript reports whether a file may be a script, by its name.
func isScript(name string) bool {
	return slices.Contains([]string{".js", ".ts", ".mjs", ".mts"}, filepath.Ext(name))
}

// notWorkflow reports whether a script has no workflow, by its name: declarations of types, tests
// and hidden files.
func notWorkflow(base string) bool {
	return strings.HasSuffix(base, ".d.ts") || strings.HasPrefix(base, ".") || scripttest.IsScript(base)
}

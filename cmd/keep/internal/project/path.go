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

// errNoTests is why nothing is tested.
var errNoTests = exit.Misusef("there are no tests")

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
		return "", nil, &PathError{what: fmt.Sprintf("%s is a link to %s, which does not exist", name, terminal.Clean(to)), err: err}
	}
	missing, dir := abs, filepath.Dir(abs)
	// The nearest directory that is there: what is missing in it is the mistake, and not what would be below.
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

// NoTests says that a path has no tests, and what to do next.
func NoTests(name string, of *Project, next string) error {
	why := "no file there ends in .test.toml, .test.js or .test.ts"
	if abs, info, err := Look(name); err == nil && !info.IsDir() {
		base := strings.TrimSuffix(filepath.Base(abs), filepath.Ext(abs))
		why = fmt.Sprintf("there is no %s%s beside it, and none in JavaScript", base, scripttest.Suffix)
	}
	files := make([]string, len(of.files))
	for i, f := range of.files {
		files[i] = filepath.Join(of.Root, filepath.FromSlash(f))
	}
	said := listed(files)
	if next != "" {
		said += "\n" + next
	}
	return &PathError{what: fmt.Sprintf("%s has no tests: %s", name, why), Next: said, err: errNoTests}
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
		for i := range found {
			found[i] = filepath.Join(dir, filepath.FromSlash(found[i]))
		}
		return listed(found)
	}
	return "No scripts are there. To make a project with a first workflow: keep init DIR"
}

// listed names some scripts.
func listed(files []string) string {
	more := ""
	if len(files) > maxNamed {
		more = fmt.Sprintf(" and %s more", terminal.Number(len(files)-maxNamed))
		files = files[:maxNamed]
	}
	names := make([]string, len(files))
	for i, f := range files {
		names[i] = terminal.Clean(terminal.Short(f))
	}
	return "Scripts there: " + strings.Join(names, ", ") + more
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

package config

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/keep-run/keep/internal/regular"
)

// A library is a set of data files by name: those of Keep, and those of a project, which win.
type library struct {
	dir   string                            // of a project's own files, beside keep.toml
	names func() []string                   // of Keep's own
	read  func(name string) ([]byte, error) // one of Keep's own
}

// libraryName matches the names of files in a library.
var libraryName = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,62}$`) })

// A libraryFile is the text of one file.
type libraryFile struct {
	file    string // as people say it
	hash    string // "sha256:…" of the text
	builtIn bool   // false: it is the project's
	text    []byte
}

// all returns the names of the files that a project in dir can use, sorted.
func (l library) all(dir string) ([]string, error) {
	names := l.names()
	entries, err := os.ReadDir(filepath.Join(dir, l.dir))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	for _, e := range entries {
		if name, ok := strings.CutSuffix(e.Name(), ".toml"); ok {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}

// open reads one file for a project in dir. The error is fs.ErrNotExist if there is none.
//
// The project's own comes first, and its hash is of the text that was read: records of calls say which one
// it was.
func (l library) open(dir, name string) (libraryFile, error) {
	f := libraryFile{file: l.dir + "/" + name + ".toml"}
	// The name comes from keep.toml or a command line: it must not lead out of the directory.
	if !libraryName().MatchString(name) {
		return f, fs.ErrNotExist
	}
	var err error
	if f.text, err = regular.Read(filepath.Join(dir, l.dir, name+".toml"), MaxFile); errors.Is(err, fs.ErrNotExist) {
		f.builtIn = true
		if f.text, err = l.read(name); err != nil {
			return f, fs.ErrNotExist
		}
	}
	sum := sha256.Sum256(f.text)
	f.hash = "sha256:" + hex.EncodeToString(sum[:])
	return f, err
}

// readAll reads with read each file that a project in dir can use. The error is an *Error with what is
// wrong in them.
func readAll[T any](l library, dir string, read func(dir, name string) (T, []Problem, error)) ([]T, error) {
	names, err := l.all(dir)
	if err != nil {
		return nil, err
	}
	var out []T
	var problems []Problem
	for _, name := range names {
		if !libraryName().MatchString(name) { // nothing can name it, and so it is not looked for
			problems = append(problems, Problem{File: l.dir + "/" + name + ".toml", Message: "has a name that nothing can name: use a-z, 0-9 and -, or put the file elsewhere"})
			continue
		}
		p, ps, err := read(dir, name)
		if err != nil {
			return nil, err
		}
		if problems = append(problems, ps...); len(ps) == 0 {
			out = append(out, p)
		}
	}
	return out, asError(problems)
}

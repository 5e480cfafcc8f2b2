// Package caller says where in the source of somebody else's code Keep was called, or a panic began.
package caller

import (
	"fmt"
	"path"
	"runtime"
	"slices"
	"strings"
)

// Place returns the file and the line of the innermost function on the stack that does not begin with one
// of the names in skip, as "dir/file.go:7"; empty: there is none. Functions of the runtime never count.
func Place(skip ...string) string {
	var pcs [64]uintptr
	frames := runtime.CallersFrames(pcs[:runtime.Callers(2, pcs[:])])
	for {
		f, more := frames.Next()
		own := strings.HasPrefix(f.Function, "runtime.") || slices.ContainsFunc(skip, func(p string) bool { return strings.HasPrefix(f.Function, p) })
		if f.File != "" && !own {
			return At(f.File, f.Line)
		}
		if !more {
			return ""
		}
	}
}

// At returns a place: the file with its directory, as what is before that differs between machines, and the line.
func At(file string, line int) string { return fmt.Sprintf("%s:%d", Short(file), line) }

// Short returns a file with its directory.
func Short(file string) string {
	dir, name := path.Split(file)
	return path.Join(path.Base(dir), name)
}

package handler

import (
	"fmt"
	"path"
	"reflect"
	"runtime"
	"slices"
	"strings"
)

// place describes a function as the declaration of a script does; nil if f is nil.
func place(f any) any {
	v := reflect.ValueOf(f)
	if v.IsNil() {
		return nil
	}
	file, line := declared(v)
	return object{{"$function", object{
		{"at", object{{"file", file}, {"line", line}, {"column", 1}}}, {"params", v.Type().NumIn()}, {"source", ""},
	}}}
}

// declared returns where a function begins.
func declared(f reflect.Value) (file string, line int) {
	fn := runtime.FuncForPC(f.Pointer())
	if fn == nil {
		return "", 0
	}
	full, line := fn.FileLine(fn.Entry())
	return short(full), line
}

// placeOf is declared, as failures write it.
func placeOf(f any) string {
	file, line := declared(reflect.ValueOf(f))
	return at(file, line)
}

// short returns a file with its directory: what is before it differs between machines.
func short(file string) string {
	dir, name := path.Split(file)
	return path.Join(path.Base(dir), name)
}

func at(file string, line int) string { return fmt.Sprintf("%s:%d", file, line) }

// own is what the names of this package's functions begin with.
var own = strings.TrimSuffix(reflect.TypeFor[Workflow]().PkgPath(), "/") + "."

// skipped are the packages whose frames are not the author's: this one, and those it passes values to.
var skipped = []string{own, "runtime.", "context.", "encoding/json."}

// callerPlace returns where the author's code is that called this package, or that panicked.
func callerPlace() string {
	var pcs [64]uintptr
	frames := runtime.CallersFrames(pcs[:runtime.Callers(2, pcs[:])])
	for {
		f, more := frames.Next()
		if f.File != "" && !slices.ContainsFunc(skipped, func(p string) bool { return strings.HasPrefix(f.Function, p) }) {
			return at(short(f.File), f.Line)
		}
		if !more {
			return ""
		}
	}
}

package handler

import (
	"reflect"
	"runtime"
	"strings"

	"github.com/keep-run/keep/internal/caller"
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
	return caller.Short(full), line
}

// placeOf is declared, as failures write it.
func placeOf(f any) string {
	file, line := declared(reflect.ValueOf(f))
	return caller.At(file, line)
}

// own is what the names of this package's functions begin with.
var own = strings.TrimSuffix(reflect.TypeFor[Workflow]().PkgPath(), "/") + "."

// skipped are the packages whose frames are not the author's: this one, and those it passes values to.
var skipped = []string{own, "context.", "encoding/json."}

// callerPlace returns where the author's code is that called this package, or that panicked.
func callerPlace() string { return caller.Place(skipped...) }

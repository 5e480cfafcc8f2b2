package engine

import (
	"cmp"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/internal/caller"
)

// failureOf returns what an error of a connector says. Its class is otherwise, and it is not classed, if the error
// vouches for none: it has no *keep.Failure, or one of class unknown, or of a class that Keep does not have. Its text is for people: what
// is no UTF-8 in it becomes U+FFFD.
func failureOf(err error, otherwise keep.Class, code string) (f keep.Failure, classed bool) {
	f = keep.Failure{Code: code, Message: err.Error()}
	if known, ok := errors.AsType[*keep.Failure](err); ok {
		f = *known
		f.Code = cmp.Or(f.Code, code)
	}
	f.Message = readable(f.Message)
	if classed = f.Class != keep.ClassUnknown && slices.Contains(keep.Classes(), f.Class); !classed {
		f.Class = otherwise
	}
	return f, classed
}

// readable returns a text for people in UTF-8.
func readable(text string) string { return strings.ToValidUTF8(text, "\uFFFD") }

// guarded runs code of a connector, and returns when it has. If the code panics, or ends its goroutine, failed is called with
// how. It has a goroutine of its own for that: one that ends takes along what began it.
func guarded(code func(), failed func(how string)) {
	var wg sync.WaitGroup
	wg.Go(func() {
		returned := false
		defer func() {
			if p := recover(); p != nil {
				failed(fmt.Sprintf("panicked%s: %v", place(), p))
			} else if !returned {
				failed(fmt.Sprintf("ended its goroutine%s, as runtime.Goexit and the FailNow of a test do; return an error", place()))
			}
		}()
		code()
		returned = true
	})
	wg.Wait()
}

// place says where the code of a connector panicked or ended. It is for the function that finds that.
func place() string {
	if where := caller.Place(own, "encoding/json."); where != "" {
		return " at " + where
	}
	return ""
}

// panicked returns the failure of a connector that did not return, as how says.
func (t *tool) panicked(how string, class keep.Class, at string) *keep.Failure {
	return &keep.Failure{Class: class, Code: codePanic, Tool: t.name, At: at, Message: readable("the connector " + how)}
}

// codePanic is the code of a failure of a connector that panicked, or ended its goroutine.
const codePanic = "tool-panic"

// own is what the names of this package's functions begin with.
var own = reflect.TypeFor[Tools]().PkgPath() + "."

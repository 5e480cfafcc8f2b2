package engine

import (
	"cmp"
	"errors"
	"fmt"
	"reflect"
	"slices"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/internal/caller"
)

// failureOf returns what an error of a connector says. Its class is otherwise, and it is not classed, if the error
// vouches for none: it has no *keep.Failure, or one of class unknown, or of a class that Keep does not have.
func failureOf(err error, otherwise keep.Class, code string) (f keep.Failure, classed bool) {
	f = keep.Failure{Code: code, Message: err.Error()}
	if known, ok := errors.AsType[*keep.Failure](err); ok {
		f = *known
		f.Code = cmp.Or(f.Code, code)
	}
	if classed = f.Class != keep.ClassUnknown && slices.Contains(keep.Classes(), f.Class); !classed {
		f.Class = otherwise
	}
	return f, classed
}

// panicked returns the failure of a connector that panicked with p, with the place of that. It is for the function that recovers.
func (t *tool) panicked(p any, class keep.Class, at string) *keep.Failure {
	place := ""
	if where := caller.Place(own, "encoding/json."); where != "" {
		place = " at " + where
	}
	return &keep.Failure{Class: class, Code: codePanic, Tool: t.name, At: at, Message: fmt.Sprintf("the connector panicked%s: %v", place, p)}
}

// codePanic is the code of a failure of a connector that panicked.
const codePanic = "tool-panic"

// own is what the names of this package's functions begin with.
var own = reflect.TypeFor[Tools]().PkgPath() + "."

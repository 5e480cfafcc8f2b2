package exit

import (
	"errors"
	"io/fs"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/api"
	"github.com/keep-run/keep/cmd/keep/internal/config"
	"github.com/keep-run/keep/script/sandbox"
	"github.com/keep-run/keep/script/workflow"
)

// Of maps an error to the status of the process. This is the one place
// that does.
//
// An error that carries a status wins over what is in it: whoever made it knew more. Then comes what keeps
// the database from being used at all, which scripts tell from a command that failed.
func Of(err error) int {
	if err == nil {
		return Done
	}
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Status
	}
	for _, bad := range []error{keep.ErrLocked, keep.ErrForeignDatabase, keep.ErrNewerDatabase, keep.ErrOlderDatabase, keep.ErrOlderHosts, keep.ErrSealed, keep.ErrGone, keep.ErrOlderCopy, keep.ErrReplaced} {
		if errors.Is(err, bad) {
			return Unreachable
		}
	}
	if p, ok := errors.AsType[*api.Problem](err); ok && (p.Kind == api.KindAmbiguous || p.Kind == api.KindNotOffered || p.Kind == api.KindResult || p.Kind == api.KindLimit || p.Kind == api.KindBadTime) {
		return Misused
	}
	switch {
	case Rejected(err):
		return Misused
	case errors.Is(err, keep.ErrNotFound), errors.Is(err, fs.ErrNotExist):
		return NotFound
	case errors.Is(err, keep.ErrBadCursor):
		return Misused
	}
	return Failed
}

// Rejected reports whether a script or the configuration is wrong.
func Rejected(err error) bool {
	if _, ok := errors.AsType[*config.Error](err); ok {
		return true
	}
	if _, ok := errors.AsType[*sandbox.BuildError](err); ok {
		return true
	}
	if _, ok := errors.AsType[*sandbox.ScriptError](err); ok {
		return true
	}
	if _, ok := errors.AsType[*sandbox.LimitError](err); ok {
		return true
	}
	if _, ok := errors.AsType[*api.ScriptError](err); ok {
		return true
	}
	_, ok := errors.AsType[*workflow.DeclarationError](err)
	return ok
}

package exit

import (
	"errors"

	"github.com/keep-run/keep/api"
)

// A Code is a status of the process, with what it means.
type Code struct {
	Status  int
	Name    string // the code of an error in JSON, where nothing more exact is known
	Meaning string
}

// Codes returns every status that a command ends with.
func Codes() []Code {
	return []Code{
		{Done, "done", "done"},
		{Failed, "failed", "failed: what was asked for did not work, or --timeout came first"},
		{Misused, "misused", "misused: the command line, a script or keep.toml is wrong"},
		{NotFound, "not-found", "not found: no such run, workflow, file, …"},
		{NeedsPerson, "needs-person", "a person must decide something: see keep inbox"},
		{Unreachable, "unreachable", "the database cannot be reached: another process is its host, it is not Keep's, a newer Keep wrote it, or its file cannot be opened"},
	}
}

// Name returns the code of an error for programs: the kind of a problem of the API, as
// docs/problems.md has it, or the name of the status.
func Name(err error) string {
	if p, ok := errors.AsType[*api.Problem](err); ok && p.Kind != "" {
		return string(p.Kind)
	}
	status := Of(err)
	for _, c := range Codes() {
		if c.Status == status {
			return c.Name
		}
	}
	return "failed"
}

package daemon

import (
	"cmp"
	"log/slog"
	"os"
	"os/user"
	"strconv"
	"time"

	"github.com/keep-run/keep/cmd/keep/internal/project"
	"github.com/keep-run/keep/connector"
)

// An Env is what hosts and their servers get from the process that they are in.
type Env struct {
	Log   *slog.Logger
	Clock func() time.Time // nil: time.Now

	// Say tells the person at the terminal something. Nil: nobody is there.
	Say func(format string, args ...any)

	// AskRenames asks a person what may have been renamed, and reports whether he said it
	// of everything; his answers are then in the scripts and connections. Nil: nobody is
	// there.
	AskRenames func(*project.RenameError, []project.Script, []connector.Connection) bool
}

// say tells the person at the terminal something, if there is one.
func (e Env) say(format string, args ...any) {
	if e.Say != nil {
		e.Say(format, args...)
	}
}

// now returns the time of the machine.
func (e Env) now() time.Time {
	if e.Clock != nil {
		return e.Clock().UTC()
	}
	return time.Now().UTC()
}

// hostName says to people which process of which machine this is.
func hostName() string {
	name, err := os.Hostname()
	if err != nil {
		name = "unknown"
	}
	return name + ":" + strconv.Itoa(os.Getpid())
}

// User returns the name that a decision is recorded under.
func User() string {
	if u, err := user.Current(); err == nil && u.Username != "" {
		return u.Username
	}
	return cmp.Or(os.Getenv("USER"), os.Getenv("USERNAME"), "unknown")
}

package main

import (
	"strings"
	"testing"

	"github.com/keep-run/keep/internal/pgtest"

	"github.com/keep-run/keep/cmd/keep/internal/exit"
)

// A server that Keep is not for is refused with the status of a database that
// cannot be reached, and the message says which version is needed.
func TestServeOnAnOldServer(t *testing.T) {
	t.Parallel()
	server := pgtest.StartRelease(t, 13)
	w := newCrashWorld(t)
	w.env = append(w.env, "KEEP_DB="+server.URL("postgres"))
	for _, args := range [][]string{{"serve"}, {"run", "."}, {"db", "migrate"}, {"db", "check"}} {
		cmd := w.command(args...)
		out, err := cmd.CombinedOutput()
		if err == nil || cmd.ProcessState.ExitCode() != exit.Unreachable ||
			!strings.Contains(string(out), "the server is PostgreSQL 13.23, and Keep needs 14 or newer: upgrade the server") {
			t.Errorf("keep %v: %v\n%s", args, err, out)
		}
	}
}

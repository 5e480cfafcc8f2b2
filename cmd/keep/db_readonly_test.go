package main

import (
	"strings"
	"testing"

	"github.com/keep-run/keep/cmd/keep/internal/exit"
	"github.com/keep-run/keep/internal/pgtest"
)

// TestReadOnlyPostgres is about a standby, or a server that somebody made read-only: what only reads
// can be asked there, and what must write is refused before it does anything.
func TestReadOnlyPostgres(t *testing.T) {
	t.Parallel()
	w := newCrashWorld(t)
	env, url := w.env, pgtest.URL(t)
	w.env = append(env, "KEEP_DB="+url)
	w.must("run", ".")
	w.env = append(env, "KEEP_DB="+url+"&default_transaction_read_only=on")
	for _, command := range []string{"status", "hosts", "workflows", "runs", "inbox", "db check", "workflows show contacts"} {
		w.must(strings.Fields(command)...)
	}
	for _, command := range []string{"pause contacts", "deploy .", "run .", "serve", "db restored", "db sweep --yes"} {
		if out, err := w.keep(strings.Fields(command)...); exited(err) != exit.Unreachable || !strings.Contains(string(out), "read-only") || !strings.Contains(string(out), "standby") {
			t.Errorf("keep %s: %v, want exit code 5\n%s", command, err, out)
		}
	}
}

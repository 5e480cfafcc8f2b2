package main

import (
	"context"
	"testing"
	"time"

	"github.com/keep-run/keep/internal/pgtest"
)

// TestPostgresCrash kills the database server with SIGKILL again and again, at
// random points of the command's calls, and starts it again. The command must continue
// by itself. Law: once, all-or-nothing, nothing-lost.
func TestPostgresCrash(t *testing.T) {
	t.Parallel()
	kills := 12
	if testing.Short() {
		kills = 3
	}
	server := pgtest.StartDurable(t)
	w := newCrashWorld(t)
	w.env = append(w.env, "KEEP_DB="+server.URL("postgres"))
	w.kill = func() error {
		server.Kill()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		return server.Restart(ctx)
	}
	done := 0
	for killed := 0; killed < kills; {
		if w.runUntilKilled() {
			killed++
		} else if done++; done > kills {
			t.Fatalf("killed %d times only: there was nothing left to do", killed)
		}
		w.doctor()
	}
	if out, err := w.keep("run", "."); err != nil {
		t.Fatalf("run to the end: %v\n%s", err, out)
	}
	w.doctor()
	w.checkOnce()
}

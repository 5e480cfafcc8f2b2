package main

import (
	"bytes"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/keep-run/keep/internal/pgtest"
)

// A list counts by the clock of a database that hosts share, also where no host answers: that of this machine may be wrong.
func TestReadsByTheClockOfTheDatabase(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", cacheHome(t))
	dir := filepath.Join(t.TempDir(), "p")
	db := pgtest.URL(t)
	keep := func(off time.Duration, args ...string) string {
		t.Helper()
		var out, talk bytes.Buffer
		a := newApp(&out, &talk)
		a.Clock = func() time.Time { return time.Now().Add(off) }
		root := a.root()
		root.SetArgs(args)
		root.SetOut(&out)
		root.SetErr(&talk)
		cmd, err := root.ExecuteContextC(t.Context())
		if status := a.finish(cmd, err); status != 0 {
			t.Fatalf("keep %v: status %d: %s", args, status, talk.String())
		}
		return out.String()
	}
	keep(0, "init", dir)
	t.Chdir(dir)
	keep(0, "run", ".", "--db", db)
	for _, off := range []time.Duration{0, 48 * time.Hour} {
		if out := keep(off, "events", "--since", "1h", "--db", db); !strings.Contains(out, "hello.txt") {
			t.Errorf("this machine is ahead by %s: %s", off, out)
		}
	}
}

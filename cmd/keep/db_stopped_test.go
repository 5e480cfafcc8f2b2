package main

import (
	"bytes"
	"context"
	"path/filepath"
	"strings"
	"testing"

	"github.com/keep-run/keep/cmd/keep/internal/exit"
	"github.com/keep-run/keep/store/sqlite"
)

// What moves or keeps a database and is stopped does not continue by itself, and says so.
func TestStoppedDatabaseCommandsSayAgain(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	db := sqlite.New(filepath.Join(dir, "keep.db"), sqlite.Config{Host: true})
	noError(t, db.Open(t.Context()))
	noError(t, db.Close())
	ctx, stop := context.WithCancel(t.Context())
	stop()
	for _, line := range []string{"db backup out.db", "db copy keep.db to.db", "db check", "db migrate", "db sweep --yes"} {
		var out, talk bytes.Buffer
		if status := run(ctx, strings.Fields(line), &out, &talk); status == exit.Done {
			t.Errorf("keep %s was not stopped", line)
		}
		if !strings.Contains(talk.String(), "give the same command again") || strings.Contains(talk.String(), "next start") {
			t.Errorf("keep %s says %q; want what to do", line, talk.String())
		}
	}
	// The lock file stays, as on any day.
	if list, err := filepath.Glob(filepath.Join(dir, "*")); err != nil || len(list) > 3 {
		t.Errorf("they left %q, %v", list, err)
	}
}

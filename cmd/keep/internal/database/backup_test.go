package database_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/keep-run/keep/cmd/keep/internal/database"
	"github.com/keep-run/keep/store/sqlite"
)

// A stopped is a context that ends as soon as a file is there.
type stopped struct {
	context.Context
	file string
}

func (c stopped) Err() error {
	if _, err := os.Stat(c.file); err != nil {
		return nil
	}
	return context.Canceled
}

func (c stopped) Done() <-chan struct{} {
	if c.Err() == nil {
		return nil
	}
	done := make(chan struct{})
	close(done)
	return done
}

// A backup that is stopped while its copy is checked leaves no copy that nobody checked: the same command is given again.
func TestBackupIsStoppedInItsCheck(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	db := sqlite.New(filepath.Join(dir, "keep.db"), sqlite.Config{Host: true})
	if err := db.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	to := filepath.Join(dir, "backup.db")
	if err := database.Backup(stopped{t.Context(), to}, db, to, time.UnixMilli(1)); !errors.Is(err, context.Canceled) {
		t.Errorf("Backup = %v, want that it was stopped", err)
	}
	if err := database.Backup(t.Context(), db, to, time.UnixMilli(1)); err != nil {
		t.Errorf("the same backup again: %v", err)
	}
}

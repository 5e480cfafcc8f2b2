package sqldb

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// Law nothing-lost: a change of a file that is replaced while it is made is not confirmed.
func TestReplacedBeforeCommit(t *testing.T) {
	dir := t.TempDir()
	path, next := filepath.Join(dir, "a.db"), filepath.Join(dir, "next.db")
	e, err := newSQLite(path, true)
	if err != nil {
		t.Fatal(err)
	}
	defer e.close()
	change := func(then func() error) error {
		s, err := e.begin(context.Background(), true)
		if err != nil {
			t.Fatal(err)
		}
		defer s.end()
		if _, err := s.exec(context.Background(), "CREATE TABLE IF NOT EXISTS items (id INTEGER)"); err != nil {
			t.Fatal(err)
		}
		if err := then(); err != nil {
			t.Skip("this system replaces no file that is open: ", err)
		}
		return s.commit(context.Background())
	}
	if err := change(func() error { return nil }); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(next, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	err = change(func() error { return os.Rename(next, path) })
	if _, doubt := errors.AsType[*doubt](err); !errors.Is(err, errReplaced) || doubt {
		t.Errorf("the file was replaced: %v", err)
	}
	if err := change(func() error { return nil }); err != nil {
		t.Errorf("the next change: %v", err)
	}
}

package sqlite_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/store/sqlite"
)

// Who dies while a database is made leaves a file without one, or with a first page that its
// journal undoes. Readers find that there is none yet, and the next host makes it.
func TestFileThatIsNoDatabaseYet(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "keep.db")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	head := madeFrom(t, path)
	t.Run("half a page", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "keep.db")
		page := bytes.Clone(head[:4096])
		page[18], page[19] = 1, 1 // there is no log yet
		journal := make([]byte, 512)
		copy(journal, "\xd9\xd5\x05\xf9\x20\xa1\x63\xd7") // and no pages; before it the file was empty
		binary.BigEndian.PutUint32(journal[20:], 512)
		binary.BigEndian.PutUint32(journal[24:], 4096)
		if err := errors.Join(os.WriteFile(path, page, 0o600), os.WriteFile(path+"-journal", journal, 0o600)); err != nil {
			t.Fatal(err)
		}
		madeFrom(t, path)
	})
}

// madeFrom looks at a file that is no database, makes it one, and returns its text.
func madeFrom(t *testing.T, path string) []byte {
	t.Helper()
	reader := sqlite.New(path, sqlite.Config{ReadOnly: true})
	if err := reader.Open(t.Context()); !errors.Is(err, keep.ErrNoDatabase) {
		t.Errorf("a reader: %v", err)
	}
	host := sqlite.New(path, sqlite.Config{Host: true})
	if err := host.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := host.Close(); err != nil {
		t.Error(err)
	}
	head, err := os.ReadFile(path)
	if err != nil || len(head) < 100 || head[71] == 0 || head[67] != 1 {
		t.Errorf("the file has neither the mark of Keep nor pages that can be given back: %v % x", err, head[52:72])
	}
	if err := reader.Open(t.Context()); err != nil {
		t.Errorf("a reader afterwards: %v", err)
	}
	if err := reader.Close(); err != nil {
		t.Error(err)
	}
	return head
}

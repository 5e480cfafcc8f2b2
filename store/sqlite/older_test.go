package sqlite_test

import (
	"database/sql"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/keep-run/keep/store/sqlite"
)

// openOlder opens a file as the version with that many migrations left it, with the records that
// a script adds.
func openOlder(t *testing.T, migrations int, records string) *sqlite.DB {
	t.Helper()
	path := filepath.Join(t.TempDir(), "keep.db")
	makeOlder(t, path, migrations, records)
	return openDB(t, path, sqlite.Config{})
}

// makeOlder makes such a file.
func makeOlder(t *testing.T, path string, migrations int, records string) {
	t.Helper()
	file, err := sql.Open("sqlite", path)
	must(t, err)
	names, err := filepath.Glob("migrations/*.sql")
	must(t, err)
	script := "PRAGMA application_id = " + strconv.Itoa(0x4b454550)
	for _, name := range names[:migrations] {
		text, err := os.ReadFile(name)
		must(t, err)
		script += ";\n" + string(text)
	}
	_, err = file.ExecContext(t.Context(), script+";\nPRAGMA user_version = "+strconv.Itoa(migrations)+";\nINSERT INTO meta VALUES ('id', 'an id');\n"+records)
	must(t, err)
	must(t, file.Close())
}

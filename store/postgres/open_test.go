package postgres_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/internal/pgtest"
	"github.com/keep-run/keep/store/postgres"
)

// A database of each older version opens, keeps what it has, and can do what is new.
func TestOlderVersions(t *testing.T) {
	files, err := filepath.Glob("migrations/*.sql")
	if err != nil {
		t.Fatal(err)
	}
	for version := 1; version < len(files); version++ {
		t.Run(filepath.Base(files[version-1]), func(t *testing.T) {
			t.Parallel()
			url := pgtest.SchemaURL(t)
			conn := connect(t, url)
			for _, file := range files[:version] {
				script, err := os.ReadFile(file)
				if err != nil {
					t.Fatal(err)
				}
				if _, err := conn.Exec(t.Context(), string(script)); err != nil {
					t.Fatalf("%s: %v", file, err)
				}
			}
			// What version 1 had, as its program wrote it.
			if _, err := conn.Exec(t.Context(), `
				INSERT INTO meta VALUES ('id', 'an id that was drawn'), ('keep_schema', '`+strconv.Itoa(version)+`');
				INSERT INTO lease (workflow, n) VALUES ('w', 7);
				INSERT INTO item (workflow, id, n, title, status, attempt, rev, created_at, updated_at)
				VALUES ('w', 'old', 7, 'An old title', 'done', 1, 1, 1, 1)`); err != nil {
				t.Fatal(err)
			}
			if version > 2 { // it counted, and took titles apart
				if _, err := conn.Exec(t.Context(), `INSERT INTO tally VALUES ('w', 'item', '', 1);
					UPDATE item SET words = array_to_tsvector(ARRAY['an', 'old', 'title'])`); err != nil {
					t.Fatal(err)
				}
			}
			for _, cfg := range []postgres.Config{{ReadOnly: true}, {NoUpgrade: true}} {
				if err := postgres.New(url, cfg).Open(t.Context()); !errors.Is(err, keep.ErrOlderDatabase) {
					t.Errorf("Open with %+v = %v", cfg, err)
				}
			}
			db := openDB(t, url, postgres.Config{})
			if was, is := db.Schema(); was != version || is != len(files) {
				t.Errorf("Schema = %d, %d, want %d, %d", was, is, version, len(files))
			}
			if id, err := db.StoreID(t.Context()); err != nil || id != "an id that was drawn" {
				t.Errorf("StoreID = %q, %v", id, err)
			}
			put := keep.PutItem{Item: keep.Item{Workflow: "w", ID: "new", Title: "A new title", Status: keep.ItemDone, Attempt: 1}}
			if err := db.Commit(t.Context(), keep.Commit{Workflow: "w", At: time.UnixMilli(1), Changes: []keep.Change{put}}); err != nil {
				t.Fatal(err)
			}
			list, _, err := db.Items(t.Context(), keep.ItemFilter{}, keep.Page{})
			if err != nil || len(list) != 2 || list[1].ID != "old" {
				t.Errorf("items = %v, %v, want the new and the old one", list, err)
			}
			counts, err := db.CountItems(t.Context(), keep.ItemFilter{})
			if err != nil || counts[keep.ItemDone] != 2 {
				t.Errorf("counts = %v, %v, want 2 that are done", counts, err)
			}
			found, _, err := db.Items(t.Context(), keep.ItemFilter{Text: "old tit"}, keep.Page{})
			if err != nil || len(found) != 1 {
				t.Errorf("%d items are found by the words of an old title, %v, want 1", len(found), err)
			}
			for err := range db.Check(t.Context()) {
				t.Error(err)
			}
		})
	}
}

// What is not ours is refused, and left as it is.
func TestForeignAndNewer(t *testing.T) {
	t.Parallel()
	for script, want := range map[string]error{
		`CREATE TABLE run (id INTEGER)`:                         keep.ErrForeignDatabase,
		`CREATE TABLE meta (id INTEGER)`:                        keep.ErrForeignDatabase,
		`CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT)`: keep.ErrForeignDatabase,
		`CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT); INSERT INTO meta VALUES ('keep_schema', '1000000')`: keep.ErrNewerDatabase,
	} {
		url := pgtest.SchemaURL(t)
		conn := connect(t, url)
		if _, err := conn.Exec(t.Context(), script); err != nil {
			t.Fatal(err)
		}
		if err := postgres.New(url, postgres.Config{}).Open(t.Context()); !errors.Is(err, want) {
			t.Errorf("%s: Open = %v, want %v", script, err, want)
		}
		var tables int
		if err := conn.QueryRow(t.Context(), `SELECT count(*) FROM pg_tables WHERE schemaname = current_schema()`).Scan(&tables); err != nil || tables != 1 {
			t.Errorf("%s: %d tables afterwards, %v", script, tables, err)
		}
	}
}

// A process that waits for another to make the schema sees what was made, though its
// connection found nothing before: that of another program, and that of a newer Keep, beside which it may work or not. So does one
// that needs the table of keys alone.
func TestOpenSeesWhatItWaitedFor(t *testing.T) {
	t.Parallel()
	const newer = `CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT); INSERT INTO meta VALUES ('id', 'x'), ('keep_schema', '1000'), ('keep_oldest', '%s')`
	foreign, refused, fine := `CREATE TABLE meta (id INTEGER)`, fmt.Sprintf(newer, "1000"), fmt.Sprintf(newer, "1")
	opened := func(url string) error {
		db := postgres.New(url, postgres.Config{Conns: 1})
		return errors.Join(db.Open(t.Context()), db.Close())
	}
	keys := func(url string) error { return migrateKeys(t, url) }
	for _, tt := range []struct {
		begin func(url string) error
		made  string
		want  error
	}{
		{opened, foreign, keep.ErrForeignDatabase}, {opened, refused, keep.ErrNewerDatabase}, {opened, fine, nil},
		{keys, foreign, nil}, {keys, refused, keep.ErrNewerDatabase}, {keys, fine, nil},
	} {
		url := pgtest.URL(t)
		other := connect(t, url)
		exec := func(sql string) {
			if _, err := other.Exec(t.Context(), sql); err != nil {
				t.Fatal(err)
			}
		}
		exec(`SELECT pg_advisory_lock(` + strconv.Itoa(postgres.MigrationLock) + `)`)
		got := make(chan error)
		go func() { got <- tt.begin(url) }()
		for waits := 0; waits == 0; { // until it waits
			err := other.QueryRow(t.Context(), `SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted
				AND objid = $1 AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`, postgres.MigrationLock).Scan(&waits)
			if err != nil {
				t.Fatal(err)
			}
		}
		exec(tt.made)
		exec(`SELECT pg_advisory_unlock(` + strconv.Itoa(postgres.MigrationLock) + `)`)
		if err := <-got; !errors.Is(err, tt.want) || tt.want == nil && err != nil {
			t.Errorf("%s: %v, want %v", tt.made, err, tt.want)
		}
	}
}

// Many processes that start at once make one schema.
func TestOpenAtOnce(t *testing.T) {
	t.Parallel()
	url := pgtest.SchemaURL(t)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			db := postgres.New(url, postgres.Config{Conns: 3})
			if err := db.Open(t.Context()); err != nil {
				t.Error(err)
			}
			if err := db.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
}

// A password with a character of URLs makes a URL that cannot be read; the error says what to do, and no password.
func TestPasswordThatIsNotEncoded(t *testing.T) {
	db := postgres.New("postgres://keep:pa/ss@127.0.0.1:5432/keep", postgres.Config{})
	err := db.Open(t.Context())
	if err == nil || !strings.Contains(err.Error(), "percent-encoded") || strings.Contains(err.Error(), "pa/ss") {
		t.Errorf("Open = %v, want that a password is percent-encoded, and no password", err)
	}
}

package pgtest

import (
	"context"
	"net/url"
	"testing"

	"github.com/jackc/pgx/v5"
)

// A schema is used again as it was made, but not when its tables are others, or are planned by the rows that a test had.
func TestTablesURL(t *testing.T) {
	exec := func(at string, sql string) error {
		conn, err := pgx.Connect(context.Background(), at)
		if err != nil {
			return err
		}
		defer conn.Close(context.Background())
		_, err = conn.Exec(context.Background(), sql)
		return err
	}
	prepare := func(at string) error {
		return exec(at, `CREATE TABLE meta (name text, value text); INSERT INTO meta VALUES ('id', ''); CREATE TABLE run (id int PRIMARY KEY)`)
	}
	use := func(sql string) (schema string) {
		t.Run("", func(t *testing.T) {
			at := TablesURL(t, prepare)
			u, err := url.Parse(at)
			if err != nil {
				t.Fatal(err)
			}
			schema = u.Query().Get("search_path")
			if err := exec(at, `INSERT INTO run VALUES (1); `+sql); err != nil {
				t.Error(err)
			}
		})
		return schema
	}
	first := use("")
	if again := use("ANALYZE run"); again != first {
		t.Errorf("schema %s is not used again after %s, but %s", first, "an INSERT", again)
	}
	second := use("ALTER TABLE run ADD more int")
	if second == first {
		t.Errorf("schema %s is used again after ANALYZE", first)
	}
	if third := use(""); third == first || third == second {
		t.Errorf("schema %s is used again after ALTER TABLE or ANALYZE", third)
	}
}

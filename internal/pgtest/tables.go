package pgtest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// A tables is a schema whose tables were made, and what they held then.
type tables struct {
	schema string
	conn   *pgx.Conn         // looks at the schema and empties it, of one user after the other: a new process of the server would first read what its tables are
	names  []string          // of the tables
	shape  string            // of the tables, their columns and their indexes
	rows   map[string]string // by table, a JSON array; tables without rows are not there
}

// made are the schemas that no test uses.
var made struct {
	mu   sync.Mutex // protects the field below
	free []*tables
}

// TablesURL is SchemaURL of a schema that has its tables already. Prepare makes them, by
// the URL of a new schema; the test binary has one such function. When a test ends, its schema is given
// to a later one, with the rows that prepare left and no others: making a hundred tables takes a
// server a fifth of a second. It is for tests that leave the tables as they are.
func TablesURL(tb testing.TB, prepare func(url string) error) string {
	tb.Helper()
	s := shared.Get(tb)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(tb.Context()), time.Minute)
	defer cancel()
	t, err := take(ctx, s, prepare)
	if err != nil {
		tb.Fatalf("pgtest: %v", err)
	}
	tb.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := t.giveBack(ctx, s); err != nil {
			tb.Errorf("pgtest: %v", err)
		}
	})
	return t.url(s)
}

// url names a user of the schema, so that its connections are known by it.
func (t *tables) url(s *Server) string {
	return s.URL("postgres") + "&search_path=" + t.schema + "&application_name=" + t.schema
}

// take returns a schema that nobody uses, or a new one.
func take(ctx context.Context, s *Server, prepare func(url string) error) (*tables, error) {
	made.mu.Lock()
	if n := len(made.free); n > 0 {
		t := made.free[n-1]
		made.free = made.free[:n-1]
		made.mu.Unlock()
		return t, nil
	}
	made.mu.Unlock()
	t := &tables{schema: fmt.Sprintf("tables_%d", things.Add(1)), rows: make(map[string]string)}
	if err := s.exec(ctx, "CREATE SCHEMA "+t.schema); err != nil {
		return nil, err
	}
	if err := prepare(t.url(s)); err != nil {
		return nil, err
	}
	return t, t.connect(ctx, s)
}

// connect makes the connection whose names are found in the schema, if it is not there, or not any more.
func (t *tables) connect(ctx context.Context, s *Server) (err error) {
	if t.conn != nil && !t.conn.IsClosed() {
		return nil
	}
	if t.conn, err = pgx.Connect(ctx, s.URL("postgres")+"&search_path="+t.schema); err != nil {
		return err
	}
	if t.names == nil {
		if err := t.note(ctx); err != nil {
			return err
		}
	}
	_, err = t.conn.Exec(ctx, `CREATE FUNCTION pg_temp.reset() RETURNS void LANGUAGE plpgsql AS `+literal(t.script()))
	return err
}

// note remembers what prepare made.
func (t *tables) note(ctx context.Context) (err error) {
	if t.shape, err = t.now(ctx); err != nil {
		return err
	}
	names, err := t.conn.Query(ctx, `SELECT quote_ident(relname) FROM pg_class WHERE relkind = 'r' AND relnamespace = current_schema()::regnamespace ORDER BY 1`)
	if err != nil {
		return err
	}
	if t.names, err = pgx.CollectRows(names, pgx.RowTo[string]); err != nil {
		return err
	}
	for _, name := range t.names {
		var rows *string
		if err := t.conn.QueryRow(ctx, `SELECT json_agg(t)::text FROM `+name+` t`).Scan(&rows); err != nil {
			return err
		}
		if rows != nil {
			t.rows[name] = *rows
		}
	}
	return nil
}

// now returns the shape, which differs when a table or an index was made, changed or dropped, or the server counted the rows of
// a table: statements are planned by that.
func (t *tables) now(ctx context.Context) (sum string, err error) {
	err = t.conn.QueryRow(ctx, `SELECT md5(string_agg(concat_ws(' ', c.relname, c.relkind, c.relhastriggers, CASE WHEN c.relkind = 'r' THEN c.reltuples >= 0 END, a.attname, a.atttypid, a.attnotnull, a.attisdropped), ',' ORDER BY c.relname, a.attnum))
		FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid WHERE c.relnamespace = current_schema()::regnamespace`).Scan(&sum)
	return sum, err
}

// giveBack lets a later test have the schema, as prepare left it. One whose tables a test
// changed is not used again.
func (t *tables) giveBack(ctx context.Context, s *Server) error {
	if err := t.connect(ctx, s); err != nil {
		return err
	}
	if err := t.alone(ctx); err != nil {
		return err
	}
	if now, err := t.now(ctx); err != nil || now != t.shape {
		return errors.Join(err, t.conn.Close(ctx))
	}
	if _, err := t.conn.Exec(ctx, `SELECT pg_temp.reset()`); err != nil {
		return err
	}
	made.mu.Lock()
	defer made.mu.Unlock()
	made.free = append(made.free, t)
	return nil
}

// alone ends the connections of the test that are still there, and waits until they are not:
// a server may notice late that a client has gone, and still do what it asked for.
func (t *tables) alone(ctx context.Context) error {
	for {
		var others int
		err := t.conn.QueryRow(ctx, `SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE application_name = $1`, t.schema).Scan(&others)
		if err != nil || others == 0 {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%d connections to %s do not end: %w", others, t.schema, ctx.Err())
		case <-time.After(time.Millisecond):
		}
	}
}

// script leaves the rows that prepare left, in PL/pgSQL, which plans each statement once. A database has an id of its own.
func (t *tables) script() string {
	var script strings.Builder
	script.WriteString("BEGIN ")
	for _, name := range t.names {
		fmt.Fprintf(&script, "DELETE FROM %s;", name)
	}
	for _, name := range slices.Sorted(maps.Keys(t.rows)) {
		fmt.Fprintf(&script, "INSERT INTO %s SELECT * FROM json_populate_recordset(NULL::%[1]s, %[2]s);", name, literal(t.rows[name]))
	}
	script.WriteString("UPDATE meta SET value = gen_random_uuid() WHERE name = 'id'; END")
	return script.String()
}

// literal returns a text as SQL has it.
func literal(s string) string { return "'" + strings.ReplaceAll(s, "'", "''") + "'" }

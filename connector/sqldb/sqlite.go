package sqldb

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector/internal/jsonval"
	"github.com/keep-run/keep/internal/pause"
)

// textKind is the kind of a text column of our own, in both engines.
const textKind = `"pg_catalog"."text"`

// lockWait is how long SQLite itself waits for a lock. It is short since that
// wait doesn't end with a context; the loop around it does.
const lockWait = 20 * time.Millisecond

// An sqliteEngine is an SQLite file.
type sqliteEngine struct {
	path, dsn string
	renewed   func() // is called when the file is another one than before

	mu sync.Mutex // protects all below
	db *sql.DB    // of connections to at
	at fs.FileInfo
}

// newSQLite prepares the file for use. It does not open it.
func newSQLite(path string, create bool) (*sqliteEngine, error) {
	if path == "" || strings.ContainsAny(path, "\x00") {
		return nil, errors.New("sqlite: a path is required")
	}
	q := url.Values{}
	q.Set("mode", "rw") // a file that is missing is a mistake, not a new database
	if create {
		q.Set("mode", "rwc")
	}
	q.Add("_pragma", fmt.Sprintf("busy_timeout(%d)", lockWait.Milliseconds()))
	q.Add("_pragma", "foreign_keys(1)")
	q.Add("_pragma", "synchronous(FULL)") // what was committed survives a loss of power
	dsn := "file:" + (&url.URL{Path: path}).EscapedPath() + "?" + q.Encode()
	e := &sqliteEngine{path: path, dsn: dsn, renewed: func() {}}
	return e, e.open()
}

// open makes a pool of connections. It opens no file.
func (e *sqliteEngine) open() (err error) {
	if e.db, err = sql.Open("sqlite", e.dsn); err == nil {
		e.db.SetMaxOpenConns(maxIdle)
	}
	return err
}

func (e *sqliteEngine) close() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.db.Close()
}

// current returns connections to the file that has the name now. Those of a file that was replaced or removed would change what
// nobody finds any more.
func (e *sqliteEngine) current() (*sql.DB, fs.FileInfo, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	now, err := os.Stat(e.path)
	if err != nil {
		now = nil // one that is not there is not opened, or made
	}
	if e.at != nil && (now == nil || !os.SameFile(e.at, now)) {
		old := e.db
		if err := e.open(); err != nil {
			e.db = old
			return nil, nil, err
		}
		old.Close() // what is under way ends with it
		e.renewed()
	}
	e.at = now
	return e.db, now, nil
}

func (e *sqliteEngine) begin(ctx context.Context, write bool) (session, error) {
	db, at, err := e.current()
	if err != nil {
		return nil, err
	}
	s := &sqliteSession{path: e.path, at: at}
	// A new connection sets pragmas, which may find the file locked.
	err = s.wait(ctx, func() (err error) { s.conn, err = db.Conn(ctx); return err })
	if err != nil {
		return nil, err
	}
	if err := s.wait(ctx, func() error { return s.begin(ctx, write) }); err != nil {
		s.end()
		return nil, err
	}
	return s, nil
}

func (e *sqliteEngine) makeLedger(quoted string) string {
	return "CREATE TABLE IF NOT EXISTS " + quoted +
		" (token TEXT PRIMARY KEY, tool TEXT NOT NULL, result TEXT, at TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ', 'now')))"
}

func (e *sqliteEngine) ledgerAge() string {
	return "CAST((julianday('now') - julianday(at)) * 86400 AS TEXT)"
}

func (e *sqliteEngine) columnType(name string) string { return types[name].sqlite }

func (e *sqliteEngine) schemas() bool { return false }

// classify goes by the primary result code.
func (e *sqliteEngine) classify(err error) (keep.Class, string) {
	se, ok := errors.AsType[*sqlite.Error](err)
	if !ok {
		return keep.ClassTransient, "sqlite"
	}
	code := "sqlite-" + strconv.Itoa(se.Code())
	switch se.Code() & 0xff {
	case sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_INTERRUPT, sqlite3.SQLITE_IOERR,
		sqlite3.SQLITE_NOMEM, sqlite3.SQLITE_PROTOCOL, sqlite3.SQLITE_SCHEMA:
		return keep.ClassTransient, code
	case sqlite3.SQLITE_READONLY, sqlite3.SQLITE_AUTH, sqlite3.SQLITE_PERM:
		return keep.ClassPermission, code
	case sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_FULL:
		return keep.ClassPrecondition, code
	default:
		return keep.ClassLogic, code
	}
}

func (e *sqliteEngine) selected(c column) string {
	// The sign changes nothing but hides the declared type, for which the
	// driver would otherwise guess a time or a boolean.
	return "+" + quote(c.name)
}

func (e *sqliteEngine) same(a, b string) string { return a + " IS " + b }

// value binds by the type of the JSON value: columns of SQLite take any.
func (e *sqliteEngine) value(c column, raw json.RawMessage, _ int) (string, any, error) {
	raw = bytes.TrimSpace(raw)
	switch {
	case isNull(raw):
		return "?", nil, nil
	case raw[0] == 't':
		return "?", int64(1), nil
	case raw[0] == 'f':
		return "?", int64(0), nil
	case raw[0] == '"':
		var s string
		err := json.Unmarshal(raw, &s)
		return "?", s, err
	case raw[0] == '{' || raw[0] == '[':
		if b, ok, err := bytesValue(raw); ok {
			return "?", b, err
		}
		return "?", string(raw), nil
	}
	v, err := sqliteNumber(string(raw))
	return "?", v, err
}

// sqliteNumber returns an int64 if s is one, and a float64 that is s exactly
// enough. An integer that SQLite can't hold is refused: it would be rounded.
func sqliteNumber(s string) (any, error) {
	if n, err := strconv.ParseInt(s, 10, 64); err == nil {
		return n, nil
	}
	f, err := strconv.ParseFloat(s, 64)
	if err != nil || !strings.ContainsAny(s, ".eE") {
		return nil, fmt.Errorf("the number %s is too large", s)
	}
	return f, nil
}

// bytesValue returns the bytes of {"base64": "…"}; false if raw isn't that.
func bytesValue(raw json.RawMessage) ([]byte, bool, error) {
	fields, err := jsonval.Fields(raw)
	if err != nil || len(fields) != 1 || fields["base64"] == nil {
		return nil, false, nil
	}
	var b []byte
	if err := json.Unmarshal(fields["base64"], &b); err != nil {
		return nil, true, errors.New("base64 must hold the bytes in base64")
	}
	return b, true, nil
}

// decode goes by the type of the stored value, and by the declared type only
// where that has no type of its own.
func (e *sqliteEngine) decode(c column, v any) (json.RawMessage, error) {
	switch v := v.(type) {
	case nil:
		return json.RawMessage("null"), nil
	case int64:
		switch {
		case c.form == boolForm && (v == 0 || v == 1):
			return strconv.AppendBool(nil, v == 1), nil
		case jsonval.SafeInteger(v):
			return strconv.AppendInt(nil, v, 10), nil
		}
		return jsonval.Encode(strconv.FormatInt(v, 10))
	case float64:
		if math.IsInf(v, 0) || math.IsNaN(v) {
			return jsonval.Encode(strconv.FormatFloat(v, 'g', -1, 64))
		}
		return jsonval.Encode(v)
	case string:
		if c.form == jsonForm {
			if parsed, err := jsonval.Decode(json.RawMessage(v)); err == nil {
				return jsonval.Encode(jsonval.Safe(parsed))
			}
		}
		if !utf8.ValidString(v) { // two of them must not become one text
			return e.decode(c, []byte(v))
		}
		return jsonval.Encode(v)
	case []byte:
		return jsonval.Encode(map[string]string{"base64": base64.StdEncoding.EncodeToString(v)})
	}
	return nil, fmt.Errorf("a value of type %T", v)
}

// An sqliteSession is a transaction on one connection. It is begun and ended by
// statements: database/sql gives a connection back although its COMMIT was
// busy and the transaction is still open.
type sqliteSession struct {
	conn *sql.Conn
	done bool

	path string
	at   fs.FileInfo // what path was; nil: it was not there
}

// errReplaced ends a change of a file that has no name any more.
var errReplaced = errors.New("the file of the database was replaced or removed meanwhile")

// replaced reports whether path is another file by now.
func (s *sqliteSession) replaced() bool {
	now, err := os.Stat(s.path)
	return s.at != nil && (err != nil || !os.SameFile(s.at, now))
}

// begin takes the lock that the transaction needs at once, so that it is waited
// for here and not in the middle.
func (s *sqliteSession) begin(ctx context.Context, write bool) error {
	if write {
		return s.run(ctx, "BEGIN IMMEDIATE")
	}
	err := s.run(ctx, "BEGIN")
	if err == nil {
		if err = s.run(ctx, "SELECT 1 FROM sqlite_schema LIMIT 1"); err != nil {
			s.run(context.WithoutCancel(ctx), "ROLLBACK") // for the next try; the first error counts
		}
	}
	return err
}

func (s *sqliteSession) run(ctx context.Context, query string) error {
	_, err := s.conn.ExecContext(ctx, query)
	return err
}

// wait repeats f while the database is locked, until ctx ends.
func (s *sqliteSession) wait(ctx context.Context, f func() error) error {
	for {
		err := f()
		se, ok := errors.AsType[*sqlite.Error](err)
		if !ok || se.Code()&0xff != sqlite3.SQLITE_BUSY {
			return err
		}
		if pause.For(ctx, 5*time.Millisecond) != nil {
			return err
		}
	}
}

func (s *sqliteSession) exec(ctx context.Context, query string, args ...any) (int64, error) {
	r, err := s.conn.ExecContext(ctx, query, args...)
	if err != nil {
		return 0, err
	}
	return r.RowsAffected()
}

func (s *sqliteSession) query(ctx context.Context, query string, args []any, each func([]any) error) error {
	rows, err := s.conn.QueryContext(ctx, query, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	names, err := rows.Columns()
	if err != nil {
		return err
	}
	values, into := make([]any, len(names)), make([]any, len(names))
	for i := range values {
		into[i] = &values[i]
	}
	for rows.Next() {
		if err := rows.Scan(into...); err != nil {
			return err
		}
		if err := each(values); err != nil {
			return err
		}
	}
	return rows.Err()
}

// describe finds a table or view by its exact name.
func (s *sqliteSession) describe(ctx context.Context, name string) (*table, error) {
	if strings.HasPrefix(strings.ToLower(name), "sqlite_") {
		return nil, nil
	}
	t := &table{quoted: quote(name)}
	const columns = `SELECT x.name, upper(x.type), x.pk FROM sqlite_schema m, pragma_table_xinfo(m.name) x
		WHERE m.name = ? AND m.type IN ('table', 'view') AND x.hidden <> 1 ORDER BY x.cid`
	keys := map[int64]string{}
	err := s.query(ctx, columns, []any{name}, func(v []any) error {
		c := column{name: v[0].(string)}
		c.kind, _ = v[1].(string)
		switch {
		case strings.HasPrefix(c.kind, "BOOL"):
			c.form = boolForm
		case strings.HasPrefix(c.kind, "JSON"):
			c.form = jsonForm
		}
		if n := v[2].(int64); n > 0 {
			keys[n] = c.name
		}
		t.columns = append(t.columns, c)
		return nil
	})
	if err != nil || len(t.columns) == 0 {
		return nil, err
	}
	for n := int64(1); n <= int64(len(keys)); n++ {
		t.primary = append(t.primary, keys[n])
	}
	if len(t.primary) > 0 {
		t.unique = append(t.unique, t.primary)
	}
	return t, s.describeIndexes(ctx, t, name)
}

// describeIndexes adds the unique indexes. One with an expression or a
// condition identifies no row.
func (s *sqliteSession) describeIndexes(ctx context.Context, t *table, name string) error {
	const indexes = `SELECT l.name, i.name FROM pragma_index_list(?) l, pragma_index_info(l.name) i
		WHERE l."unique" = 1 AND l.partial = 0 ORDER BY l.name, i.seqno`
	last, whole := "", false
	return s.query(ctx, indexes, []any{name}, func(v []any) error {
		index := v[0].(string)
		if index != last {
			t.unique = append(t.unique, nil)
			last, whole = index, true
		}
		columnName, ok := v[1].(string)
		end := len(t.unique) - 1
		if whole = whole && ok; !whole {
			t.unique[end] = []string{""} // matches no key
			return nil
		}
		t.unique[end] = append(t.unique[end], columnName)
		return nil
	})
}

func (s *sqliteSession) commit(ctx context.Context) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if s.replaced() {
		return errReplaced
	}
	// Not interrupted by ctx: it would be hard to say what an interrupted
	// COMMIT has done. A busy one has done nothing.
	err := s.wait(ctx, func() error { return s.run(context.WithoutCancel(ctx), "COMMIT") })
	if err == nil {
		s.done = true
		return nil
	}
	// A transaction that can still be rolled back was not committed.
	if s.run(context.WithoutCancel(ctx), "ROLLBACK") != nil {
		err = &doubt{err}
	}
	s.done = true
	return err
}

// end rolls back if nothing was committed, and gives the connection back.
func (s *sqliteSession) end() {
	if !s.done {
		// Without a context, since it must happen. An error means that there
		// is no transaction any more.
		s.run(context.Background(), "ROLLBACK")
	}
	s.conn.Close()
}
